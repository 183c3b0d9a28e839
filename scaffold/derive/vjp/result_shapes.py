"""Shapes of results that are neither those of the arguments nor their broadcast.

In: the arguments of a rule by parameter. Out: a shape, or None for one that is not known. Invariant: what is said holds in
every call that PyTorch accepts.
"""

import re
from collections.abc import Callable, Mapping

from scaffold.derive.vjp import shapes
from scaffold.derive.vjp.ir import Op, Program, literal, tensors
from scaffold.derive.vjp.shapes import SCALAR, Dim, Shape

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
    if shape.rule != "list":
        return None
    if any(literal(dim) == -1 for dim in shape.args):
        return Shape(
            tuple(
                f"?-{shape.serial}" if literal(dim) == -1 else program.size_of(dim)
                for dim in shape.args
            )
        )
    return Shape(tuple(program.size_of(dim) for dim in shape.args))


def _sizes(args: Args) -> Op:
    """The sizes that a view is asked for, whatever they are called."""
    return next(args[name] for name in ("shape", "sizes", "size") if name in args)


def _reshaped(program: Program, args: Args) -> Shape | None:
    shape = sized(program, _sizes(args))
    rest = _sizes_left(args["x"].shape, _sizes(args), program)
    if shape is None or shape.dims is None or rest is None:
        return shape
    return Shape(
        tuple(rest if str(dim).startswith("?-") else dim for dim in shape.dims)
    )


def _sizes_left(shape: Shape, sizes: Op, program: Program) -> Dim | None:
    """The size that `-1` stands for, where all others are sizes of the tensor."""
    if shape.dims is None or shape.lead is not None or sizes.rule != "list":
        return None
    left = [dim for dim in shape.dims if dim != 1]
    for item in sizes.args:
        dim = program.size_of(item) if literal(item) != -1 else 1
        if dim != 1 and dim not in left:
            return None
        if dim != 1:
            left.remove(dim)
    return left[0] if len(left) == 1 else 1 if not left else None


def _expanded(program: Program, args: Args) -> Shape | None:
    whole = sized(program, _sizes(args))
    if whole is None or whole.dims is None or _sizes(args).rule != "list":
        return whole
    if any(literal(dim) == -1 for dim in _sizes(args).args):
        return None
    return whole


def _matmul(program: Program, args: Args) -> Shape | None:
    left, right = tensors(args.values())
    return shapes.multiplied(left.shape, right.shape)


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


def loss_shape(program: Program, args: Args) -> Shape | None:
    """A scalar, or one loss for each element."""
    reduction = literal(args["reduction"])
    if reduction in ("mean", "sum", "batchmean"):
        return SCALAR
    if reduction != "none" or "weight" in args:
        return None
    return shapes.broadcast(*(item.shape for item in tensors(args.values())))


def _class_loss(program: Program, args: Args) -> Shape | None:
    return SCALAR if literal(args["reduction"]) in ("mean", "sum") else None


def _solved(program: Program, args: Args) -> Shape | None:
    left, right = list(tensors(args.values()))[:2]
    if left.shape.rank == 2 and right.shape.rank in (1, 2):
        return right.shape
    return None


def _stacked(program: Program, args: Args) -> Shape | None:
    parts = list(tensors(args.values()))
    dims = _ints(args, "dim")
    if not parts or not dims:
        return None
    first = parts[0].shape
    wide = shapes.unsqueezed(first, dims[0])
    at = shapes.position(wide, dims[0])
    if wide.dims is None or at is None:
        return shapes.unknown("unsqueezed", first, dims[0])
    return Shape((*wide.dims[:at], len(parts), *wide.dims[at + 1 :]))


def _indexed(program: Program, args: Args) -> Shape | None:
    """`index_select`: one dim becomes as long as the index."""
    dims, x, index = _ints(args, "dim"), args["x"].shape, args["index"].shape
    at = shapes.position(x, dims[0]) if dims else None
    if at is None or x.dims is None or index.dims is None or index.rank != 1:
        return None
    return Shape((*x.dims[:at], index.dims[0], *x.dims[at + 1 :]))


