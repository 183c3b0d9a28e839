"""Locals of the forward that the backward computes in its own lines, since it reads what is inside them.

In: the gradients, and the names of values. Out: the locals. Invariant: each can be computed again from inputs, results and other
locals; one whose inside nobody else reads stays as the forward has it. `recomputation` repeats statements of the forward as they
are; what is saved is decided in `save_policy`.
"""

from collections.abc import Collection, Iterable, Mapping

from scaffold.derive.graph.op import Op, down_to
from scaffold.derive.plan.costs import is_free, is_reduction

DEAR = 2  # passes from which on a value is not computed a second time
PLAIN = ("real", "complex")


def taken_apart(
    roots: Iterable[Op],
    held: Mapping[Op, str],
    there: Collection[Op],
) -> dict[Op, str]:
    """The locals inside which the backward reads another value as well; what is `there` need not be computed."""
    ends = tuple(roots)
    found: dict[Op, str] = {}
    while True:
        stops = {op for op in held if op in there or op not in found}
        seen = {*down_to(ends, stops)}
        inner = {op for op in seen - stops if is_dear(op)}
        below = {*down_to(seen & stops - set(there), there)}
        more = {
            op: name
            for op, name in held.items()
            if op in below
            and op not in found
            and _holds(op, inner, there)
            and _is_plain(op, there)
        }
        if not more:
            return found
        found |= more


def _holds(op: Op, inner: Collection[Op], there: Collection[Op]) -> bool:
    return op not in there and any(
        part in inner and part is not op for part in down_to((op,), there)
    )


def is_dear(op: Op) -> bool:
    """Whether a value is better computed once."""
    if is_free(op) or op.kind not in PLAIN:
        return False
    return op.facts.passes >= DEAR or is_reduction(op)


def _is_plain(op: Op, there: Collection[Op]) -> bool:
    """Whether it is one tensor that every call computes, by primitives that have a rule."""
    return all(
        part in there
        or part.kind != "group"
        and part.rule not in ("call", "cond", "drawn", "item")
        for part in down_to((op,), there)
    )
