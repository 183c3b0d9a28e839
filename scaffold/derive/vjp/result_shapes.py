"""Shapes of results that are neither those of the arguments nor their broadcast.

In: the arguments of a rule by parameter. Out: a shape, or None for one that is not known. Invariant: what is said holds in
every call that PyTorch accepts.
"""

from collections.abc import Callable, Mapping

from scaffold.derive.vjp import counted_shapes, joint_shapes, shapes, window_shapes
from scaffold.derive.vjp.counted_shapes import size_left
from scaffold.derive.vjp.ir import Op, Program, literal, tensors
from scaffold.derive.vjp.loss_shapes import class_loss
from scaffold.derive.vjp.shapes import SCALAR, Shape

Args = Mapping[str, Op]
Infer = Callable[[Program, Args], Shape | None]


def dims_of(dim: Op | None) -> tuple[int | str, ...] | None:
    """The dims that an argument names; None for all. One that is not written out goes by a name of its own."""
    value = None if dim is None else literal(dim)
    if value is None:
        return None
    if isinstance(value, int):
        return (value,)
    if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
        return value
    return (f"@{dim.serial}",) if dim else None


def dim_of(dim: Op) -> int | str:
    """The one dim that an argument names."""
    value = literal(dim)
    return value if isinstance(value, int) else f"@{dim.serial}"


def _ints(args: Args, *names: str) -> tuple[int, ...] | None:
    values = [literal(args[name]) for name in names if name in args]
    whole = all(isinstance(value, int) for value in values)
    return tuple(values) if whole and len(values) == len(names) else None  # type: ignore[arg-type]


def _transposed(program: Program, args: Args) -> Shape | None:
    names = [name for name in args if name != "x"]
    dims = _ints(args, *names)
    return shapes.transposed(args["x"].shape, *dims[:2]) if dims else None


def _swapped(program: Program, args: Args) -> Shape | None:
    x = args["x"].shape
    return x if x.rank in (0, 1) else shapes.transposed(x, -2, -1)


def _reversed(program: Program, args: Args) -> Shape | None:
    x = args["x"].shape
    if x.dims is not None and x.rank is not None:
        return Shape(x.dims[::-1])
    return None


def _permuted(program: Program, args: Args) -> Shape | None:
    dims = literal(args["dims"])
    return shapes.permuted(args["x"].shape, dims) if isinstance(dims, tuple) else None


def _unsqueezed(program: Program, args: Args) -> Shape | None:
    return shapes.unsqueezed(args["x"].shape, dim_of(args["dim"]))


def _squeezed(program: Program, args: Args) -> Shape | None:
    dims = dims_of(args["dim"]) if "dim" in args else None
    if not dims:
        return None
    shape = args["x"].shape
    for dim in sorted(dims, reverse=isinstance(dims[0], int) and dims[0] >= 0):
        shape = shapes.squeezed(shape, dim)
    return shape


def sized(program: Program, shape: Op) -> Shape | None:
    """The shape that a static value is, as `reshape` takes it."""
    if shape.rule == "shape" and isinstance(shape.data, Shape):
        return shape.data
    if shape.rule != "list" or any(dim.rule == "starred" for dim in shape.args):
        return None
    if any(literal(dim) == -1 for dim in shape.args):
        return Shape(
            tuple(
                f"?-{shape.serial}" if literal(dim) == -1 else program.size_of(dim)
                for dim in shape.args
            )
        )
    return Shape(tuple(program.size_of(dim) for dim in shape.args))


def _embedded(program: Program, args: Args) -> Shape | None:
    index, weight = args["index"].shape, args["weight"].shape
    if index.dims is None or weight.dims is None or weight.rank != 2:
        return None
    return Shape((*index.dims, weight.dims[1]))


def _pairs(program: Program, args: Args) -> Shape | None:
    x, y = (item.shape.dims for item in tensors(args.values()))
    if x is None or y is None or len(x) < 2 or x[:-2] != y[:-2]:
        return None
    return Shape((*x[:-1], y[-2]))


def _sizes(args: Args) -> Op:
    """The sizes that a view is asked for, whatever they are called."""
    return next(args[name] for name in ("shape", "sizes", "size") if name in args)


def _reshaped(program: Program, args: Args) -> Shape | None:
    shape = sized(program, _sizes(args))
    dims, sizes = args["x"].shape.dims, _sizes(args)
    if shape is None or shape.dims is None or dims is None or sizes.rule != "list":
        return shape
    given = [program.size_of(item) for item in sizes.args if literal(item) != -1]
    rest = size_left(dims, given)
    if rest is None:
        return shape
    return Shape(
        tuple(rest if str(dim).startswith("?-") else dim for dim in shape.dims)
    )


def _expanded(program: Program, args: Args) -> Shape | None:
    whole = sized(program, _sizes(args))
    if whole is None or whole.dims is None or _sizes(args).rule != "list":
        return whole
    dims, left = args["x"].shape.dims or (), len(whole.dims) - args["x"].shape.trailing
    kept = [at for at, dim in enumerate(_sizes(args).args) if literal(dim) == -1]
    if any(at < left for at in kept):
        return None
    done = list(whole.dims)
    for at in kept:
        done[at] = dims[at - len(done)]
    return Shape(tuple(done))


