"""Locals of the forward that the backward reads: which are computed again, which must be saved.

In: the forward's statements and the names wanted. Out: the statements to repeat and the names to save.
Invariant: what is repeated gives the same value; what is saved is a name's last value.
"""

from dataclasses import dataclass

from scaffold.derive.activity import carries_gradient, repeatable
from scaffold.derive.program import read_names, surely_written
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import If, Node, Statement, expressions, written


@dataclass(frozen=True, slots=True)
class Plan:
    """What to repeat in the backward, and what to save in the forward."""

    repeated: tuple[Statement, ...]
    saved: tuple[str, ...]


def plan(
    statements: tuple[Statement, ...],
    wanted: frozenset[str],
    imported: frozenset[str],
    save_all: bool,
    place: Location,
) -> Plan:
    """Walk back from the wanted locals: repeat a statement if that is fair, else save what it assigns."""
    locals_ = frozenset(name for item in statements for name in written(item))
    live, repeated = set(wanted), list[Statement]()
    saved: set[str] = set()
    for position in reversed(range(len(statements))):
        item = statements[position]
        hit = written(item) & live
        if not hit:
            continue
        if save_all or not all(
            repeatable(node, imported) for node in expressions(item)
        ):
            _refuse_earlier_value(hit, statements[position + 1 :], place)
            saved |= hit
            live -= hit
        else:
            repeated.append(item)
            live = (live - surely_written(item)) | (read_names(item) & locals_)
    order = [
        name for item in statements for name in sorted(written(item)) if name in saved
    ]
    return Plan(tuple(reversed(repeated)), tuple(dict.fromkeys(order)))


def _refuse_earlier_value(
    names: frozenset[str] | set[str], later: tuple[Statement, ...], place: Location
) -> None:
    """What is saved is a local's last value; the backward must not mean an earlier one."""
    for name in sorted(names):
        if any(name in written(item) for item in later):
            message = f"'{name}' must be saved for the backward, but is assigned again"
            raise ScaffoldError(message, place, "give each value a name of its own")


def active_locals(
    statements: tuple[Statement, ...], inputs: frozenset[str]
) -> frozenset[str]:
    """The locals that carry a gradient of one of the inputs."""
    active = set(inputs)
    for item in statements:
        if any(carries_gradient(node, frozenset(active)) for node in _values(item)):
            active |= written(item)
    return frozenset(active - inputs)


def _values(item: Statement) -> list[Node]:
    """What a statement assigns; the test of an `if` carries no gradient."""
    if isinstance(item, If):
        return [
            value for inner in (*item.body, *item.orelse) for value in _values(inner)
        ]
    return [item.value]
