"""What takes a tensor apart into a tuple, and what puts such a tuple together again.

In: an op of several results that are parts of its argument, as `chunk` and `unbind` make them. Out: how many parts there are, if that is
known before the call, and the tensor that a join of all of them is. Invariant: the same for any number of parts.
"""

from scaffold.derive.graph import shapes
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Op, literal


def are_parts(applier: Applier, op: Op) -> bool:
    """Whether several results are what a tensor was taken apart into along a dim, its last argument."""
    rule = applier.table.of_op(op.rule)
    return rule is not None and rule.results[0].startswith("*")


def are_single(op: Op) -> bool:
    """Whether each of the parts is at one place of the dim, as `unbind` has them."""
    return len(op.args) == 2


def count_of(applier: Applier, op: Op) -> int | None:
    """How many parts there are, where sizes and arguments tell."""
    if not are_parts(applier, op):
        return None
    x, dim, said = op.args[0], literal(op.args[-1]), literal(op.args[1])
    at = shapes.position(x.shape, dim) if isinstance(dim, int) else None
    whole = x.shape.dims[at] if at is not None and x.shape.dims else None
    if are_single(op):
        return whole if isinstance(whole, int) else None
    sized = op.rule == "split"  # the sizes are said, and not how many there are
    if sized and isinstance(said, tuple):
        return len(said)
    if type(said) is not int or said < 1 or not isinstance(whole, int) or whole < 1:
        return None
    if sized:
        return -(-whole // said)
    # Of 5 in 4 chunks there are 3: sizes of 2.
    return -(-whole // -(-whole // said)) if op.rule == "chunk" else None


def position_of(applier: Applier, op: Op, position: int) -> int | None:
    """A position from the first part, or that of the last one, whose place is known by where it ends; None for another."""
    if position >= 0:
        return position
    count = count_of(applier, op)
    if count is not None:
        return position + count if position + count >= 0 else None
    last = are_parts(applier, op) and (position == -1 or are_single(op))
    return position if last else None


def joined(applier: Applier, join: str, parts: Op, dim: Op) -> Op | None:
    """The tensor that all parts are together, without taking it apart: `torch.stack(x.unbind(1))` is `x.movedim(1, 0)`."""
    if not are_parts(applier, parts):
        return None
    x, taken = parts.args[0], parts.args[-1]
    to, at = literal(dim), literal(taken)
    if type(to) is not int or type(at) is not int:
        return None
    stacked = join == "stack"
    if are_single(parts):
        first = to if stacked or to >= 0 else to - 1
        moved = applier.named("movedim", x, taken, applier.program.const(first))
        ends = map(applier.program.const, (first, first + 1))
        return moved if stacked else applier.named("flatten", moved, *ends)
    places = {shapes.position(x.shape, at), shapes.position(x.shape, to)}
    same = at == to or len(places) == 1 and None not in places
    return x if same and not stacked else None
