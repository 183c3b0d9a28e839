"""What a primitive of several results gives, and the cotangents of its parts.

In: the op, and the cotangent of each part that has one. Out: ops. Invariant: a part is one op however often it is asked for.
"""

from collections.abc import Mapping

from scaffold.derive.vjp.indexing import item_of
from scaffold.derive.vjp.ir import Op, Program, is_number
from scaffold.derive.vjp.make import Maker


def part(make: Maker, op: Op, position: int) -> Op:
    """One of the results."""
    known = _parts(make.program, op).get(position)
    if known is not None:
        return known
    shape, kind, active = item_of(make.program, make.applier, op, position)
    return make.program.op(
        "item", (op,), position, kind=kind, shape=shape, active=active
    )


def all_parts(make: Maker, op: Op, arrived: Mapping[int, Op]) -> Op:
    """A gradient for every part of a tuple; only as many are known as the forward takes."""
    items = _parts(make.program, op)
    parts = [
        arrived.get(at) or make.zeros(items[at], items[at].shape)
        for at in range(len(items))
    ]
    return make.program.op("list", parts)


def of_side(arrived: Mapping[int, Op], test: object, side: int) -> dict[int, Op]:
    """What arrives of several results on one side of a test, but what is 0 there."""
    chosen = {
        at: g.args[side] if g.rule == "cond" and g.data is test else g
        for at, g in arrived.items()
    }
    return {at: g for at, g in chosen.items() if not is_number(g, 0)}


def _parts(program: Program, op: Op) -> dict[int, Op]:
    items = (item for item in program.ops if item.rule == "item")
    return {int(str(item.data)): item for item in items if item.args[0] is op}
