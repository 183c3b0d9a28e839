"""Apply the identities of the table, the `simpler = ["-(-x) -> x"]` of a section, as an op is made.

They are asked first, before the simplifications in code; `constructors` calls this for each op.

In: the `simpler` of a primitive's section, and the arguments of an application of it. Out: the op of the right side of the first
identity whose left side matches. Invariant: both sides have the same value and shape; a value with a name in the forward is not
taken apart, except for a view undone by another one: it computes nothing, so its operand is read.

Words: `bound` maps the names of an identity to the ops they match; a demand is a requirement on such an op, by the letter (`M` is a
matrix). An identity is open if its left side ends in `*rest`, for any further arguments.
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
# Requirements on values of one-letter names; any other name matches any argument.
DEMANDS = {
    **dict.fromkeys("xyz", "tensor"),
    REAL: "real",
    "v": "values",
    "M": "matrix",
    **dict.fromkeys("AB", "matrices"),
    **dict.fromkeys("cd", "static"),
    "p": "constant",
    "k": "number",
    "n": "negative",
    "m": "minus",
}

Demand = Callable[[Op], bool]


class Make(Protocol):
    """A maker of ops."""

    def __call__(self, name: str, *args: Op) -> Op: ...
    def const(self, value: object) -> Op: ...


class Identity(NamedTuple):
    """Two sides of an equation, ready to be matched: left is rewritten to right.

    With `rest`, further arguments of the left side are passed on to the place of `*rest` on the right.
    """

    rule: str  # the primitive on the left side
    left: tuple[Pattern, ...]  # its arguments
    right: Pattern
    rest: bool
    # What the arguments of the left side must be, by position: ops of a primitive, or values that meet a demand.
    rules: tuple[tuple[int, str], ...]
    demands: tuple[tuple[int, Demand], ...]

    def is_of(self, rules: tuple[str, ...]) -> bool:
        """Return whether a call may match, if its arguments are ops of the primitives `rules`: a quick test, cached for each such call."""
        count = len(self.left)
        if len(rules) != count and not (self.rest and len(rules) > count):
            return False
        return all(rules[at] == rule for at, rule in self.rules)

    def may_be(self, args: tuple[Op, ...]) -> bool:
        """Return whether the arguments meet the demands on names and numbers; structure is matched later."""
        for at, meets in self.demands:  # no `all`: most of its time is the generator
            if not meets(args[at]):
                return False
        return True


class Identities:
    """The identities of a table, matched against the ops of one program."""

    def __init__(self, table: Table, matches: Matcher, real: set[Op]) -> None:
        self.table, self.matches = table, matches
        self.real = real  # collects values matched as real ones: `conj(r) -> r`

    def __call__(self, make: Make, name: str, args: tuple[Op, ...]) -> Op | None:
        """Return the right side of the first identity that matches a call of the primitive `name`; None without a match.

        A value matched by the name `r` is noted in `real`: the identity holds for real tensors alone.
        """
        for item in identities_of(self.table, name, tuple(arg.rule for arg in args)):
            if item.may_be(args):
                count = len(item.left)
                for bound in self.matches.arguments(item.left, args[:count], {}):
                    self.real.update(op for name, op in bound.items() if name == REAL)
                    return made(make, item.right, bound, args[count:])
        return None


def made(make: Make, item: Pattern, bound: Bound, rest: tuple[Op, ...]) -> Op:
    """Return the op of a pattern, with the op of each name in `bound`; `rest` are further arguments for the place of `*rest`."""
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
    """Return the identities of a primitive that may match arguments of the primitives `rules`; cached, as calls repeat."""
    return tuple(item for item in identities(table, op) if item.is_of(rules))


@lru_cache(maxsize=1024)
def identities(table: Table, op: str) -> tuple[Identity, ...]:
    """Return the identities in the table's section of a primitive, given by the name of its ops."""
    rule = table.of_op(op)
    if rule is None:
        return ()
    home = table.home(rule)
    return tuple(identity(text, home.op_of) for text in rule.simpler)


def identity(text: str, op_of: Names) -> Identity:
    """Return the identity in a line of the table, `-(-x) -> x`; raise `ValueError` for another text.

    `op_of` maps a primitive to the name of its ops.
    """
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
    """Return an error for a line of `simpler` in a team's table, to follow the line in a message; None if it is valid.

    `op` is the name of the primitive's ops.
    """
    try:
        item = identity(text, table.op_of)
    except (ValueError, SyntaxError, ScaffoldError):
        return "is not an identity"
    if item.rule != op:
        return "has another primitive on its left side"
    known = {name for arg in item.left for name in names_of(arg)}
    if not names_of(item.right) <= known:
        return "has a name on its right side that is not on its left"
    unknown = sorted(
        {name for side in (*item.left, item.right) for name in rules_of(side)}
        - {table.op_of(name) for name in table.names()}
    )
    return f"calls '{unknown[0]}', which is not a primitive" if unknown else None


def _demand(name: str) -> str:
    """Return the demand on values for a name, a word of `KINDS`; "" for a name of more than a letter."""
    return DEMANDS.get(name, "")
