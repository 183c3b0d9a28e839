"""Match ops of the graph with formulas, `x * sigmoid(x)`: for compositions, identities and advice.

In: the text of a formula, and an op. Out: the op of each name in the formula, for each way to match it: `x * sigmoid(x)` matches
`a.t() * a.t().sigmoid()` with `{"x": a.t()}`. Invariant: the op has the formula's value; nothing is computed.

    log(1 + exp(x))    a primitive by its name, Python's operators, numbers, True and None; any other name is a value, the
                       same one at each place

It serves three tables of `scaffold.primitives`. An identity, `-(-x) -> x`, is matched as it is spelled: it rewrites one spelling.
Compositions (`composed`) and advice are matched in any spelling: the factors of a product and the terms of a sum stand in any
order, their numbers are taken together (`0.5 * x * y` is `x * y / 2`), and `x.square()` is `x * x`.

Words: a pattern is a formula read; `bound` maps its names to the ops matched so far; an application is the pattern of a primitive
and its arguments; it is open if it ends in `*rest`, for any further arguments. A product's factors are `below` if they divide. A
demand is a requirement on the value of a name, a word of `KINDS`.
"""

import ast
import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple, TypeVar

from scaffold.derive.graph.op import Op, literal
from scaffold.derive.graph.op import number as number_of
from scaffold.derive.graph.static_values import is_length, is_negative, known_value
from scaffold.derive.simplify.products import POWERS, Product, taken_apart
from scaffold.errors import Location
from scaffold.formula import (
    Graph,
    Number,
    Scope,
    Text,
    as_number,
    computed,
    evaluated,
    parse,
)

Bound = dict[str, Op]


class Variable(NamedTuple):
    """A name: any value, or one that meets a demand, a word of `KINDS`."""

    name: str
    demand: str = ""


class Value(NamedTuple):
    """A number, or another Python value."""

    value: object


class Application(NamedTuple):
    """A primitive applied to patterns. To match any spelling, it is also a product or a sum, if possible."""

    rule: str
    args: tuple["Pattern", ...]
    commutes: bool = False
    open: bool = False  # any further arguments match
    product: Product["Pattern"] | None = None
    sum: "Sum | None" = None


class Sum(NamedTuple):
    """Terms, each a product, and a number."""

    number: float
    terms: tuple[Product["Pattern"], ...]


Pattern = Variable | Value | Application

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Pow: "pow_exponent",
}
COMMUTING = frozenset({"add", "mul"})
SUMS = frozenset({"add", "sub"})
# Primitives with several factors: any spelling of a product is one of these.
PRODUCTS = frozenset({"mul", "div", "neg", "pow_exponent", "pow", "square"})
ROUNDING = 8e-15  # relative difference of equal numbers


# Parsing


Names = Callable[[str], str]


def pattern(
    text: str, *, prefix: bool = False, op_of: Names = lambda name: name
) -> Pattern:
    """Return the pattern of a formula that matches any spelling; with `prefix`, further arguments of calls match too.

    `op_of` maps a primitive to the name of its ops, which differs for a team's own primitive of the same name.
    """
    return _Reader(False, op_of, prefix).read(_tree(text))


def spelled(text: str, demands: Names, op_of: Names) -> Pattern:
    """Return the pattern of a formula that matches only as it is spelled; `demands` gives the demand on a name, or ""."""
    return _Reader(True, op_of, demands=demands).read(_tree(text))


def _tree(text: str) -> ast.expr:
    """Return a formula's syntax tree."""
    return ast.parse(text.strip(), mode="eval").body


def heads(item: Pattern) -> frozenset[str]:
    """Return the primitives a matching op may have: for a product in any spelling, `mul`, `div` and others.

    Patterns are looked up by them, since most ops match none.
    """
    assert isinstance(item, Application)
    found = {item.rule}
    if item.product is not None:
        found |= PRODUCTS
    if item.sum is not None:
        found |= SUMS
    return frozenset(found)


def _operator(operator: ast.operator) -> str:
    """Return the primitive of an operator, `add` of `+`; raise `ValueError` for one without."""
    if type(operator) not in OPERATORS:
        raise ValueError("an operator that no pattern has")
    return OPERATORS[type(operator)]


