"""Locals of the forward that the backward reads: which are computed again, which must be saved.

In: the forward's statements and the names wanted. Out: the statements to repeat and the names to save.
Invariant: what is repeated gives the same value; what is saved is a tensor, and a name's last value. For gradients that
follow from the forward, `save_policy` has decided what is saved before.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from scaffold.derive.activity import carries_gradient
from scaffold.derive.aliasing import Trace
from scaffold.derive.backward_program import read_names, surely_written
from scaffold.derive.live_variables import without_dead
from scaffold.derive.names import fresh
from scaffold.derive.value_kinds import Kinds
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Statement,
    renaming,
    rewritten,
    same_tensor,
    sharing,
    written,
)

Lines = tuple[Statement, ...]


class Plan(NamedTuple):
    """What to repeat in the backward, and what to save in the forward."""

    repeated: Lines
    saved: tuple[str, ...]


class Locals(NamedTuple):
    """What is known of the forward's statements."""

    statements: Lines
    repeatable: Callable[[Statement], bool]
    kinds: Kinds
    results: frozenset[str]  # locals whose last value is an output
    place: Location
    graph: Graph
    taken: frozenset[str] = frozenset()  # names of the backward


class _SavedTooEarlyError(Exception):
    """A name would be saved that is assigned again later."""


def plan(forward: Locals, wanted: frozenset[str], rather: frozenset[str]) -> Plan:
    """Walk back from the wanted locals: repeat a statement if that is fair, else save what it assigns.

    Of the names in `rather` it is saved even then.
    Where that would save a value which its name does not keep, the wanted locals are saved themselves.
    """
    attempts = [frozenset[str]()]
    attempts += [frozenset({name}) for name in sorted(wanted)]
    for first in (*attempts, wanted):
        try:
            return _walk(forward, wanted, first, rather)
        except _SavedTooEarlyError:
            continue
    raise AssertionError("every wanted local can be saved")


def _walk(
    forward: Locals,
    wanted: frozenset[str],
    first: frozenset[str],
    rather: frozenset[str],
) -> Plan:
    statements = forward.statements
    locals_ = written(*statements)
    saved, repeated = set(first), list[tuple[int, Statement]]()
    earlier = set[str]()  # results of which another value than the last one is read
    live = set(wanted - first)
    for position in reversed(range(len(statements))):
        item = statements[position]
        hit = written(item) & live
        if not hit:
            continue
        later = written(*statements[position + 1 :])
        own = written(item)
        item = _narrowed(item, hit, saved, forward)
        spoils = written(item) & saved
        saves = hit & rather and not hit & later and _worth_saving(item, hit, forward)
        if forward.repeatable(item) and not spoils and not saves:
            repeated.append((position, item))
            earlier |= written(item) & forward.results
            there = forward.results - later - own  # an output is at hand
            live = (live - surely_written(item)) | (read_names(item) & locals_ - there)
            continue
        if hit & later:
            raise _SavedTooEarlyError
        saved |= hit
        live -= hit
    _refuse_values(saved, forward)
    order = [name for item in statements for name in sorted(written(item) & saved)]
    again = _with_names_apart(forward, reversed(repeated), earlier)
    return Plan(again, tuple(dict.fromkeys(order)))


def _with_names_apart(
    forward: Locals, repeated: Iterable[tuple[int, Statement]], earlier: Iterable[str]
) -> Lines:
    """The statements with `first_h` for what a result `h` was before its last assignment."""
    taken = forward.taken | written(*forward.statements)
    lines = list(repeated)
    for name in sorted(earlier):
        last = max(
            k for k, item in enumerate(forward.statements) if name in written(item)
        )
        change = renaming(forward.graph, name, fresh(f"first_{name}", taken))
        for at, (position, item) in enumerate(lines):
            if position <= last:  # what follows reads the result
                (item,) = rewritten(forward.graph, (item,), change)
            lines[at] = (position, item)
    return tuple(item for _, item in lines)


def _narrowed(
    item: Statement, hit: frozenset[str], saved: set[str], forward: Locals
) -> Statement:
    """The lines and names of a statement that are needed, where not all of it can come again."""
    spoilt = written(item) & (forward.results | saved)
    if isinstance(item, Assign):
        return _without_names(forward, item, spoilt - hit)
    if forward.repeatable(item) and not spoilt:
        return item
    (left,) = without_dead(forward.graph, (item,), hit, lambda node: False)
    return left


def _without_names(forward: Locals, item: Assign, names: frozenset[str]) -> Assign:
    """`values, index = x.topk(2)` without a name that is known: `values, _index = x.topk(2)`."""
    graph, taken = forward.graph, written(*forward.statements)
    if item.target.kind != "tuple" or not names or taken & {f"_{n}" for n in names}:
        return item
    targets = (
        (
            graph.name(f"_{part.label}")
            if part.kind == "name" and part.label in names
            else part
        )
        for part in item.target.args
    )
    target = graph.node("tuple", item.target.label, tuple(targets))
    return Assign(target, item.value, item.operator, item.comments)


def _worth_saving(item: Statement, hit: Iterable[str], forward: Locals) -> bool:
    """Whether to save what could be computed again: tensors, but not what may be another one."""
    copy = not isinstance(item, If) and bool(same_tensor(item.value))
    return not copy and all(forward.kinds.of_name(name) == "tensor" for name in hit)


def _refuse_values(saved: Iterable[str], forward: Locals) -> None:
    for name in sorted(saved):
        if forward.kinds.of_name(name) != "tensor":
            message = f"the backward needs '{name}', which is no tensor and cannot be computed again"
            hint = f"make it a tensor, or compute {name} in the backward"
            raise ScaffoldError(message, forward.place, hint)


def unsure(statements: Lines, names: Iterable[str]) -> tuple[str, ...]:
    """The names that only some branches assign."""
    sure = surely_written(*statements)
    return tuple(name for name in names if name not in sure)


def active_locals(
    statements: Lines, inputs: frozenset[str], flat: bool = False
) -> frozenset[str]:
    """The locals that carry a gradient of one of the inputs; `flat`: even one that is 0 all over."""
    changes = Trace(statements, sharing).changes
    active = set(inputs)
    for position, item in enumerate(statements):
        before = frozenset(active)
        _activate(item, active, flat)
        for change in changes:
            if change.position == position and change.name in active - before:
                active |= change.holders
    return frozenset(active - inputs)


def _activate(item: Statement, active: set[str], flat: bool) -> None:
    """Add what a statement makes active; the test of an `if` carries no gradient."""
    if isinstance(item, If):
        for inner in (*item.body, *item.orelse):
            _activate(inner, active, flat)
    elif carries_gradient(item.value, frozenset(active), flat):
        active |= written(item)
