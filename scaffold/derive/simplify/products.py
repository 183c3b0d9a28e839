"""The normal form of products: a number, Python values, the tensors of the numerator and of the denominator.

In: an op, and the ops to keep whole. Out: a `Product`, or the op of a product: `2 * x * (y / n)` <-> number 2, tensors x and y, n
below. Invariant: the same factors, and so the same value in exact arithmetic; nothing is cancelled here: tensors are in
`algebra.py`, and a number by a line in the table's section of `div`. All comparisons of products use this form: common factors of
sums, forward products in the backward, scalars multiplied first, and patterns.

Words: a factor is `below` if it divides; `statics` are the factors that are Python values. An op is `whole` if it counts as one
factor, though it is a product. A factor that stands twice counts twice.
"""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from scaffold.derive.graph.op import Op, Program, is_number, number
from scaffold.derive.graph.operations import Algebra
from scaffold.derive.graph.static_values import is_literal
from scaffold.formula import Number, computed

Factor = TypeVar("Factor")  # an op, or a pattern
POWERS = (2, 3, 4)  # `x ** 2` is two factors; in a pattern as well


class Product(NamedTuple, Generic[Factor]):
    """A product as its factors, each as often as it stands in it."""

    number: Number = 1
    statics: tuple[Factor, ...] = ()  # Python values other than numbers
    tensors: tuple[Factor, ...] = ()
    below: tuple[Factor, ...] = ()  # tensors in the denominator
    static_below: tuple[Factor, ...] = ()

    @property
    def has_factors(self) -> bool:
        """Return whether it is more than a number."""
        return any(self[1:])

    def times(self, other: "Product[Factor]") -> "Product[Factor]":
        """Return the product of both, with these factors first."""
        return Product(
            self.number * other.number,
            *(mine + theirs for mine, theirs in zip(self[1:], other[1:], strict=True)),
        )

    def over(self, other: "Product[Factor]") -> "Product[Factor]":
        """Return the quotient of both, with the other one's factors in the denominator."""
        return self.times(other.inverse)

    @property
    def inverse(self) -> "Product[Factor]":
        """Return the product with numerator and denominator exchanged."""
        return Product(
            # `1 / 1` would be 1.0, and written so.
            1 / self.number if self.number != 1 else 1,
            self.static_below,
            self.below,
            self.tensors,
            self.statics,
        )

    def without(self, other: "Product[Factor]") -> "Product[Factor]":
        """Return the product without the factors of another one, which must all be among its own (`holds`)."""
        pairs = zip(self[1:], other[1:], strict=True)
        rest = (_removed(mine, theirs) for mine, theirs in pairs)
        return Product(_ratio(self.number, other.number), *rest)

    def common(self, other: "Product[Factor]") -> "Product[Factor]":
        """Return the factors common to both, to be written in front of a sum: `g * x + g * y` -> `g`."""
        pairs = zip(self[1:], other[1:], strict=True)
        shared = (_shared(mine, theirs) for mine, theirs in pairs)
        return Product(_common_number(self.number, other.number), *shared)

    def holds(self, other: "Product[Factor]") -> bool:
        """Return whether the other product's factors are all among these, whatever the numbers: then `without` may remove them."""
        return all(
            mine.count(op) >= theirs.count(op)
            for mine, theirs in zip(self[1:], other[1:], strict=True)
            for op in theirs
        )


def _removed(
    mine: tuple[Factor, ...], theirs: tuple[Factor, ...]
) -> tuple[Factor, ...]:
    """Return the factors `mine` without those in `theirs`, each as often as it is there; all of them must be among `mine`."""
    left = list(mine)
    for op in theirs:
        left.remove(op)
    return tuple(left)


def _ratio(whole: Number, part: Number) -> Number:
    """Return `whole / part`, a number of a product divided by another: as an int or a short float if possible."""
    if whole == part:
        return 1
    if part == 1:
        return whole
    found = computed("/", whole, part, short=True)
    return whole / part if found is None else found


def _shared(mine: Iterable[Factor], theirs: Iterable[Factor]) -> tuple[Factor, ...]:
    """Return the factors both have, each as often as both have it: `x, x, y` and `x, y, y` -> `x, y`."""
    left, found = list(theirs), list[Factor]()
    for op in mine:
        if op in left:
            left.remove(op)
            found.append(op)
    return tuple(found)


def _common_number(one: Number, two: Number) -> Number:
    """Return the common number of two products: an equal one, or a 0.5 or 0.25 beside another fraction; otherwise 1.

    `0.5 * x + 0.3 * y` -> `0.5 * (x + 0.6 * y)`: to divide by a half or a quarter is exact. Of 0.5 and 0.25 none is taken out.
    """
    if one == two:
        return one
    halves = {each for each in (one, two) if each in (0.5, 0.25)}
    fractions = all(isinstance(each, float) and each % 1 for each in (one, two))
    return halves.pop() if len(halves) == 1 and fractions else 1


