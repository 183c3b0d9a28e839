"""Shapes of results whose sizes have to be counted: views, slices, padding, tensors made of sizes.

In: the arguments of a rule by parameter, or of a call that makes a tensor. Out: a shape, or None for one that is not known.
Invariant: what is said holds in every call that PyTorch accepts.
"""

import math
from collections.abc import Mapping, Sequence

from scaffold.derive.vjp import shapes
from scaffold.derive.vjp.ir import Op, Program, literal, tensors
from scaffold.derive.vjp.shapes import SCALAR, Dim, Shape, is_lead
from scaffold.formula import Node

Args = Mapping[str, Op]


def size_left(dims: Sequence[Dim], sizes: Sequence[Dim]) -> Dim | None:
    """The size that `-1` stands for beside others; `dims` are those of the tensor."""
    if any(map(is_lead, dims)):
        return None
    names = [dim for dim in dims if isinstance(dim, str)]
    for size in sizes:
        if isinstance(size, str):
            if size not in names:
                return None
            names.remove(size)
    whole, part = (
        math.prod(dim for dim in several if isinstance(dim, int))
        for several in (dims, sizes)
    )
    if not part or whole % part:
        return None
    left = whole // part
    if not names:
        return left
    return names[0] if len(names) == 1 and left == 1 else None


def slice_size(size: Dim, start: Op, end: Op, step: Op) -> Dim:
    """How long a slice of a dim is: a number, or a name for it."""
    bounds = [literal(item) for item in (start, end, step)]
    plain = [item for item in bounds if item is None or type(item) is int]
    if isinstance(size, int) and len(plain) == 3 and (bounds[2] is None or plain[2]):
        return len(range(size)[slice(*plain)])
    return f"?{size}[{start.serial}:{end.serial}:{step.serial}]"


def range_shape(program: Program, args: Sequence[Op]) -> Shape | None:
    """Of `torch.arange`: as long as its end, less its start."""
    if len(args) == 3 and literal(args[2]) == 1:
        args = args[:2]
    if len(args) == 1:
        return Shape((program.size_of(args[0]),))
    if len(args) != 2 or type(start := literal(args[0])) is not int:
        return None
    if start == 0:
        return Shape((program.size_of(args[1]),))
    size, more = program.offsets.get(args[1], (None, 0))
    return Shape((program.size_of(size),)) if size and more == start else None


def made_shape(program: Program, name: str, args: Sequence[Op]) -> Shape | None:
    """Of a tensor that a call of torch's makes of Python values."""
    if name == "arange":
        return range_shape(program, args)
    if name == "linspace" and len(args) == 3:
        return Shape((program.size_of(args[2]),))
    if name == "eye" and args:
        return Shape((program.size_of(args[0]), program.size_of(args[-1])))
    if name == "tensor" and args:
        return _nested(args[0])
    if name == "full" and args:
        return sizes_shape(program, args[:1])
    if name in ("ones", "zeros", "empty") and args:
        return sizes_shape(program, args)
    return None


def _nested(value: Op) -> Shape | None:
    """Of a number, or of a list of numbers."""
    if value.rule == "list":
        inner = {_nested(item) for item in value.args}
        return Shape((len(value.args),)) if inner == {SCALAR} else None
    plain = value.rule == "const" or value.rule == "static" and _is_number(value)
    return SCALAR if plain else None


def _is_number(value: Op) -> bool:
    """Whether a Python value is sure to be one number: it is computed."""
    return isinstance(value.data, Node) and value.data.kind in ("binary", "unary")


def sizes_shape(program: Program, args: Sequence[Op]) -> Shape | None:
    """The shape that sizes are, one by one or as one tuple."""
    first = args[0]
    if first.rule == "shape" and isinstance(first.data, Shape):
        return first.data
    sizes = first.args if first.rule == "list" else args
    if all(item.rule in ("const", "size", "static") for item in sizes):
        return Shape(tuple(map(program.size_of, sizes)))
    return None


def new(program: Program, args: Args) -> Shape | None:
    """Of `x.new_zeros(2, 3)`."""
    return sizes_shape(program, (args["size"],))


def one_hot(program: Program, args: Args) -> Shape | None:
    """One dim more, as long as there are classes."""
    dims, classes = args["index"].shape.dims, args["num_classes"]
    if dims is None or literal(classes) == -1:
        return None
    return Shape((*dims, program.size_of(classes)))


def compared(program: Program, args: Args) -> Shape | None:
    """Of a similarity or a distance along one dim."""
    both = shapes.broadcast(*(item.shape for item in tensors(args.values())))
    dim = literal(args["dim"]) if "dim" in args else -1
    keepdim = literal(args["keepdim"]) if "keepdim" in args else False
    if not isinstance(dim, int) or not isinstance(keepdim, bool):
        return None
    return shapes.reduced(both, (dim,), keepdim)


def together(program: Program, args: Args) -> Shape | None:
    """All tensors broadcast."""
    return shapes.broadcast(*(item.shape for item in tensors(args.values())))


def padded(program: Program, args: Args) -> Shape | None:
    """The last dims, each longer by what is before and behind it."""
    dims, pad = args["x"].shape.dims, literal(args["pad"])
    if dims is None or not isinstance(pad, tuple):
        return None
    whole = all(type(item) is int for item in pad)
    if not whole or len(pad) // 2 > args["x"].shape.trailing:
        return None
    done = list(dims)
    for at in range(len(pad) // 2):
        more, dim = pad[2 * at] + pad[2 * at + 1], done[-1 - at]
        if more:
            done[-1 - at] = dim + more if isinstance(dim, int) else f"?{dim}+{more}"
    return Shape(tuple(done))


def flattened(program: Program, args: Args) -> Shape | None:
    """One dim for several, which has no name unless all but one are 1."""
    dims, shape = args["x"].shape.dims, args["x"].shape
    ends = [literal(args[name]) for name in ("start_dim", "end_dim")]
    if dims is None or shape.lead is not None or not dims:
        return None
    if not all(isinstance(end, int) for end in ends):
        return None
    first, last = (int(str(end)) % len(dims) for end in ends)
    size = size_left(dims[first : last + 1], ())
    if size is None:
        size = "?" + "*".join(str(dim) for dim in dims[first : last + 1])
    return Shape((*dims[:first], size, *dims[last + 1 :]))


def with_diagonal(program: Program, args: Args) -> Shape | None:
    """Of `diag_embed`: the last dim twice."""
    dims = args["x"].shape.dims
    plain = literal(args["offset"]) == 0 and args["x"].shape.trailing > 0
    ends = {literal(args["dim1"]), literal(args["dim2"])} == {-2, -1}
    return Shape((*dims, dims[-1])) if dims and plain and ends else None