def _has_no_names(tree: ast.expr) -> bool:
    """Return whether an expression is a constant number: `math.sqrt(2)`, `-1`."""
    names = (item.id for item in ast.walk(tree) if isinstance(item, ast.Name))
    return all(name == "math" for name in names)


def names_of(item: Pattern) -> frozenset[str]:
    """Return the names in a pattern, each of which stands for a value, to check an identity."""
    if isinstance(item, Application):
        return frozenset().union(*map(names_of, item.args))
    return frozenset({item.name} if isinstance(item, Variable) else ())


def rules_of(item: Pattern) -> frozenset[str]:
    """Return the primitives applied in a pattern, to check an identity."""
    if isinstance(item, Application):
        return frozenset({item.rule}).union(*map(rules_of, item.args))
    return frozenset()


class _Reader(NamedTuple):
    """A reader of a formula's syntax tree; with `spelled`, of a pattern that matches only as it is spelled."""

    spelled: bool
    op_of: Names
    prefix: bool = False
    demands: Names = lambda name: ""

    def read(self, tree: ast.expr) -> Pattern:
        """Return the pattern of an expression; raise `ValueError` for an expression that patterns do not have."""
        match tree:
            case ast.Name(name):
                return Variable(name, self.demands(name))
            case ast.Constant(value):
                return Value(value)
            case ast.Tuple():
                return Value(ast.literal_eval(tree))
        if _has_no_names(tree):
            return Value(_number(ast.unparse(tree)))
        match tree:
            case ast.UnaryOp(ast.USub(), inner):
                return self._applied("neg", (inner,))
            case ast.BinOp(left, operator, right):
                return self._applied(_operator(operator), (left, right))
            case ast.Call(ast.Name(name), args):
                return self._applied(self.op_of(name), args)
        raise ValueError(f"no pattern: {ast.unparse(tree)}")

    def _applied(
        self, rule: str, trees: tuple[ast.expr, ...] | list[ast.expr]
    ) -> Application:
        """Return the pattern of a primitive applied to expressions, also as a product or a sum if any spelling matches.

        With `spelled`, for an identity, only the spelling as written matches.
        """
        rest = bool(trees) and isinstance(trees[-1], ast.Starred)  # `sum(x, *rest)`
        args = tuple(map(self.read, trees[:-1] if rest else trees))
        if self.spelled:
            return Application(rule, args, open=rest)
        plain = Application(rule, args, rule in COMMUTING, self.prefix)
        if rule in SUMS:
            return plain._replace(sum=_sum(plain))
        product = _product(plain)
        # `x ** 5` is its own only factor.
        has_factors = rule in PRODUCTS and product != Product(tensors=(plain,))
        return plain._replace(product=product) if has_factors else plain


def _product(item: Pattern) -> Product[Pattern]:
    """Return a pattern as a product of patterns: `2 * x / y` -> number 2, x above, y below; `x**2` -> x twice.

    Taken apart as ops are (`taken_apart`), so that both compare. A name or a value such as `True` is a factor among the
    `tensors`, tensor or not: a pattern does not say which, and `Matcher._product_of` puts the Python values of an op there, too.
    """
    match item:
        # True is an int to Python.
        case Value(int() | float() as value) if not isinstance(value, bool):
            return Product(value)
        case Application("neg", (inner,)):
            return Product[Pattern](-1).times(_product(inner))
        case Application("mul", (one, two)):
            return _product(one).times(_product(two))
        case Application("div", (one, two)):
            return _product(one).over(_product(two))
        # Only powers that `taken_apart` writes out: `x ** 5` is one factor of an op, too.
        case Application("pow_exponent", (base, Value(int() | float() as count))) if (
            count in POWERS
        ):
            found = _product(base)
            for _ in range(int(count) - 1):
                found = found.times(_product(base))
            return found
    return Product(tensors=(item,))


def _sum(item: Pattern, sign: int = 1) -> Sum:
    """Return a pattern times `sign` as a sum: `x - 1` -> terms x, number -1."""
    match item:
        case Value(int() | float() as value) if not isinstance(value, bool):
            return Sum(sign * value, ())
        case Application("add" | "sub" as rule, (left, right)):
            one = _sum(left, sign)
            two = _sum(right, sign if rule == "add" else -sign)
            return Sum(one.number + two.number, one.terms + two.terms)
    return Sum(0, (Product[Pattern](sign).times(_product(item)),))


