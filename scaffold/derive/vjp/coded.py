"""Gradients that depend on ranks, equations or indices, and so are code rather than formulas.

In: an op and the cotangent of its result. Out: pairs of an argument and its gradient, which the caller sums to the
argument's shape. Invariant: what cannot be told from the shapes falls back on autograd of the one call.
"""

from collections.abc import Callable

from scaffold.derive.vjp import indexing, shapes
from scaffold.derive.vjp.attention import attention
from scaffold.derive.vjp.builders import Builders
from scaffold.derive.vjp.einsums import einsum
from scaffold.derive.vjp.ir import Kind, Op, literal
from scaffold.derive.vjp.joint_shapes import as_many_dims
from scaffold.derive.vjp.make import Maker
from scaffold.derive.vjp.picks import getitem
from scaffold.derive.vjp.ranks import as_matrix, unless_vector
from scaffold.derive.vjp.result_shapes import dim_of
from scaffold.derive.vjp.shapes import SCALAR, Shape, is_lead

Pairs = list[tuple[Op, Op]]
Coded = Callable[[Maker, Op, Op], Pairs | None]


def matmul(make: Maker, op: Op, g: Op) -> Pairs | None:
    x, y = op.args
    if y.shape.rank == 1:
        return _by_vector(make, x, y, g)
    if x.shape.rank == 1 and y.shape.least > 1:
        return _of_vector(make, x, y, g)
    if y.shape.rank == 2 and x.shape.rank != 2:
        left = make("matmul", g, make("mH", y))
        return [(x, left), (y, _contracted(make, make("conj", x), g))]
    wide = as_matrix(make, as_matrix(make, g, y, -1), x, -2)
    rows, columns = as_matrix(make, x, x, -2), as_matrix(make, y, y, -1)
    left = make("matmul", wide, make("mH", columns))
    right = make("matmul", make("mH", rows), wide)
    if columns is not y:
        narrow = make("squeeze", right, make.const(-1))
        right = unless_vector(make.program, right, narrow, y)
    return [(x, left), (y, right)]


def _by_vector(make: Maker, x: Op, y: Op, g: Op) -> Pairs:
    """Of the product with a vector."""
    if x.shape.rank == 1:
        of_x, of_y = make("conj", y), make("conj", x)
        return [(x, make("mul", g, of_x)), (y, make("mul", g, of_y))]
    wide = make("unsqueeze", g, make.const(-1))
    if x.shape.rank == 2:
        other = make("matmul", make("mH", x), g)
    else:
        other = make("mul", wide, make("conj", x))
    return [(x, make("mul", wide, make("conj", y))), (y, other)]


def _of_vector(make: Maker, x: Op, y: Op, g: Op) -> Pairs:
    """Of the product of a vector with matrices."""
    minus, turned = make.const(-1), make("conj", y)
    column = make("unsqueeze", make("conj", x), minus)
    row = make("unsqueeze", g, make.const(-2))
    if y.shape.rank == 2:
        of_x = make("matmul", turned, g)
    else:
        of_x = make("matmul", turned, make("unsqueeze", g, minus))
        of_x = make("squeeze", of_x, minus)
    return [(x, of_x), (y, make("mul", column, row))]


def _contracted(make: Maker, x: Op, g: Op) -> Op:
    """The product of two tensors over all dims but their last."""
    program = make.program
    kind: Kind = "complex" if "complex" in (x.kind, g.kind) else "real"
    shape = None
    if x.shape.trailing and g.shape.trailing and x.shape.dims and g.shape.dims:
        shape = SCALAR._replace(dims=(x.shape.dims[-1], g.shape.dims[-1]))
    lead = g.shape
    if lead.dims is not None:  # as many dims, whatever their sizes
        lead = Shape(tuple(dim if is_lead(dim) else 1 for dim in lead.dims))
    dims = program.op("lead_dims", (), lead)
    return program.op("contracted", (x, g, dims, dims), None, kind=kind, shape=shape)


def linear(make: Maker, op: Op, g: Op) -> Pairs | None:
    x, weight, bias = op.args
    if (
        weight.shape.rank not in (2, None)
        or x.shape.rank == 1
        and weight.shape.rank is None
    ):
        return None
    if x.shape.rank == 2:
        of_weight = make("matmul", make("mT", g), make("conj", x))
    else:
        of_weight = _contracted(make, g, make("conj", x))
    pairs = [(x, make("matmul", g, make("conj", weight))), (weight, of_weight)]
    return [*pairs, (bias, g)] if bias.is_tensor else pairs


