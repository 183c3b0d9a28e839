"""The identities of the table, the `simpler = ["-(-x) -> x"]` of a section, applied as an op is made.

In: the `simpler` of a primitive's section, and the arguments of an application of it. Out: the op of the right side of the first
identity whose left side is met. Invariant: both sides have the same value and shape; what a forward local holds is not taken
apart, but where a view undoes another one: that computes nothing, so what is below is read.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

from scaffold.derive.graph.op import Op
from scaffold.derive.rules.table import Table
from scaffold.derive.simplify.patterns import (
    Application,
    Bound,
    Matcher,
    Names,
    Pattern,
    Value,
    Variable,
    demand_of,
    names_of,
    rules_of,
    spelled,
)
from scaffold.errors import ScaffoldError

ARROW = " -> "
REAL = "r"
# What a name of one letter demands of its value; any other name stands for any argument.
DEMANDS = {
    **dict.fromkeys("xyz", "tensor"),
    REAL: "real",
    "M": "matrix",
    **dict.fromkeys("AB", "matrices"),
    **dict.fromkeys("cd", "static"),
    "k": "number",
    "n": "negative",
    "m": "minus",
}

Demand = Callable[[Op], bool]


class Make(Protocol):
    """What makes ops."""

    def __call__(self, name: str, *args: Op) -> Op: ...
    def const(self, value: object) -> Op: ...


class Identity(NamedTuple):
    """Two sides. `rest`: any arguments may stand behind those of the left side, and go where the right side says."""

    rule: str  # of which it is an identity
    left: tuple[Pattern, ...]  # its arguments
    right: Pattern
    rest: bool
    # What the left side has at which place: a primitive that it takes apart, and what else may not be there.
    rules: tuple[tuple[int, str], ...]
    demands: tuple[tuple[int, Demand], ...]

    def is_of(self, rules: tuple[str, ...]) -> bool:
        """Whether it may be met by arguments that are of these primitives."""
        count = len(self.left)
        if len(rules) != count and not (self.rest and len(rules) > count):
            return False
        return all(rules[at] == rule for at, rule in self.rules)

    def may_be(self, args: tuple[Op, ...]) -> bool:
        """Whether a match with such arguments is worth looking for."""
        for at, meets in self.demands:  # no `all`: most of its time is the generator
            if not meets(args[at]):
                return False
        return True


class Identities:
    """The identities of a table, met by the ops of one program."""

    def __init__(self, table: Table, matches: Matcher, real: set[Op]) -> None:
        self.table, self.matches = table, matches
        self.real = real  # gets the values that are met as real ones: `conj(r) -> r`

    def __call__(self, make: Make, name: str, args: tuple[Op, ...]) -> Op | None:
        """What an application of a primitive is simpler as, if there is an identity for it."""
        for item in identities_of(self.table, name, tuple(arg.rule for arg in args)):
            if item.may_be(args):
                count = len(item.left)
                for bound in self.matches.arguments(item.left, args[:count], {}):
                    self.real.update(op for name, op in bound.items() if name == REAL)
                    return made(make, item.right, bound, args[count:])
        return None


def made(make: Make, item: Pattern, bound: Bound, rest: tuple[Op, ...]) -> Op:
    """The op of a pattern."""
    if isinstance(item, Variable):
        return bound[item.name]
    if isinstance(item, Value):
        return make.const(item.value)
    args = [made(make, arg, bound, rest) for arg in item.args]
    return make(item.rule, *args, *(rest if item.open else ()))


@lru_cache(maxsize=4096)
def identities_of(
    table: Table, op: str, rules: tuple[str, ...]
) -> tuple[Identity, ...]:
    """Those of a primitive that arguments of these primitives may meet."""
    return tuple(item for item in identities(table, op) if item.is_of(rules))


@lru_cache(maxsize=1024)
def identities(table: Table, op: str) -> tuple[Identity, ...]:
    """The identities of the primitive whose ops are called so."""
    rule = table.of_op(op)
    if rule is None:
        return ()
    home = table.home(rule)
    return tuple(identity(text, home.op_of) for text in rule.simpler)


def identity(text: str, op_of: Names) -> Identity:
    """The identity of a line of the table."""
    left, _, right = text.partition(ARROW)
    before, after = (spelled(side, _demand, op_of) for side in (left, right))
    if not isinstance(before, Application):
        raise ValueError(text)  # noqa: TRY004 - a text, of no type
    rules = tuple(
        (at, arg.rule)
        for at, arg in enumerate(before.args)
        if isinstance(arg, Application)
    )
    demands = ((at, demand_of(arg)) for at, arg in enumerate(before.args))
    asked = tuple((at, demand) for at, demand in demands if demand)
    return Identity(before.rule, before.args, after, before.open, rules, asked)


def wrong_identity(text: str, op: str, table: Table) -> str | None:
    """What is wrong with a line of the `simpler` of a primitive whose ops are called so."""
    try:
        item = identity(text, table.op_of)
    except (ValueError, SyntaxError, ScaffoldError):
        return "is no identity"
    if item.rule != op:
        return "is of another primitive on its left side"
    known = {name for arg in item.left for name in names_of(arg)}
    if not names_of(item.right) <= known:
        return "has a name on its right side alone"
    unknown = sorted(
        {name for side in (*item.left, item.right) for name in rules_of(side)}
        - {table.op_of(name) for name in table.names()}
    )
    return f"calls '{unknown[0]}', which is no primitive" if unknown else None


def _demand(name: str) -> str:
    return DEMANDS.get(name, "")