class Products:
    """A converter between ops and products, for one decision which ops count as one factor."""

    def __init__(
        self, program: Program, make: Algebra, whole: Callable[[Op], bool]
    ) -> None:
        """Take products apart, except ops for which `whole` is true; make new ops by `make`."""
        self.program, self.make, self.whole = program, make, whole
        self._known: dict[Op, Product[Op]] = {}

    def of(self, op: Op) -> Product[Op]:
        """Return the factors of an op; cached, as each is asked for often."""
        if op not in self._known:
            self._known[op] = taken_apart(op, self.whole)
        return self._known[op]

    def forget(self, whole: Op) -> None:
        """Drop the cached factors of an op to keep whole from now on, and of all later ops: they may contain it."""
        known = self._known.items()
        self._known = {op: one for op, one in known if op.serial < whole.serial}

    def op(self, product: Product[Op]) -> Op:
        """Return the op of a product, the number first and divisors last: `2 * x * y / z`; a minus stands before all of it."""
        make, const = self.make, self.program.const
        minus = not isinstance(product.number, complex) and product.number < 0
        factor = const(-product.number if minus else product.number)
        for value in product.statics:
            factor = make.mul(factor, value)
        made: Op | None = None
        for op in dict.fromkeys(product.tensors):
            count = product.tensors.count(op)
            # A factor that stands twice is written `x ** 2`, at its first place.
            power = op if count == 1 else make("pow_exponent", op, const(count))
            made = power if made is None else make.mul(made, power)
        for op in product.below:
            made = make.div(const(1) if made is None else made, op)
        made = factor if made is None else make.mul(factor, made)
        if product.static_below:
            below = const(1)
            for value in product.static_below:
                below = make.mul(below, value)
            made = make.div(made, below)
        return make.neg(made) if minus else made

    def op_times(self, outer: Product[Op], inner: Op) -> Op:
        """Return the op of `outer` times `inner`, an op that may be a sum; divisors stand last: `x * (a + b) / n`."""
        above = self.op(outer._replace(below=(), static_below=()))
        made = inner if is_number(above, 1) else self.make.mul(above, inner)
        for divisor in outer.below:
            made = self.make.div(made, divisor)
        if outer.static_below:
            made = self.make.div(made, self.op(Product(1, outer.static_below)))
        return made


def taken_apart(
    op: Op,
    whole: Callable[[Op], bool] = lambda op: False,
    *,
    every: bool = False,
) -> Product[Op]:
    """Return the factors of an op; an op for which `whole` is true is a single factor.

    With `every`, for patterns in any spelling, factors of `x / (y / z)` and `x.square()` count too, but a product of Python values
    is one factor.
    """
    found = _Factors(whole, every)
    found.take(op, False)
    (tensors, below), (statics, static_below) = found.tensor, found.static
    return Product(
        found.number, tuple(statics), tuple(tensors), tuple(below), tuple(static_below)
    )


class _Factors:
    """The factors found so far: in each pair of lists the first is above the line of the fraction, the second below."""

    def __init__(self, whole: Callable[[Op], bool], every: bool) -> None:
        """Start with no factors; see `taken_apart` for `whole` and `every`."""
        self.whole, self.every = whole, every
        self.number: Number = 1
        self.static: tuple[list[Op], list[Op]] = ([], [])
        self.tensor: tuple[list[Op], list[Op]] = ([], [])

    def take(self, op: Op, below: bool) -> None:
        """Add the factors of an op to those found; with `below`, the op stands in the denominator."""
        value = number(op)
        # Another number divides as a Python value, so that `1 / 3` is never computed; `3 * 0.044715` is not, either.
        if value is not None and self._folds(value) and (not below or value in (1, -1)):
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
        elif op.rule == "div" and (not below or self.every):
            self.take(op.args[0], below)
            self.take(op.args[1], not below)
        elif (power := self._power(op)) is not None:
            for _ in range(power):
                self.take(op.args[0], below)
        else:
            self.tensor[below].append(op)

    def _folds(self, value: Number) -> bool:
        return computed("*", self.number, value, short=True) is not None

    def _power(self, op: Op) -> int | None:
        """Return the exponent of a power to be written out, one of `POWERS`, as of `x ** 2` or `x ** 2.0`; None for other ops."""
        exponent: Number | None = op.facts.power if self.every else None
        if op.rule == "pow_exponent" or self.every and op.rule == "pow":
            exponent = number(op.args[1])
        return next((power for power in POWERS if power == exponent), None)

    def _take_static(self, op: Op, below: bool) -> None:
        """Add a Python value, or the factors of a product of them; `2 * 3` stays as the author wrote it."""
        # Below, and for patterns, a product such as `2 * n` is one divisor, or one value.
        product = op.is_python("binary", "*") and not (below or self.every)
        if product and not _has_short_value(op):
            for part in op.args:
                self.take(part, below)
        else:
            self.static[below].append(op)


def _has_short_value(op: Op) -> bool:
    """Return whether a product of Python values is one of numbers with a short value, as `2 * 3`."""
    one, two = map(number, op.args)
    if one is None or two is None or not all(map(is_literal, op.args)):
        return False
    return computed("*", one, two, short=True) is not None