def cat(make: Maker, op: Op, g: Op) -> Pairs | None:
    parts, dim = op.args
    at = literal(dim)
    if parts.rule != "list" or not isinstance(at, int):
        return None
    build, none = Builders(make), make.const(None)
    start, pairs = none, []
    for position, part in enumerate(parts.args):
        last = position == len(parts.args) - 1
        size = build.size(part, dim)
        end = none if last else size if start is none else make("add", start, size)
        if part.active:
            bounds = (start, end, none)
            piece = indexing.sliced(make.applier, g, at, bounds, part.shape)
            pairs.append((part, piece))
        start = end
    return pairs


def stack(make: Maker, op: Op, g: Op) -> Pairs | None:
    parts, dim = op.args
    at = literal(dim)
    if parts.rule != "list" or not isinstance(at, int):
        return None
    return [
        (part, _selected(make, g, at, position, part))
        for position, part in enumerate(parts.args)
        if part.active
    ]


def _selected(make: Maker, g: Op, at: int, position: int, part: Op) -> Op:
    """One part of a stack's gradient; the same for all where that was spread over them."""
    if g.rule == "expanded":
        inner = g.args[0]
        if inner.shape == SCALAR:
            return make.expanded(inner, part.shape)
        if inner.rule == "unsqueeze" and literal(inner.args[1]) == at:
            return make.expanded(inner.args[0], part.shape)
    return indexing.selected(make.applier, g, at, make.const(position), part.shape)


def slice_scatter(make: Maker, op: Op, g: Op) -> Pairs | None:
    x, src, dim, start, end, step = op.args
    at = literal(dim)
    if not isinstance(at, int):
        return None
    left = make("slice_scatter", g, make.zeros(g, src.shape), dim, start, end, step)
    by = make.const(None) if literal(step) == 1 else step
    bounds = (start, end, by)
    return [(x, left), (src, indexing.sliced(make.applier, g, at, bounds, src.shape))]


COUNTED = frozenset({"argsort", "argmax", "argmin", "item"})  # indices from 0


def take_along_dim(make: Maker, op: Op, g: Op) -> Pairs | None:
    x, index, dim = op.args
    at = shapes.position(x.shape, dim_of(dim))
    counted = index.rule in COUNTED or literal(dim) is None
    if literal(dim) is None and x.shape.rank == index.shape.rank == 1:
        at, dim = 0, make.const(0)
    if at is None or x.shape.dims is None or index.shape.dims is None:
        return None
    rest = [(*dims[:at], *dims[at + 1 :]) for dims in (x.shape.dims, index.shape.dims)]
    if rest[0] != rest[1]:
        return None  # one may have been broadcast
    if not counted:  # an index from the end, which no scatter takes
        size = Builders(make).size(x, dim)
        index = make.applier.named("remainder", index, size)
    if x.shape.rank == 1:
        return [(x, make("index_add", make.zeros(g, x.shape), dim, index, g))]
    return [(x, make("scatter_add", make.zeros(g, x.shape), dim, index, g))]


def solve(make: Maker, op: Op, g: Op) -> Pairs | None:
    a, b = op.args
    vector = a.shape.rank == 2 and b.shape.rank == 1
    if not vector and not as_many_dims(a.shape, b.shape):
        return None  # b may be one vector for each matrix
    of_b = make("solve", make("mH", a), g)
    if vector:
        of_a = make("neg", make("outer", of_b, make("conj", op)))
    else:
        of_a = make("neg", make("matmul", of_b, make("mH", op)))
    return [(a, of_a), (b, of_b)]


CODED: dict[str, Coded] = {
    "matmul": matmul,
    "linear": linear,
    "cat": cat,
    "slice_scatter": slice_scatter,
    "stack": stack,
    "narrow": getitem,
    "slice": getitem,
    "select": getitem,
    "index": getitem,
    "einsum": einsum,
    "solve": solve,
    "take_along_dim": take_along_dim,
    "scaled_dot_product_attention": attention,
}
