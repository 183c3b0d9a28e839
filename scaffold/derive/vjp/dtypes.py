"""Dtypes, as far as derivatives differ by them.

In: what is declared of an input, or the name of a dtype of torch's. Out: the kind of its tensors.
"""

from collections.abc import Mapping

from scaffold.derive.kinds import COMPLEX, INTEGERS, REALS
from scaffold.derive.vjp.ir import Kind
from scaffold.formula import Node

# The kinds of inputs, by what is declared.
KINDS: Mapping[str, Kind] = {
    "float": "real",
    "complex": "complex",
    "int": "int",
    "index": "int",
    "bool": "bool",
}


TENSORS: Mapping[str, Kind] = {  # `torch.DoubleTensor`
    **dict.fromkeys(("Double", "Float", "Half", "BFloat16"), "real"),
    **dict.fromkeys(("Byte", "Char", "Short", "Int", "Long"), "int"),
    "Bool": "bool",
}


def kind_of_type(name: object, node: object) -> Kind | None:
    """The kind of tensors of a type of torch's, by its name or as it is written: `torch.cuda.FloatTensor`."""
    text = node.label if isinstance(node, Node) else name
    last = text.rpartition(".")[2] if isinstance(text, str) else ""
    return TENSORS.get(last.removesuffix("Tensor")) if last != "Tensor" else None


def kind_named(name: str) -> Kind | None:
    """The kind of tensors of a dtype of torch's."""
    if name in INTEGERS:
        return "int"
    if name in REALS:
        return "real"
    return "complex" if name in COMPLEX else "bool" if name == "bool" else None
