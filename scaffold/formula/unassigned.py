"""Reads of names that only some ways through the statements assign.

In: the statements of a formula, and the names that have a value before them. Out: the first such read of each name, with a
test that tells the ways apart. Invariant: a read is fine only where the tests around it are the ones around an
assignment: the same text, and nothing that it reads assigned in between.
"""

import ast
from collections.abc import Collection, Sequence
from typing import NamedTuple

from scaffold.formula.facts import ALWAYS, Choices, Facts, Way
from scaffold.formula.substitution import stored


class Unassigned(NamedTuple):
    """A read that finds nothing where a test has that answer."""

    name: ast.Name
    test: str  # as the user wrote it
    holds: bool


def unassigned(
    body: Sequence[ast.stmt], names: Collection[str], choices: Choices
) -> list[Unassigned]:
    """The first read of each name that may have no value there; `names` have one all along."""
    nodes = (node for item in body for node in ast.walk(item))
    if not any(isinstance(node, ast.If) for node in nodes):
        return []
    walk = _Walk(frozenset(stored(body)) - frozenset(names), choices)
    walk.block(body, ALWAYS)
    return list(walk.found.values())


class _Walk:
    """Follows the statements in order; `ways` are those by which a name got a value."""

    def __init__(self, names: frozenset[str], choices: Choices) -> None:
        self.names, self.facts = names, Facts(choices)
        self.ways: dict[str, list[Way]] = {}
        self.ended: list[Way] = []  # ways on which an error is raised
        self.found: dict[str, Unassigned] = {}

    def block(self, body: Sequence[ast.stmt], way: Way) -> None:
        for item in body:
            match item:
                case ast.If(test, inner, other):
                    self.read(test, way)
                    fact = self.facts.of(test)
                    self.block(inner, way | {fact})
                    self.block(other, way | {fact.otherwise()})
                case ast.Assign(targets, value):
                    self.read(value, way)
                    self.assign(targets, way)
                case ast.AugAssign(target, _, value):
                    self.read(value, way)
                    if isinstance(target, ast.Name):
                        self.check(target, way)
                    self.assign([target], way)
                case ast.AnnAssign(target, _, value) if value is not None:
                    self.read(value, way)
                    self.assign([target], way)
                case ast.Assert(test):
                    self.read(item, way)
                    self.ended.append(way | {self.facts.of(test).otherwise()})
                case ast.Raise():
                    self.read(item, way)
                    self.ended.append(way)
                case ast.Expr(value) | ast.Return(value) if value is not None:
                    self.read(value, way)
                    self.facts.note_change(value)

    def read(self, node: ast.AST, way: Way) -> None:
        match node:
            case ast.Name(_, ast.Load()):
                self.check(node, way)
            case ast.IfExp(test, body, orelse):
                self.read(test, way)
                fact = self.facts.of(test)
                self.read(body, way | {fact})
                self.read(orelse, way | {fact.otherwise()})
            case ast.BoolOp(operation, values):
                for value in values:
                    self.read(value, way)
                    fact = self.facts.of(value)
                    runs_on = isinstance(operation, ast.And)
                    way |= {fact if runs_on else fact.otherwise()}
            case _:
                for inner in ast.iter_child_nodes(node):
                    self.read(inner, way)

    def check(self, node: ast.Name, way: Way) -> None:
        ways = self.ways.get(node.id)
        if not ways or node.id in self.found:
            return  # what nothing above assigns is an unknown name
        fact = self.facts.left_out(way, [*self.ended, *ways])
        if fact is not None:
            self.found[node.id] = Unassigned(node, *self.facts.written(fact))

    def assign(self, targets: Sequence[ast.expr], way: Way) -> None:
        for target in targets:
            self.read(target, way)
        for name in stored(targets):
            self.facts.change(name)
            if name in self.names:
                self.ways.setdefault(name, []).append(way)
