"""Products taken apart: a number, Python values, and the tensors above and below the line.

In: an op, and which ops stay whole. Out: a `Term`, or the op that a term is. Invariant: the same factors, and so the same value
in exact arithmetic; nothing is cancelled.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from scaffold.derive.graph.application import constant
from scaffold.derive.graph.op import Expression, Number, Op, Program, number
from scaffold.formula import Node

POWERS = (2, 3, 4)


class Term(NamedTuple):
    """Factors; each as often as it occurs."""

    number: Number = 1
    statics: tuple[Op, ...] = ()
    tensors: tuple[Op, ...] = ()
    below: tuple[Op, ...] = ()  # tensors that it is divided by
    static_below: tuple[Op, ...] = ()

    def without(self, other: "Term") -> "Term":
        """What is left when the factors of another are taken out."""
        pairs = zip(self[1:], other[1:], strict=True)
        rest = (_removed(mine, theirs) for mine, theirs in pairs)
        return Term(_ratio(self.number, other.number), *rest)

    def holds(self, other: "Term") -> bool:
        """Whether all factors of another are among these."""
        return all(
            mine.count(op) >= theirs.count(op)
            for mine, theirs in zip(self[1:], other[1:], strict=True)
            for op in theirs
        )


def _removed(mine: tuple[Op, ...], theirs: tuple[Op, ...]) -> tuple[Op, ...]:
    left = list(mine)
    for op in theirs:
        left.remove(op)
    return tuple(left)


def _ratio(whole: Number, part: Number) -> Number:
    if whole == part:
        return 1
    if part == 1:
        return whole
    found = whole / part
    plain = isinstance(found, float) and found.is_integer()
    return int(found) if plain and abs(found) < 1000 else found  # type: ignore[arg-type]


def common(one: Term, two: Term) -> Term:
    """The factors that two terms share."""
    return Term(
        _common_number(one.number, two.number),
        *(_shared(mine, theirs) for mine, theirs in zip(one[1:], two[1:], strict=True)),
    )


def _shared(mine: Iterable[Op], theirs: Iterable[Op]) -> tuple[Op, ...]:
    left, found = list(theirs), list[Op]()
    for op in mine:
        if op in left:
            left.remove(op)
            found.append(op)
    return tuple(found)


def _common_number(one: Number, two: Number) -> Number:
    """The number of both, or a half where the other is some fraction: dividing by it is exact."""
    if one == two:
        return one
    halves = {each for each in (one, two) if each in (0.5, 0.25)}
    fractions = all(isinstance(each, float) and each % 1 for each in (one, two))
    return halves.pop() if len(halves) == 1 and fractions else 1


class Terms:
    """Takes products apart and puts them together."""

    def __init__(
        self, program: Program, make: Callable[..., Op], whole: Callable[[Op], bool]
    ) -> None:
        self.program, self.make, self.whole = program, make, whole

    def of(self, op: Op) -> Term:
        """The factors of an op."""
        found = _Factors(self.program, self.whole)
        found.take(op, False)
        return Term(
            found.number,
            tuple(found.static[0]),
            tuple(found.tensor[0]),
            tuple(found.tensor[1]),
            tuple(found.static[1]),
        )

    def op(self, term: Term) -> Op:
        """The product of a term's factors."""
        make, const = self.make, self.program.const
        minus = not isinstance(term.number, complex) and term.number < 0
        factor = const(-term.number if minus else term.number)
        for value in term.statics:
            factor = make("mul", factor, value)
        made: Op | None = None
        for op, count in _counted(term.tensors):
            power = op if count == 1 else make("pow_exponent", op, const(count))
            made = power if made is None else make("mul", made, power)
        for op in term.below:
            made = make("div", const(1) if made is None else made, op)
        made = factor if made is None else make("mul", factor, made)
        if term.static_below:
            below = const(1)
            for value in term.static_below:
                below = make("mul", below, value)
            made = make("div", made, below)
        return make("neg", made) if minus else made


def _counted(ops: tuple[Op, ...]) -> list[tuple[Op, int]]:
    return [(op, ops.count(op)) for op in dict.fromkeys(ops)]


def _is_number(parts: tuple[Node, ...]) -> bool:
    """Whether a product is of numbers, which an author has left as they are."""
    return all(part.kind == "constant" for part in parts)


class _Factors:
    """The factors found so far, above and below the line."""

    def __init__(self, program: Program, whole: Callable[[Op], bool]) -> None:
        self.program, self.whole = program, whole
        self.number: Number = 1
        self.static: tuple[list[Op], list[Op]] = ([], [])
        self.tensor: tuple[list[Op], list[Op]] = ([], [])

    def take(self, op: Op, below: bool) -> None:
        value = number(op)
        if value is not None and not (below and value not in (1, -1)):
            self.number = self.number * value
        elif not op.is_tensor:
            self._take_static(op, below)
        elif self.whole(op):
            self.tensor[below].append(op)
        elif op.rule == "neg":
            self.number = -self.number
            self.take(op.args[0], below)
        elif op.rule == "mul":
            for arg in op.args:
                self.take(arg, below)
        elif op.rule == "div" and not below:
            self.take(op.args[0], below)
            self.take(op.args[1], True)
        elif op.rule == "pow_exponent" and number(op.args[1]) in POWERS:
            for _ in range(int(str(number(op.args[1])))):
                self.take(op.args[0], below)
        else:
            self.tensor[below].append(op)

    def _take_static(self, op: Op, below: bool) -> None:
        match op.data:
            case Expression(Node("name", label)) if label.startswith("<"):
                self.static[below].append(self.program.ops[int(label[1:-1])])
            case Expression(Node("binary", "*", parts)) if not below and not _is_number(
                parts
            ):
                for part in parts:
                    known = constant(self.program, part)
                    self.take(known or self.program.static(part), below)
            case _:
                self.static[below].append(op)
