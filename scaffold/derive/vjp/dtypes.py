"""Dtypes, as far as derivatives differ by them.

In: what is declared of an input, or the name of a dtype of torch's. Out: the kind of its tensors.
"""

from collections.abc import Mapping

from scaffold.derive.kinds import COMPLEX, INTEGERS, REALS
from scaffold.derive.vjp.ir import Kind

# The kinds of inputs, by what is declared.
KINDS: Mapping[str, Kind] = {
    "float": "real",
    "complex": "complex",
    "int": "int",
    "index": "int",
    "bool": "bool",
}


def kind_named(name: str) -> Kind | None:
    """The kind of tensors of a dtype of torch's."""
    if name in INTEGERS:
        return "int"
    if name in REALS:
        return "real"
    return "complex" if name in COMPLEX else "bool" if name == "bool" else None
