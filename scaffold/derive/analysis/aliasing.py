"""Aliasing: names that share memory, and changes in place that affect several of them.

In: straight-line statements. Out: for each name the memory it may hold, and every change in place.
Invariant: memory from outside the statements is identified by its name there. The functions
of PyTorch that share memory or change it are known to `formula.effects`, and so to the table of primitives.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from scaffold.formula import (
    If,
    Node,
    Statement,
    bound,
    changed_in_place,
    changed_parts,
    holds_several,
)

Memory = frozenset[str]  # names from outside, and `@1`, `@2` for memory made inside
Sources = Callable[[Node], frozenset[str]]


class Change(NamedTuple):
    """A change in place: the name it was written with, and all names holding the changed memory."""

    position: int
    name: str
    holders: frozenset[str]
    outside: frozenset[str]  # the names from outside in the changed memory
    memory: Memory  # the changed memory


class Trace:
    """A trace of the memory each name may hold, statement by statement, and of changes in place."""

    def __init__(self, statements: Iterable[Statement], sources: Sources) -> None:
        self.sources = sources
        self.held: dict[str, Memory] = {}
        # With memory a name held before, or holds later.
        self.ever: dict[str, Memory] = {}
        self.groups: set[str] = set()  # names of several tensors
        self.changes: list[Change] = []
        self._made = 0
        for position, item in enumerate(statements):
            self._run(item, position)

    def of(self, name: str) -> Memory:
        """Return the memory a name may hold."""
        return self.held.get(name, frozenset({name}))

    def holders_ever(self, change: Change) -> frozenset[str]:
        """Return the names that hold the changed memory now, before or later."""
        others = {name for name, memory in self.ever.items() if memory & change.memory}
        return change.holders | others

    def of_value(self, value: Node) -> Memory:
        """Return the memory an expression's value may have, given the statements so far."""
        names = self.sources(value)
        match value:
            case Node("subscript", _, (Node("name", name), _)) if name in self.groups:
                names |= {name}
        return frozenset().union(*map(self.of, names))

    def _run(self, item: Statement, position: int) -> None:
        if isinstance(item, If):
            self._choose(item, position)
            return
        changed = list(changed_in_place(item.value))
        parts = (item.target,) if item.operator else changed_parts(item.target)
        changed += [name for part in parts for name in sorted(bound(part))]
        for name in changed:
            self._change(name, position)
        if not item.operator:
            self._assign(item.target, item.value)

    def _choose(self, item: If, position: int) -> None:
        for name in changed_in_place(item.test):
            self._change(name, position)
        before = dict(self.held)
        for inner in item.body:
            self._run(inner, position)
        after_body, self.held = self.held, before
        for inner in item.orelse:
            self._run(inner, position)
        for name in {*after_body, *self.held}:
            other = after_body.get(name, frozenset({name}))
            self.held[name] = self.of(name) | other

    def _change(self, name: str, position: int) -> None:
        memory = self.of(name)
        outside = frozenset(part for part in memory if not part.startswith("@"))
        inside = {other for other in self.held if self.of(other) & memory}
        still = {other for other in outside if other in self.of(other)}
        holders = frozenset(inside | still)
        self.changes.append(Change(position, name, holders, outside, memory))

    def _assign(self, target: Node, value: Node) -> None:
        pairs = _pairs(target, value)
        memories = [self.of_value(part) for _, part in pairs]
        for (part, one), memory in zip(pairs, memories, strict=True):
            if part.kind == "name" and holds_several(one):
                self.groups.add(part.label)
            for name in sorted(_given(part)):
                self._made += 1
                held = memory or frozenset({f"@{self._made}"})
                self.held[name] = held
                self.ever[name] = self.ever.get(name, frozenset()) | held


def _given(target: Node) -> frozenset[str]:
    """Return the names bound by a target, without those changed in part."""
    if target.kind in ("tuple", "starred"):
        return frozenset().union(*map(_given, target.args))
    return frozenset() if target.kind == "subscript" else bound(target)


def _pairs(target: Node, value: Node) -> list[tuple[Node, Node]]:
    """Return the pairs of `a, b = x, y`, part by part."""
    parts = (*target.args, *value.args)
    if (
        target.kind == value.kind == "tuple"
        and len(target.args) == len(value.args)
        and all(part.kind != "starred" for part in parts)
    ):
        return list(zip(target.args, value.args, strict=True))
    return [(target, value)]
