"""Dtypes, as far as derivatives differ by them.

In: what is declared of an input, or the name of a dtype of torch's. Out: the kind of its tensors.
"""

from collections.abc import Mapping

from scaffold.derive.vjp.ir import Kind

# The kinds of inputs, by what is declared.
KINDS: Mapping[str, Kind] = {
    "float": "real",
    "complex": "complex",
    "int": "int",
    "index": "int",
    "bool": "bool",
}
INTEGERS = frozenset(
    {"int", "int8", "int16", "int32", "int64", "long", "short", "uint8"}
)
REALS = frozenset(
    {"float", "double", "half", "float16", "float32", "float64", "bfloat16"}
)
COMPLEX = frozenset({"complex64", "complex128", "cfloat", "cdouble"})


def kind_named(name: str) -> Kind | None:
    """The kind of tensors of a dtype of torch's."""
    if name in INTEGERS:
        return "int"
    if name in REALS:
        return "real"
    return "complex" if name in COMPLEX else "bool" if name == "bool" else None