def _joined(program: Program, args: Args) -> Shape | None:
    """`cat`: two slices that make up a dim are that dim."""
    parts, dims = list(tensors(args.values())), _ints(args, "dim")
    if len(parts) != 2 or not dims:
        return None
    one, two = (part.shape for part in parts)
    at = shapes.position(one, dims[0])
    if (
        at is None
        or one.dims is None
        or two.dims is None
        or len(one.dims) != len(two.dims)
    ):
        return None
    if one.dims[:at] != two.dims[:at] or one.dims[at + 1 :] != two.dims[at + 1 :]:
        return None
    whole = _whole(str(one.dims[at]), str(two.dims[at]))
    return Shape((*one.dims[:at], whole, *one.dims[at + 1 :])) if whole else None


def _whole(one: str, two: str) -> str | None:
    """The size that `?D[1:2:1]` and `?D[2:1:1]` make up, where op 1 is None."""
    found = [re.fullmatch(r"\?(.+)\[(\d+):(\d+):(\d+)\]", item) for item in (one, two)]
    if found[0] is None or found[1] is None or found[0][1] != found[1][1]:
        return None
    (a, b, step), (c, d, other) = found[0].groups()[1:], found[1].groups()[1:]
    none = step
    halves = a == none == d and b == c or c == none == b and d == a
    return found[0][1] if halves and step == other else None


def _einsum(program: Program, args: Args) -> Shape | None:
    """Sizes by letter, where each has one."""
    equation, operands = literal(args["equation"]), args["operands"]
    if not isinstance(equation, str) or "->" not in equation:
        return None
    left, result = equation.replace(" ", "").split("->")
    sizes: dict[str, Dim] = {}
    leads: list[Shape] = []
    for letters, operand in zip(left.split(","), tensors((operands,)), strict=False):
        lead = _letter_sizes(letters, operand.shape, sizes)
        if lead is None:
            return None
        leads.append(lead)
    leading = shapes.broadcast(*leads)
    before, dots, after = result.partition("...")
    if leading.dims is None or leading.dims and not dots:
        return None
    ends = [tuple(sizes[item] for item in part) for part in (before, after)]
    return Shape((*ends[0], *leading.dims, *ends[1]))


def _letter_sizes(letters: str, shape: Shape, sizes: dict[str, Dim]) -> Shape | None:
    """Note the size of each letter of an operand; what its dots stand for, or None where that is not known."""
    before, dots, after = letters.partition("...")
    count = len(before) + len(after)
    if (
        shape.dims is None
        or count > len(shape.dims)
        or not dots
        and count < len(shape.dims)
    ):
        return None
    end = len(shape.dims) - len(after)
    first, last = shape.dims[: len(before)], shape.dims[end:]
    for letter, dim in zip(before + after, first + last, strict=True):
        if shapes.is_lead(dim) or dim == 1 or sizes.setdefault(letter, dim) != dim:
            return None
    return Shape(shape.dims[len(before) : end])


def _diagonal(program: Program, args: Args) -> Shape | None:
    """The main diagonal of a square matrix."""
    dims = args["x"].shape.dims
    plain = literal(args["offset"]) == 0 and literal(args["dim1"]) in (0, -2)
    square = dims is not None and len(dims) == 2 and dims[0] == dims[1]
    return (
        Shape(dims[:1])
        if dims and square and plain and args["x"].shape.lead is None
        else None
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
    "broadcast_to": _expanded,
    "expand_as": _of("other"),
    "view_as": _of("other"),
    "matmul": _matmul,
    "linear": _linear,
    "outer": _outer,
    "gather": _of("index"),
    "trace": _scalar,
    "mm": _matmul,
    "bmm": _matmul,
    "mv": _matmul,
    "nll_loss": _class_loss,
    "cross_entropy": _class_loss,
    "scatter": _of("x"),
    "scatter_add": _of("x"),
    "index_add": _of("x"),
    "index_fill": _of("x"),
    "index_copy": _of("x"),
    "index_put": _of("x"),
    "select_scatter": _of("x"),
    "diagonal_scatter": _of("x"),
    "dot": _scalar,
    "det": _without_matrix,
    "logdet": _without_matrix,
    "inv": _of("x"),
    "cholesky": _of("x"),
    "solve": _solved,
    "stack": _stacked,
    "diagonal": _diagonal,
    "cat": _joined,
    "einsum": _einsum,
    "index_select": _indexed,
    "masked_select": lambda program, args: None,
}