def _matmul(program: Program, args: Args) -> Shape | None:
    left, right = (item.shape for item in tensors(args.values()))
    found = shapes.multiplied(left, right)
    return found or shapes.unknown("product", left, right)


def _vector(program: Program, args: Args) -> Shape | None:
    """Of `torch.mv`, which takes a matrix and a vector."""
    x, y = (item.shape for item in tensors(args.values()))
    return shapes.multiplied(x, y) or shapes.unknown("rank", 1, ("mv", x, y))


def _attention(program: Program, args: Args) -> Shape | None:
    key = shapes.transposed(args["key"].shape, -2, -1)
    scores = shapes.multiplied(args["query"].shape, key)
    return None if scores is None else shapes.multiplied(scores, args["value"].shape)


def _linear(program: Program, args: Args) -> Shape | None:
    weight = shapes.transposed(args["weight"].shape, -2, -1)
    x = args.get("x") or args["input"]
    return shapes.multiplied(x.shape, weight)


def _outer(program: Program, args: Args) -> Shape | None:
    one, two = (item.shape for item in tensors(args.values()))
    if one.dims is None or two.dims is None or one.rank != 1 or two.rank != 1:
        return None
    return Shape((*one.dims, *two.dims))


def _without_matrix(program: Program, args: Args) -> Shape | None:
    return shapes.reduced(args["x"].shape, (-2, -1), False)


def _of(name: str) -> Infer:
    return lambda program, args: args[name].shape if name in args else None


def _scalar(program: Program, args: Args) -> Shape | None:
    return SCALAR


def _solved(program: Program, args: Args) -> Shape | None:
    left, right = (item.shape for item in list(tensors(args.values()))[:2])
    if left.rank == 2 and right.rank in (1, 2):
        return right
    if joint_shapes.as_many_dims(left, right) and left.dims and right.dims:
        same = left.dims[:-2] == right.dims[:-2]
        return right if same else None
    return None


def _selected(program: Program, args: Args) -> Shape | None:
    """`select`: one dim is gone."""
    dims = _ints(args, "dim")
    return shapes.reduced(args["x"].shape, dims, False) if dims else None


def _indexed(program: Program, args: Args) -> Shape | None:
    """`index_select`: one dim becomes as long as the index."""
    dims, x, index = _ints(args, "dim"), args["x"].shape, args["index"].shape
    at = shapes.position(x, dims[0]) if dims else None
    if at is None or x.dims is None or index.dims is None or index.rank != 1:
        return None
    return Shape((*x.dims[:at], index.dims[0], *x.dims[at + 1 :]))


def _along(program: Program, args: Args) -> Shape | None:
    """`take_along_dim`: both shapes broadcast, but for the dim."""
    x, index = args["x"].shape, args["indices"].shape
    if literal(args["dim"]) is None:
        return index if x.rank == index.rank == 1 else None
    same = index.dims is not None and 1 not in index.dims and x.rank == index.rank
    return index if same else None


AS_THEIR_FIRST = frozenset(
    {"scatter", "scatter_add", "scatter_reduce", "scatter_mean", "scatter_extreme"}
    | {
        "index_add",
        "index_fill",
        "index_copy",
        "index_put",
        "select_scatter",
        "slice_scatter",
    }
    | {"diagonal_scatter", "inv", "cholesky", "prelu"}
)
SHAPES: dict[str, Infer] = {
    "transpose": _transposed,
    "t": _swapped,
    "mT": _swapped,
    "mH": _swapped,
    "H": _swapped,
    "T": _reversed,
    "permute": _permuted,
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "reshape": _reshaped,
    "view": _reshaped,
    "expand": _expanded,
    "mv": _vector,
    "scaled_dot_product_attention": _attention,
    "broadcast_to": _expanded,
    "expand_as": _of("other"),
    "view_as": _of("other"),
    "matmul": _matmul,
    "linear": _linear,
    "outer": _outer,
    "gather": _of("index"),
    "take_along_dim": _along,
    "trace": _scalar,
    "mm": _matmul,
    "bmm": _matmul,
    "nll_loss": class_loss,
    "cross_entropy": class_loss,
    "dot": _scalar,
    "det": _without_matrix,
    "logdet": _without_matrix,
    "solve": _solved,
    "addmm": joint_shapes.added,
    "baddbmm": joint_shapes.added,
    "new_zeros": counted_shapes.new,
    "new_ones": counted_shapes.new,
    "new_full": counted_shapes.new,
    "one_hot": counted_shapes.one_hot,
    "heaviside": counted_shapes.together,
    "cosine_similarity": counted_shapes.compared,
    "pairwise_distance": counted_shapes.compared,
    "vecdot": counted_shapes.compared,
    "cdist": _pairs,
    "cross": counted_shapes.together,
    "pad": counted_shapes.padded,
    "flatten": counted_shapes.flattened,
    "diag_embed": counted_shapes.with_diagonal,
    "stack": joint_shapes.stacked,
    "diagonal": joint_shapes.diagonal,
    "cat": joint_shapes.joined,
    "einsum": joint_shapes.einsum,
    "select": _selected,
    "index_select": _indexed,
    "embedding": _embedded,
    **dict.fromkeys(AS_THEIR_FIRST, _of("x")),
    **window_shapes.SHAPES,
    "masked_select": lambda program, args: None,
}
