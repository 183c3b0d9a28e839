"""Values inside the expressions of the forward that the backward would compute a second time.

In: the gradients, over named values of the forward. Out: the values that get a name where the forward comes again. Invariant: each
stands inside a statement that the backward repeats anyway, so that a name for it costs nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from scaffold.derive.program import needed_for
from scaffold.derive.vjp.forward_names import Places
from scaffold.derive.vjp.ir import Op, down_to
from scaffold.derive.vjp.schedule import CHEAP, TRIVIAL, VIEWS
from scaffold.formula import Assign, Statement

FREE = TRIVIAL | VIEWS | CHEAP


def computed_twice(
    roots: Iterable[Op],
    held: Mapping[Op, str],
    places: Places,
    statements: tuple[Statement, ...],
    there: Collection[str],
) -> tuple[Op, ...]:
    """The values inside repeated statements that the gradients read; names that are `there` are not repeated."""
    ends = tuple(roots)
    read = {held[op] for op in down_to(ends, held) if op in held}
    repeated = needed_for(statements, read, there)
    lines = {
        at: item.value
        for at, item in enumerate(statements)
        if at in repeated and isinstance(item, Assign)
    }
    inside = {
        op
        for op, found in places.items()
        if op not in held and op.rule not in FREE
        if any(lines.get(at, node) is not node for at, node in found)
    }
    found = [op for op in down_to(ends, {*held, *inside}) if op in inside]
    return tuple(sorted(found, key=lambda op: op.serial))
