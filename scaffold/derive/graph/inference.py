"""The shape and the kind of a primitive's result.

In: a rule and the arguments of each parameter. Out: `Inferred`. Invariant: what is not known for sure is not said.
"""

from collections.abc import Mapping
from typing import NamedTuple

from scaffold.derive.graph.op import Kind, Program, literal, tensors
from scaffold.derive.graph.shape_rules import Args, shape_said
from scaffold.derive.graph.shapes import SCALAR, Shape
from scaffold.derive.graph.static_values import is_complex, is_int
from scaffold.derive.rules.table import Rule
from scaffold.formula import UNKNOWN
from scaffold.primitives.facts import MOVING

FIXED: Mapping[str, Kind] = {
    "bool": "bool",
    "int": "int",
    "real": "real",
    "complex": "complex",
}


class Inferred(NamedTuple):
    """What is known of a result."""

    shape: Shape | None
    kind: Kind


def infer(program: Program, rule: Rule, args: Args) -> Inferred:
    """The shape and kind of what a rule gives for arguments."""
    if rule.results != ("result",):
        return Inferred(SCALAR, "group")
    return Inferred(
        shape_said(program, rule.facts.shape, args), kind_of(program, rule, args)
    )


def kind_of(program: Program, rule: Rule, args: Args, position: int = 0) -> Kind:
    """The kind of a result, as the table says it."""
    said = rule.facts.kind(position)
    dtype = args.get("dtype")
    asked = dtype is not None and literal(dtype) is not None
    known = None if dtype is None else program.dtype(dtype)
    if known is not None:
        return known
    if said in args:
        kind = args[said].kind
    else:
        kind = FIXED.get(said) or _of_arguments(program, rule, args, said)
    # Of a dtype that is not known no more is known than that it may be real.
    return "real" if asked and kind in ("int", "bool") else kind


def _of_arguments(program: Program, rule: Rule, args: Args, said: str) -> Kind:
    """The kind that arguments make together: `said` is "float", "kept", "number" or "magnitude"."""
    everything = list(tensors(args.values()))
    if any(item.kind == "complex" for item in everything) or _complex_number(args):
        return "real" if said == "magnitude" else "complex"
    apart = rule.facts.nondiff
    given = tensors(item for name, item in args.items() if name not in apart)
    kinds = {item.kind for item in list(given) or everything}
    moves = rule.category in MOVING  # its numbers are places, not elements
    if said == "float" or "real" in kinds or not kinds:
        return "real"
    if not moves and _real_number(program, args):
        return "real"
    return "bool" if said != "number" and kinds == {"bool"} else "int"


def _real_number(program: Program, args: Args) -> bool:
    """Whether a Python float is among the arguments, or a value that may be one."""
    plain = (item for item in args.values() if not item.is_tensor)
    return any(
        isinstance(value := literal(item), float)
        or (value is UNKNOWN and not is_int(program, item))
        for item in plain
    )


def _complex_number(args: Args) -> bool:
    return any(
        item.rule in ("const", "static", "python") and is_complex(item)
        for item in args.values()
    )
