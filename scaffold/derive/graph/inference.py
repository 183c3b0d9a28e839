"""The shape and the kind of a primitive's result.

In: a rule and the arguments of each parameter. Out: `Inferred`. Invariant: what is not known for sure is not said.
"""

from typing import NamedTuple

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import UNKNOWN, Kind, Op, Program, literal, tensors
from scaffold.derive.graph.shape_rules import SHAPES, Args, dim_of, dims_of, loss_shape
from scaffold.derive.graph.shapes import SCALAR, Shape
from scaffold.derive.graph.static_values import is_complex, is_int
from scaffold.derive.rules.table import Rule

GROUPS = frozenset(
    {"chunk", "split", "unbind", "tensor_split", "meshgrid", "broadcast_tensors"}
)
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
TO_INT = frozenset(
    {"argmax", "argmin", "argsort", "one_hot", "searchsorted", "bucketize", "long"}
    | {"count_nonzero", "int", "bincount"}
)
TO_REAL = frozenset(
    {
        "abs",
        "angle",
        "angle_complex",
        "real",
        "imag",
        "view_as_real",
        "float",
        "double",
        "half",
        "dist",
    }
    | {"bfloat16", "norm", "vector_norm", "linalg_norm", "matrix_norm", "var", "cdist"}
    | {"var_unbiased", "std", "std_unbiased", "irfft", "pairwise_distance"}
)
TO_COMPLEX = frozenset(
    {"view_as_complex", "complex", "polar", "fft", "ifft", "fftn", "ifftn", "fft2"}
    | {"ifft2", "rfft"}
)
KEEPS_INT = frozenset(
    {"add", "sub", "mul", "neg", "abs", "sum", "prod", "floor", "ceil", "round", "sign"}
    | {"maximum", "minimum", "remainder", "floor_divide", "clamp", "square", "matmul"}
    | {"where", "amax", "amin", "cumsum", "cumprod", "masked_fill", "bitwise_not"}
    | {"bitwise_and", "bitwise_or", "bitwise_xor", "pow", "zeros_like", "ones_like"}
)
INDICES = frozenset({"indices", "index"})
BITWISE = frozenset({"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"})
VIEWS = frozenset({"view", "structural", "indexing"})


class Inferred(NamedTuple):
    """What is known of a result."""

    shape: Shape | None
    kind: Kind


def infer(program: Program, rule: Rule, args: Args) -> Inferred:
    """The shape and kind of what a rule gives for arguments."""
    if rule.results != ("result",) or rule.op in GROUPS:
        return Inferred(SCALAR, "group")
    kind = _kind(program, rule, args)
    if rule.op.endswith("_like") and literal(args["dtype"]) is not None:
        kind = program.dtypes.get(args["dtype"], "real")
    if rule.op in ("to", "type"):
        kind = program.dtypes.get(args["dtype"], args["x"].kind)
        if args["dtype"] not in program.dtypes and kind in ("int", "bool"):
            kind = "real"  # it may be, and no more is known
    return Inferred(_shape(program, rule, args), kind)


def _kind(program: Program, rule: Rule, args: Args) -> Kind:
    kinds = {item.kind for item in tensors(args.values())}
    if rule.op in TO_BOOL:
        return "bool"
    if rule.op in TO_INT:
        return "int"
    if rule.op in TO_REAL:
        return "real"
    if rule.op in TO_COMPLEX or "complex" in kinds or _complex_number(args):
        return "complex"
    if rule.op in ("where", "gather", "index_select", "embedding", "take_along_dim"):
        first = {"where": "c"}.get(rule.op)
        names = [name for name in args if name not in (first, "index", "condition")]
        kinds = {item.kind for item in tensors(args[name] for name in names)}
    if "real" in kinds or not kinds:
        return "real"
    keeps = rule.op in KEEPS_INT or rule.category in VIEWS
    if kinds == {"bool"} and (rule.op in BITWISE or rule.category in VIEWS):
        return "bool"
    return "int" if keeps and not _real_number(program, args) else "real"


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
