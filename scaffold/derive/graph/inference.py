"""The shape and the kind of a primitive's result.

In: a rule and the arguments of each parameter. Out: `Inferred`. Invariant: what is not known for sure is not said.
"""

from collections.abc import Mapping
from typing import NamedTuple

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import UNKNOWN, Kind, Op, Program, literal, tensors
from scaffold.derive.graph.shape_rules import SHAPES, Args, dim_of, dims_of, loss_shape
from scaffold.derive.graph.shapes import SCALAR, Shape
from scaffold.derive.graph.static_values import is_complex, is_int
from scaffold.derive.rules.table import Rule
from scaffold.primitives.facts import MOVING

SAME = frozenset(
    {"floor", "ceil", "round", "trunc", "sign", "sgn", "detach", "zeros_like"}
    | {"ones_like", "argsort", "rand_like", "randn_like", "empty_like", "full_like"}
    | {"bernoulli", "logical_not", "long", "int", "bitwise_not", "frac", "heaviside"}
)
TO_BOOL = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "any", "all"}
    | {"logical_and", "logical_or", "logical_not", "logical_xor", "signbit", "bool"}
    | {"isclose", "isneginf", "isposinf"}
)
BITWISE = frozenset({"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"})
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
    return Inferred(_shape(program, rule, args), kind_of(program, rule, args))


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
        item.rule in ("const", "static") and is_complex(item) for item in args.values()
    )


def _shape(program: Program, rule: Rule, args: Args) -> Shape | None:
    if rule.op in SHAPES:
        return SHAPES[rule.op](program, args)
    x = args.get("x") or args.get("input") or next(tensors(args.values()), None)
    if x is None:
        return None
    if rule.category == "loss":
        return loss_shape(program, args)
    if rule.category in ("elementwise", "backward"):
        return shapes.broadcast(*(item.shape for item in tensors(args.values())))
    along = rule.category == "constant" and "dim" in args and "keepdim" in args
    if rule.category == "reduction" or along:
        return reduced_shape(x, args)
    if rule.category == "same_shape":
        return x.shape
    if (
        rule.category == "constant"
        and len(list(tensors(args.values()))) == 1
        and rule.op not in BITWISE
    ):
        same = rule.op in SAME or "dim" not in args and rule.op in TO_BOOL
        return x.shape if same else None
    if rule.category == "constant" and rule.op in TO_BOOL | BITWISE:
        return shapes.broadcast(*(item.shape for item in tensors(args.values())))
    return None


def reduced_shape(x: Op, args: Args) -> Shape | None:
    """The shape that a reduction leaves."""
    keepdim = literal(args["keepdim"]) if "keepdim" in args else False
    if not isinstance(keepdim, bool):
        return None
    return shapes.reduced(x.shape, dims_of(args.get("dim")), keepdim)


__all__ = ["Inferred", "dim_of", "dims_of", "infer", "reduced_shape"]
