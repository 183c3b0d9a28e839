"""What the tests around a statement say.

In: tests, in the order in which they are met. Out: facts, and what follows from them. Invariant: two facts are equal only
if they are about equal values: the same text, and nothing that it reads assigned in between.
"""

import ast
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from scaffold.formula.arguments import is_pure
from scaffold.formula.effects import in_place_name
from scaffold.formula.substitution import names_in

Choices = Mapping[str, Collection[object]]  # all the values that a name may have


class Fact(NamedTuple):
    """What a test said: equal facts are about equal values."""

    test: str
    versions: tuple[tuple[str, int], ...]  # of the names in it
    holds: bool

    def otherwise(self) -> "Fact":
        """The same test with the other answer."""
        return self._replace(holds=not self.holds)


Way = frozenset[Fact]
ALWAYS: Way = frozenset()
NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.IsNot: ast.Is,
    ast.NotEq: ast.Eq,
    ast.NotIn: ast.In,
    ast.GtE: ast.Lt,
    ast.LtE: ast.Gt,  # of a NaN neither holds, and no choice is about one
}


class Facts:
    """Gathers them."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.versions: dict[str, int] = {}
        self.seen: dict[Fact, tuple[str, bool]] = {}  # a fact -> as it was written
        self.all_of: dict[Fact, Way] = {}  # `a and b` -> a, b
        self.equal: dict[Fact, tuple[str, object]] = {}  # `name == value`

    def of(self, test: ast.expr) -> Fact:
        """The fact that a test holds."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.of(test.operand).otherwise()
        plain, holds = test, True
        match test:
            case ast.Compare(left, [operation], [right]) if type(operation) in NEGATED:
                plain = ast.Compare(left, [NEGATED[type(operation)]()], [right])
                holds = False
        fact = Fact(ast.unparse(plain), self._versions(test), holds)
        match plain:
            case ast.BoolOp(ast.And(), values):
                self.all_of[fact] = frozenset(map(self.of, values))
            case ast.BoolOp(ast.Or(), values):
                none = (self.of(value).otherwise() for value in values)
                self.all_of[fact.otherwise()] = frozenset(none)
            case ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(value)]):
                self.equal[fact._replace(holds=True)] = (name, value)
        self.seen.setdefault(fact, (ast.unparse(test), True))
        self.seen.setdefault(fact.otherwise(), (ast.unparse(test), False))
        return fact

    def _versions(self, test: ast.expr) -> tuple[tuple[str, int], ...]:
        names = names_in([test])
        if not is_pure([test]):
            self.change("")  # each time it says something else
            names.add("")
        return tuple((name, self.versions.get(name, 0)) for name in sorted(names))

    def left_out(self, way: Way, ways: Sequence[Way]) -> Fact | None:
        """What also holds where a run that is on `way` is on none of the `ways`; None if it always is on one."""
        known = self._implied(way)
        if any(fact.otherwise() in known for fact in known):
            return None  # no run is there
        possible = [one for one in ways if not any(f.otherwise() in known for f in one)]
        if any(one <= known for one in possible):
            return None
        order = list(self.seen).index
        if not possible:
            against = {fact.otherwise() for fact in ways[-1]}
            return max(known & against, key=order)
        open_ = min(possible[0] - known, key=order)
        for fact in (open_, open_.otherwise()):
            found = self.left_out(known | {fact}, ways)
            if found is not None:
                return found
        return None

    def _implied(self, way: Way) -> Way:
        """The facts, and those that follow."""
        known, before = set(way), 0
        while len(known) > before:
            before = len(known)
            for whole, parts in self.all_of.items():
                if parts <= known:
                    known.add(whole)
                if any(part.otherwise() in known for part in parts):
                    known.add(whole.otherwise())
            known |= {fact for fact in self.equal if self._is_left(fact, known)}
        return frozenset(known)

    def _is_left(self, fact: Fact, known: Collection[Fact]) -> bool:
        """Whether a name has a value because it has no other of its choices."""
        name, value = self.equal[fact]
        others = {
            other
            for one, (_, other) in self.equal.items()
            if one.otherwise() in known and one.versions == fact.versions
        }
        choices = self.choices.get(name, ())
        return value in choices and {*choices} - {value} <= others

    def written(self, fact: Fact) -> tuple[str, bool]:
        """A test as it was written, and its answer where the fact holds."""
        return self.seen[fact]

    def change(self, name: str) -> None:
        """Note that a name has another value from now on."""
        self.versions[name] = self.versions.get(name, 0) + 1

    def note_change(self, value: ast.expr) -> None:
        """Note what a call for its effect changes: `x.exp_()`."""
        match value:
            case ast.Call(ast.Attribute(ast.Name(name), method)):
                if in_place_name(method):
                    self.change(name)
