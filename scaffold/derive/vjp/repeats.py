"""Values inside the expressions of the forward that the backward would compute a second time.

In: the gradients, over named values of the forward. Out: the values that get a name where the forward comes again. Invariant: each
stands inside a statement that the backward repeats anyway, so that a name for it costs nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from scaffold.derive.program import read_names, surely_written
from scaffold.derive.vjp.forward_names import Places
from scaffold.derive.vjp.ir import Op, down_to
from scaffold.derive.vjp.schedule import CHEAP, TRIVIAL, VIEWS
from scaffold.formula import Assign, Statement, written

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
    repeated = _repeated(statements, read, there)
    inside = {
        op
        for op, found in places.items()
        if op not in held and op.rule not in FREE
        if any(repeated.get(at, node) is not node for at, node in found)
    }
    found = [op for op in down_to(ends, {*held, *inside}) if op in inside]
    return tuple(sorted(found, key=lambda op: op.serial))


def _repeated(
    statements: tuple[Statement, ...], read: Collection[str], there: Collection[str]
) -> dict[int, object]:
    """The assignments that these names need, by position, with the whole value of each."""
    live, found = set(read) - set(there), dict[int, object]()
    for position in reversed(range(len(statements))):
        item = statements[position]
        if written(item) & live:
            if isinstance(item, Assign):
                found[position] = item.value
            live = (live - surely_written(item)) | read_names(item) - set(there)
    return found
