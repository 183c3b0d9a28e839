"""The backward as one program: statements in order, each with the gradients it serves.

In: the statements of the backward. Out: `Line`s. Invariant: run in order, the lines of one gradient compute it; a line
serves a gradient exactly if leaving it out would change that gradient.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from scaffold.derive.analysis.metadata import Read, reads
from scaffold.formula import (
    If,
    Lines,
    Statement,
    changed_in_place,
    expressions,
    raises,
    written,
)


class Line(NamedTuple):
    """A statement of the backward and the inputs whose gradients need it."""

    statement: Statement
    serves: frozenset[str]


def read_names(*statements: Statement) -> frozenset[str]:
    """Return the names read by statements, for their data or only their shape."""
    return frozenset().union(*map(_read_by, statements))


@lru_cache(maxsize=4096)  # liveness calls it for every statement and gradient
def _read_by(item: Statement) -> frozenset[str]:
    return frozenset(read.name for node in expressions(item) for read in reads(node))


def surely_written(*statements: Statement) -> frozenset[str]:
    """Return the names assigned in every branch of statements; a change in place, `x.mul_(y)`, assigns none."""
    if len(statements) == 1:  # the usual call from liveness
        return _surely_written_by(statements[0])
    return frozenset().union(*map(_surely_written_by, statements))


@lru_cache(maxsize=4096)  # as above
def _surely_written_by(item: Statement) -> frozenset[str]:
    if isinstance(item, If):
        branches = [part for part in (item.body, item.orelse) if not raises(part)]
        ended = [surely_written(*part) for part in branches]
        return frozenset.intersection(*ended) if ended else frozenset()
    if item.operator or item.target.kind == "subscript":
        return frozenset()
    return written(item) - frozenset(changed_in_place(item.value))


def needed_for(
    statements: Sequence[Statement],
    names: Iterable[str],
    there: Collection[str] = frozenset(),
) -> frozenset[int]:
    """Return the positions of the statements that compute `names`, by liveness; `there` need not be computed."""
    live, kept = set(names).difference(there), set()
    for position in reversed(range(len(statements))):
        item = statements[position]
        if written(item) & live:
            kept.add(position)
            live = (live - surely_written(item)) | read_names(item).difference(there)
    return frozenset(kept)


def lines_of(statements: Lines, gradients: Iterable[str]) -> tuple[Line, ...]:
    """Return each statement with the inputs it serves, leaving out dead ones."""
    needed = {name: needed_for(statements, [f"grad_{name}"]) for name in gradients}
    lines = []
    for position, item in enumerate(statements):
        serves = frozenset(name for name, kept in needed.items() if position in kept)
        if serves:
            lines.append(Line(item, serves))
    return tuple(lines)


def free_reads(statements: Lines) -> tuple[tuple[Read, int], ...]:
    """Return reads of names not surely assigned by an earlier statement, with the statement's position."""
    bound: frozenset[str] = frozenset()
    found = []
    for position, item in enumerate(statements):
        found += [(read, position) for read in _free(item, bound)]
        bound |= surely_written(item)
    return tuple(found)


def _free(statement: Statement, bound: frozenset[str]) -> list[Read]:
    if not isinstance(statement, If):
        return [
            read
            for node in expressions(statement)
            for read in reads(node)
            if read.name not in bound
        ]
    found = [read for read in reads(statement.test) if read.name not in bound]
    for branch in (statement.body, statement.orelse):
        inner = bound
        for item in branch:
            found += _free(item, inner)
            inner |= surely_written(item)
    return found
