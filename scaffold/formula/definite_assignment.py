"""Definite assignment: reads of names assigned on some paths only.

Such a read would raise in some calls, so `statements` reports it: `if train: m = x.mean()`, then `return x - m`.

Words: a *test* is the condition of an `if`; a *fact* is a test with its outcome; a *path* (`way`) is the set of facts that
hold when a statement runs; a path is *covered* if the name was assigned on every run along it.

In: the statements of a formula, and the names that have a value before them. Out: the first such read of each name,
with a test that separates the paths. Invariant: a read is fine only under the same tests as an assignment. Two tests
are one `TestFact` only if they compare equal values: the same text, and no name in it assigned in between.
"""

import ast
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from scaffold.formula.names import names_in, stored
from scaffold.formula.substitution import is_pure
from scaffold.primitives.calls import is_in_place

Choices = Mapping[str, Collection[object]]  # all possible values of a name


class TestFact(NamedTuple):
    """A test and its outcome: equal facts are about equal values."""

    test: str
    # How often each name in it was assigned before.
    versions: tuple[tuple[str, int], ...]
    holds: bool

    def otherwise(self) -> "TestFact":
        """Return the same test with the other outcome."""
        return self._replace(holds=not self.holds)


Way = frozenset[TestFact]  # a path: the facts true on it
ALWAYS: Way = frozenset()  # outside of every branch
# Comparisons recorded as the opposite of another, so that `p != 2` and `p == 2` are one test.
NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.IsNot: ast.Is,
    ast.NotEq: ast.Eq,
    ast.NotIn: ast.In,
    ast.GtE: ast.Lt,
    ast.LtE: ast.Gt,  # false for NaN both ways, but no choice is about a NaN
}


class Unassigned(NamedTuple):
    """A read of a name left unassigned if `test` has the outcome `holds`."""

    name: ast.Name
    test: str  # as the user wrote it
    holds: bool


def unassigned(
    body: Sequence[ast.stmt], names: Collection[str], choices: Choices
) -> list[Unassigned]:
    """Return the first read of each name possibly unassigned there, for an error message with the test that fails.

    `names` have a value from the start; `choices` are all possible values of a name, for tests such as `mode == "sum"`.
    """
    # Without a branch every assignment runs; most formulas have none.
    nodes = (node for item in body for node in ast.walk(item))
    if not any(isinstance(node, ast.If) for node in nodes):
        return []
    walk = _Walk(frozenset(stored(body)) - frozenset(names), choices)
    walk.block(body, ALWAYS)
    return list(walk.found.values())


class _Walk:
    """A walk of the statements in order.

    `ways` maps each name to the paths on which it was assigned, each as a set of facts true on it.
    """

    def __init__(self, names: frozenset[str], choices: Choices) -> None:
        """Prepare to follow the assignments of these names; `choices` are all possible values of some inputs."""
        self.names, self.facts = names, TestFacts(choices)
        self.ways: dict[str, list[Way]] = {}
        self.ended: list[Way] = []  # paths that end in an error
        self.found: dict[str, Unassigned] = {}  # the first read of each such name

    def block(self, body: Sequence[ast.stmt], way: Way) -> None:
        """Follow statements along a path (`way`: the facts true on it), and check the names they read.

        Both branches of an `if` are followed, each with the fact that its test is true or false. A `raise`, and an `assert` that
        fails, end a path: it goes to `ended`, since no read comes after it.
        """
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
                    # `y += x` reads y, though as a target it is no `Load`, so `read` passes it by.
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
        """Check the names an expression reads along a path; `a` in `a if t else b` is read only if `t` is true.

        A later operand of `t and a` is read only if the earlier ones are true, of `or` only if they are false.
        """
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
                    is_and = isinstance(operation, ast.And)
                    way |= {fact if is_and else fact.otherwise()}
            case _:
                for inner in ast.iter_child_nodes(node):
                    self.read(inner, way)

    def check(self, node: ast.Name, way: Way) -> None:
        """Record a name as unassigned in `found` if some run along this path comes to the read past all its assignments."""
        ways = self.ways.get(node.id)
        # No assignment above: it has a value from the start, or is reported elsewhere as unknown.
        if not ways or node.id in self.found:
            return
        # A run that has ended in an error comes to no read: it needs no assignment.
        fact = self.facts.uncovered_test(way, [*self.ended, *ways])
        if fact is not None:
            self.found[node.id] = Unassigned(node, *self.facts.seen[fact])

    def assign(self, targets: Sequence[ast.expr], way: Way) -> None:
        """Record the names of the targets as assigned on this path; facts about their old values are over."""
        for target in targets:
            self.read(target, way)  # `v[i] = x` reads v and i
        for name in stored(targets):
            self.facts.change(name)
            if name in self.names:
                self.ways.setdefault(name, []).append(way)


def _contradicts(way: Way, known: Collection[TestFact]) -> bool:
    """Return whether a fact of a path is false if all of `known` are true."""
    return any(fact.otherwise() in known for fact in way)