# Matching


class Matcher:
    """A matcher of patterns with the ops of one program; `inside` says whether an op may be taken apart."""

    def __init__(self, inside: Callable[[Op], bool] = lambda op: True) -> None:
        self.inside = inside
        self._products: dict[Op, Product[Op]] = {}

    def __call__(self, item: Pattern, op: Op, bound: Bound) -> Iterator[Bound]:
        """Yield the op of each name, for each way to match an op with a pattern; nothing without a match.

        `bound` has the names matched so far, elsewhere in the formula: they stand for the same ops here. Each result is a copy with
        more names.
        """
        if isinstance(item, Variable):
            known = bound.get(item.name)
            if known is op:
                yield bound
            elif known is None and (not item.demand or KINDS[item.demand](op)):
                yield {**bound, item.name: op}
        elif isinstance(item, Value):
            if _is_value(op, item.value):
                yield bound
        elif self.inside(op):
            yield from self._applied(item, op, bound)

    def _applied(self, item: Application, op: Op, bound: Bound) -> Iterator[Bound]:
        """Yield matches of an application: as spelled, with operands exchanged, as a product, and as a sum.

        As spelled first, since a name may then stand for a whole product or sum.
        """
        if op.rule == item.rule:
            count = len(item.args)
            if len(op.args) == count or item.open and len(op.args) > count:
                yield from self.arguments(item.args, op.args[:count], bound)
                if item.commutes:  # two operands, exchanged
                    yield from self.arguments(item.args, op.args[1::-1], bound)
        if item.product is not None and op.rule in PRODUCTS:
            yield from self._product(item.product, self._product_of(op), bound)
        if item.sum is not None and op.rule in SUMS:
            number, terms = _terms(op, 1)
            if close(item.sum.number, number):
                yield from _in_any_order(item.sum.terms, terms, bound, self._term)

    def arguments(
        self, items: tuple[Pattern, ...], ops: tuple[Op, ...], bound: Bound
    ) -> Iterator[Bound]:
        """Yield the op of each name, for each way to match all `ops` with the patterns `items`, in their order."""
        if not items:
            yield bound
            return
        for found in self(items[0], ops[0], bound):
            yield from self.arguments(items[1:], ops[1:], found)

    def _product(
        self, item: Product[Pattern], product: Product[Op], bound: Bound
    ) -> Iterator[Bound]:
        """Yield matches of a product of patterns with the factors of an op, in any order; none if the numbers differ."""
        if close(item.number, product.number):
            for half in _in_any_order(item.below, product.below, bound, self):
                yield from _in_any_order(item.tensors, product.tensors, half, self)

    def _term(
        self, item: Product[Pattern], term: "Term", bound: Bound
    ) -> Iterator[Bound]:
        """Yield matches of a pattern, a term of a sum, with a term of an op's sum; a plain name may stand for a product."""
        is_one_factor = item.number == 1 and len(item.tensors) == 1 and not item.below
        if is_one_factor and term.sign == 1:
            yield from self(item.tensors[0], term.op, bound)
        else:
            product = Product[Op](term.sign).times(self._product_of(term.op))
            yield from self._product(item, product, bound)

    def _product_of(self, op: Op) -> Product[Op]:
        """Return the factors of an op, all numbers multiplied together; other Python values count as tensors, so `statics` is empty."""
        if op not in self._products:
            plain = taken_apart(op, every=True)
            above = [*plain.tensors, *plain.statics]
            below = [*plain.below, *plain.static_below]
            total = plain.number
            for ops, power in ((above, 1), (below, -1)):
                for factor in [item for item in ops if not item.is_tensor]:
                    value = number_in(factor)
                    if value:  # not 0, which may stand below
                        ops.remove(factor)
                        total = total * value**power
            self._products[op] = Product(total, (), tuple(above), tuple(below))
        return self._products[op]


class Term(NamedTuple):
    """A summand, subtracted if its sign is -1."""

    sign: int
    op: Op


