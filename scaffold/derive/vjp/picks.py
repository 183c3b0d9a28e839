"""The gradients of indexing: what was picked goes back to its place in a tensor of zeros.

In: an op and the cotangent of its result. Out: pairs of an argument and its gradient; None for an index that is not one of those
here. Invariant: what is picked twice is summed.
"""

from scaffold.derive.vjp.ir import Op, literal
from scaffold.derive.vjp.make import Maker
from scaffold.derive.vjp.shapes import Shape

Pairs = list[tuple[Op, Op]]


def getitem(make: Maker, op: Op, g: Op) -> Pairs | None:
    x = op.args[0]
    program = make.program
    if op.rule == "narrow":
        dim, start, length = op.args[1:]
        if not isinstance(first := literal(start), int) or first < 0:
            return None
        bounds = (start, make("add", start, length), make.const(None))
        data = program.op(
            "unsliced", (g, dim, *bounds), x.shape, kind=g.kind, shape=x.shape
        )
        return [(x, data)]
    if op.rule == "slice":
        data = program.op(
            "unsliced", (g, *op.args[1:]), x.shape, kind=g.kind, shape=x.shape
        )
        return [(x, data)]
    if op.rule == "select":
        into = make.zeros(g, x.shape)
        whole = make("select_scatter", into, g, *op.args[1:])
        return [(x, make.program.shaped(whole, x.shape))]
    return _of_index(make, op, g)


def _of_index(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Of an index with tensors or lists in it."""
    x, *parts = op.args
    program = make.program
    if any(not part.is_tensor for part in parts):
        return _of_one_part(make, op, g) or _of_last_parts(make, op, g)
    accumulate = make.const(any(part.kind != "bool" for part in parts))
    indices = program.op("list", parts)
    whole = make("index_put", make.zeros(g, x.shape), indices, g, accumulate)
    return [(x, program.shaped(whole, x.shape))]


def _of_one_part(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Of `x[:, :, index]`, with whole dims before and behind."""
    x, *parts = op.args
    places = [at for at, part in enumerate(parts) if part.rule != "range"]
    if len(places) != 1 or not all(
        part.rule != "range" or all(literal(item) is None for item in part.args)
        for part in parts
    ):
        return None
    (at,) = places
    index, rank = _as_tensor(make, parts[at], g), parts[at].shape.rank
    if parts[at].rule == "list":
        rank = 1
    if index is None or rank is None or parts[at].kind == "bool":
        return None
    if rank == 0:
        index, g = make("unsqueeze", index, make.const(0)), make(
            "unsqueeze", g, make.const(at)
        )
    elif rank > 1:
        ends = (make.const(at), make.const(at + rank - 1))
        index, g = make("flatten", index), make("flatten", g, *ends)
    into = make.zeros(g, x.shape)
    added = make("index_add", into, make.const(at), index, g)
    return [(x, make.program.shaped(added, x.shape))]


def _of_last_parts(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Of `x[:, i, j]`, whose last dims are all picked together: these go first, as `index_put` wants them."""
    x, *parts = op.args
    before = [part for part in parts if part.rule == "range"]
    indices, count = parts[len(before) :], len(before)
    dims = x.shape.dims
    if (
        dims is None
        or x.shape.rank != len(parts)
        or any(literal(item) is not None for part in before for item in part.args)
        or not all(part.is_tensor and part.kind == "int" for part in indices)
    ):
        return None
    first, last = tuple(range(count)), tuple(range(-count, 0))
    ends = [make.const(item if count > 1 else item[0]) for item in (first, last)]
    into = make.zeros(g, Shape((*dims[count:], *dims[:count])))
    listed = make.program.op("list", indices)
    added = make("index_put", into, listed, make("movedim", g, *ends), make.const(True))
    back = make("movedim", added, *reversed(ends))
    return [(x, make.program.shaped(back, x.shape))]


def _as_tensor(make: Maker, part: Op, g: Op) -> Op | None:
    """The tensor that an index is."""
    if part.is_tensor:
        return part
    values = literal(part)
    if not isinstance(values, tuple) or not all(type(item) is int for item in values):
        return None
    return make.program.op("indices", (part, g), None, kind="int")
