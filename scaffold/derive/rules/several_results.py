"""Give gradients to calls with several results, by a cotangent for each: of parts (`x.split(2)`), and of fields (`x.max(0).values`).

`reverse` collects the cotangents of the results first, then asks here for the gradient of the call.

In: an op and the cotangents of some of its results, by position. Out: the cotangents read by formulas, or the gradient of the
tensor split into parts. Invariant: a missing cotangent counts as zeros.

Words: `arrived` maps the position of a result to its cotangent. Parts are `unbind`, `split` or `chunk`; a call is `sized` if its
argument gives the sizes of parts, and `shares` if it gives their number. The forward has unpacked a call if it gives each part a
name: `a, b = ...`. All parts are `taken` if each of them is used; the `own` size is that of one part.
"""

from collections.abc import Mapping
from functools import reduce

from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import OfShape, Op, Position, is_number, literal
from scaffold.derive.graph.static_values import UnsupportedError, is_int
from scaffold.derive.lower.indexing import are_single, item_of
from scaffold.derive.rules.formula_words import size
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.joined_terms import joined_parts


def are_all_taken(applier: Applier, op: Op, arrived: Mapping[int, Op]) -> bool:
    """Return whether all parts are known to be used: each has a cotangent, or the forward unpacks all of them.

    Then the gradient may be one `cat` of them. `arrived` has the cotangent of each part by position.
    """
    if any(at < 0 for at in arrived):  # counted from the end of an unknown number
        return False
    every = "shares" in op.facts.flags and literal(op.args[1]) == len(arrived)
    # The sizes of all parts are given, or all split points: two of these make three parts.
    if op.args[1].rule == "list":
        stated = len(op.args[1].args)
        count = stated if "sized" in op.facts.flags else stated + 1
        every = count == len(arrived)
    return every or applier.program.is_unpacked(op)


def gradient_by_parts(make: Maker, op: Op, arrived: Mapping[int, Op]) -> tuple[Op, Op]:
    """Return the tensor split into parts, and its gradient: the cotangents of its parts, each in its place among zeros, added.

    Raise `UnsupportedError` if a part's place is unknown.
    """
    pieces = [_of_part(make, op, at, g) for at, g in sorted(arrived.items())]
    found = [piece for piece in pieces if piece]
    if len(found) < len(pieces):
        raise UnsupportedError(f"the parts of {op.rule} are not all taken")
    terms = joined_parts(make, found)
    return op.args[0], reduce(make.add, terms)


def gradients_of_parts(make: Maker, op: Op, arrived: Mapping[int, Op]) -> Op:
    """Return the cotangents of all parts as a list op, with zeros for missing ones: to join them.

    The forward must have unpacked all parts, so that each is known.
    """
    items = make.program.items_of(op)
    parts = [
        arrived.get(at) or make.zeros(items[at], items[at].shape)
        for at in range(len(items))
    ]
    return make.program.op("list", parts)


def item_at(make: Maker, op: Op, position: int) -> Op:
    """Return one of several results as an op; a new one if the forward does not use it."""
    known = make.program.items_of(op).get(position)
    if known is not None:
        return known
    shape, kind, active = item_of(make.program, make.applier, op, position)
    return make.program.op(
        "item", (op,), Position(position), kind=kind, shape=shape, active=active
    )


def of_side(arrived: Mapping[int, Op], test: Op, side: int) -> dict[int, Op]:
    """Return the cotangents in one branch of a test, without those of 0; `side` is 0 if the test holds, 1 if not."""
    chosen = {
        at: g.args[side] if g.rule == "cond" and g.test is test else g
        for at, g in arrived.items()
    }
    return {at: g for at, g in chosen.items() if not is_number(g, 0)}


def _of_part(make: Maker, op: Op, at: int, g: Op) -> Op | None:
    """Return the gradient of a split tensor by one part: `g` in the part's place among zeros; None if its place is unknown.

    `at` is the part's index in an `unbind`, `split` or `chunk`, -1 for the last one.
    """
    x, none = op.args[0], make.const(None)
    if are_single(op):
        into = make.zeros(g, x.shape)
        whole = make.select_scatter(into, g, op.args[1], make.const(at))
        return make.program.shaped(whole, x.shape)
    count, dim = op.args[1:]
    own = size(make, g, dim)  # of this part
    if at == 0:  # the parts may differ in size, but the first one comes first
        bounds = (none, own, none)
    # The last part: its place is counted from the end of x.
    elif at == -1 or "shares" in op.facts.flags and literal(count) == at + 1:
        start = make.sub(size(make, x, dim), own)
        bounds = (start, none, none)
    elif "sized" in op.facts.flags and is_int(make.program, count):
        start = make.mul(make.const(at), count)
        bounds = (start, make.add(start, own), none)
    elif "sized" in op.facts.flags and count.rule == "list":
        start = reduce(make.add, count.args[:at])
        end = none if at == len(count.args) - 1 else make.add(start, own)
        bounds = (start, end, none)
    else:
        return None
    return make.program.op(
        "unsliced", (g, dim, *bounds), OfShape(x.shape), kind=g.kind, shape=x.shape
    )