def _terms(op: Op, sign: int) -> tuple[Number, tuple[Term, ...]]:
    """Return the number in a sum times `sign`, and its other terms with their signs."""
    value = None if op.is_tensor else number_in(op)
    if value is not None:
        return sign * value, ()
    if op.rule in SUMS:
        one, terms = _terms(op.args[0], sign)
        two, rest = _terms(op.args[1], sign if op.rule == "add" else -sign)
        return one + two, terms + rest
    return 0, (Term(sign, op),)


Item = TypeVar("Item")
Part = TypeVar("Part")


def _in_any_order(
    items: tuple[Item, ...],
    parts: tuple[Part, ...],
    bound: Bound,
    match: Callable[[Item, Part, Bound], Iterator[Bound]],
) -> Iterator[Bound]:
    """Yield matches of all items with all parts, in any order; `match` yields those of one item with one part.

    Items with a primitive are tried before plain names, which match anything.
    """
    if len(items) != len(parts):
        return
    if not items:
        yield bound
        return
    # False sorts before True: the specific items first.
    first, *rest = sorted(items, key=_is_vague)
    for at, part in enumerate(parts):
        for found in match(first, part, bound):
            others = parts[:at] + parts[at + 1 :]
            yield from _in_any_order(tuple(rest), others, found, match)


def _is_vague(item: object) -> bool:
    """Return whether a factor or a term begins with a plain name, which matches anything, so it is tried last."""
    if isinstance(item, Product):  # `1 / x` has no tensors above the line
        return isinstance((*item.tensors, *item.below)[0], Variable)
    return isinstance(item, Variable)


# Python values


def close(one: Number, two: Number) -> bool:
    """Return whether two numbers are equal up to rounding."""
    if isinstance(one, complex) or isinstance(two, complex):
        return one == two
    return math.isclose(one, two, rel_tol=ROUNDING)


def _is_value(op: Op, value: object) -> bool:
    """Return whether an op is the Python value `value`; numbers are compared up to rounding, whatever their types."""
    # True is an int to Python, but no number in a pattern.
    if isinstance(value, bool) or not isinstance(value, int | float):
        known = literal(op)
        return type(known) is type(value) and known == value
    known = None if op.is_tensor else number_in(op)
    return known is not None and close(known, value)


def demand_of(item: Pattern) -> Callable[[Op], bool] | None:
    """Return the test that an op has to pass to match a name or a Python value; None if any op may.

    By it, identities are ruled out before their structure is matched.
    """
    if isinstance(item, Value):
        return partial(_is_value, value=item.value)
    if isinstance(item, Variable) and item.demand:
        return KINDS[item.demand]
    return None


def number_in(op: Op) -> Number | None:
    """Return the number of a Python value, or of a list of one number (a dim may be `[-1]`); None for others."""
    if op.rule == "list" and len(op.args) == 1:
        return number_in(op.args[0])
    if op.rule in ("static", "python"):
        return _as_float(known_value(op))
    return number_of(op)


@cache
def _number(text: str) -> Number:
    """Return the number of a constant part of a pattern, `math.sqrt(2)`; raise `ValueError` if it is none."""
    found = parse(Text(text, Location("a pattern")), Scope(frozenset()), Graph())
    value = None if found.result is None else _as_float(evaluated(found.result))
    if value is None:
        raise ValueError(f"no number: {text}")
    return value


def _as_float(value: object) -> Number | None:
    """Return a number as a float, since patterns compare numbers, not their types; None for other values."""
    found = as_number(value)
    if found is None or isinstance(found, complex):
        return None
    return computed("+", found, 0.0)


# Requirements on the values of an identity's names.
KINDS: dict[str, Callable[[Op], bool]] = {
    "tensor": lambda op: op.is_tensor,
    "real": lambda op: op.is_tensor and op.kind != "complex",
    "values": lambda op: op.is_tensor and op.kind != "bool",
    "matrix": lambda op: op.is_tensor and op.shape.rank == 2,
    "matrices": lambda op: op.is_tensor and op.shape.least >= 2,
    "static": lambda op: op.kind == "static",
    "constant": lambda op: op.kind == "static" and not is_length(op),
    "number": lambda op: number_of(op) is not None,
    "negative": is_negative,
    "minus": lambda op: op.is_python("unary", "-"),
}