class TestFacts:
    """The facts stated by the tests met so far, and what follows from them: `a` from `a and b`.

    `_Walk` asks it whether the paths of a name's assignments cover the path of a read.
    """

    def __init__(self, choices: Choices) -> None:
        """Start without facts; `choices` are all possible values of some names."""
        self.choices = choices
        self.versions: dict[str, int] = {}  # the number of assignments of each name
        # A fact -> its test as written, and the outcome.
        self.seen: dict[TestFact, tuple[str, bool]] = {}
        self.all_of: dict[TestFact, Way] = {}  # `a and b` -> a, b
        self.equal: dict[TestFact, tuple[str, object]] = {}  # `name == value`

    def of(self, test: ast.expr) -> TestFact:
        """Return the fact a test states; `x is not None` and `not x is None` state the same, the negation of `x is None`.

        For `_implied`, `all_of` records that `a and b` is the facts `a` and `b` together (and `not (a or b)` is `not a` and
        `not b`), `equal` that `mode == "sum"` is about the name `mode` and the value "sum". `seen` has the words for messages.
        """
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.of(test.operand).otherwise()
        plain, holds = test, True
        match test:
            case ast.Compare(left, [operation], [right]) if type(operation) in NEGATED:
                plain = ast.Compare(left, [NEGATED[type(operation)]()], [right])
                holds = False
        fact = TestFact(ast.unparse(plain), self._versions(test), holds)
        match plain:
            case ast.BoolOp(ast.And(), values):
                self.all_of[fact] = frozenset(map(self.of, values))
            case ast.BoolOp(ast.Or(), values):
                all_false = (self.of(value).otherwise() for value in values)
                self.all_of[fact.otherwise()] = frozenset(all_false)
            case ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(value)]):
                self.equal[fact._replace(holds=True)] = (name, value)
        self.seen.setdefault(fact, (ast.unparse(test), True))
        self.seen.setdefault(fact.otherwise(), (ast.unparse(test), False))
        return fact

    def _versions(self, test: ast.expr) -> tuple[tuple[str, int], ...]:
        """Return the names in a test, each with the number of its assignments so far: facts about an older value are other facts.

        An impure test, `torch.rand(1) > 0.5`, is given a new number under the name "" each time, so no two are equal.
        """
        names = names_in([test])
        if not is_pure([test]):
            self.change("")  # an impure test may have another outcome each time
            names.add("")
        return tuple((name, self.versions.get(name, 0)) for name in sorted(names))

    def uncovered_test(self, way: Way, ways: Sequence[Way]) -> TestFact | None:
        """Return a fact of some run along the path `way` but along none of `ways`; None if every run is along one of them.

        `ways` are the paths on which the name was assigned (or which end in an error); the fact is for the message: "unassigned
        if train is False". It splits the runs by a test not yet settled, and looks at both halves.
        """
        known = self._implied(way)
        if _contradicts(known, known):
            return None  # no run gets there
        possible = [one for one in ways if not _contradicts(one, known)]
        if any(one <= known for one in possible):
            return None  # each such run is along that path
        order = list(self.seen).index
        if not possible:
            # All are contradicted: the message names the latest test that is against the last of them.
            against = {fact.otherwise() for fact in ways[-1]}
            return max(known & against, key=order)
        undecided = min(possible[0] - known, key=order)
        for fact in (undecided, undecided.otherwise()):
            found = self.uncovered_test(known | {fact}, ways)
            if found is not None:
                return found
        return None

    def _implied(self, way: Way) -> Way:
        """Return the facts of a path and all they imply, until nothing is added, since an implied fact may imply another.

        From `a` and `b` follows `a and b`, from `not a` follows `not (a and b)`; from `mode != "sum"` follows `mode == "mean"` if
        these are its choices.
        """
        known, before = set(way), 0
        while len(known) > before:
            before = len(known)
            for whole, parts in self.all_of.items():
                if parts <= known:
                    known.add(whole)
                if _contradicts(parts, known):
                    known.add(whole.otherwise())
            known |= {fact for fact in self.equal if self._is_last_choice(fact, known)}
        return frozenset(known)

    def _is_last_choice(self, fact: TestFact, known: Collection[TestFact]) -> bool:
        """Return whether a fact such as `mode == "mean"` must hold, since `known` rules out the other choices of `mode`."""
        name, value = self.equal[fact]
        ruled_out = {
            other
            for one, (_, other) in self.equal.items()
            if one.otherwise() in known and one.versions == fact.versions
        }
        # Equal versions: about the same value of the name. Without choices none is last.
        choices = self.choices.get(name, ())
        return value in choices and {*choices} - {value} <= ruled_out

    def change(self, name: str) -> None:
        """Record a new value of a name from here on: later tests of it state other facts."""
        self.versions[name] = self.versions.get(name, 0) + 1

    def note_change(self, value: ast.expr) -> None:
        """Record the change made by an in-place call: `x.exp_()`."""
        match value:
            case ast.Call(ast.Attribute(ast.Name(name), method)):
                if is_in_place(method):
                    self.change(name)
