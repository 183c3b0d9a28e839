"""Ops and formulas in one form in which two ways of writing the same are equal.

In: a forward op, or a node over a rule's parameters. Out: a `Term`. Invariant: the term has their value; products and sums
are flat, with one constant each.
"""

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import UNKNOWN, Op, literal
from scaffold.derive.rules.table import Rule
from scaffold.formula import Node

# --- Ops and formulas in one form in which two ways of writing the same are equal.


BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow_exponent"}
DEEPEST = 9  # how far down a composition may reach
HIGHEST = 4  # the power up to which it is so many factors
MATH: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
}
ROUNDING = 8e-15
CONSTANTS = {"pi": math.pi, "e": math.e}


class Term(NamedTuple):
    """A product, a sum, a call, a Python value or a parameter."""

    kind: Literal["product", "sum", "call", "value", "parameter"]
    label: str = ""  # of a call: its rule; of a value that is no number: its text
    args: tuple["Term", ...] = ()  # factors above the line, terms, arguments
    below: tuple["Term", ...] = ()  # factors below the line
    value: float = 0.0  # the constant of a product or a sum, or a number
    op: Op | None = None


def close(one: float, two: float) -> bool:
    """Whether two constants are the same but for rounding."""
    return math.isclose(one, two, rel_tol=ROUNDING)


def of_op(op: Op, depth: int = DEEPEST) -> Term:
    """The term of an op; what is deep below it is left as it is."""
    if not op.is_tensor:
        return _static(op)
    if not depth:
        return Term("call", f"<{op.serial}>", op=op)
    term = _combined(op.rule, lambda: [of_op(item, depth - 1) for item in op.args])
    return term._replace(op=op)


def _static(op: Op) -> Term:
    value = literal(op)
    if op.rule == "static":
        number = evaluated(op.expression)
        plain = Term("value", f"<{op.serial}>", op=op)
        return plain if number is None else _number(number)._replace(op=op)
    if value is UNKNOWN:
        return Term("value", f"<{op.serial}>", op=op)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)._replace(op=op)
    if op.rule == "list" and len(op.args) == 1:
        return _static(op.args[0])._replace(op=op)
    return Term("value", repr(value), op=op)


def _number(value: float) -> Term:
    return Term("value", value=float(value))


def of_node(node: Node, names: frozenset[str]) -> Term:
    """The term of a formula over parameters."""
    if node.kind == "name" and node.label in names:
        return Term("parameter", node.label)
    number = evaluated(node)
    if number is not None:
        return _number(number)
    if node.kind == "constant":
        return Term("value", node.label)
    if node.kind == "call":
        callee, *args = node.args
        return Term("call", callee.label, tuple(of_node(item, names) for item in args))
    label = "neg" if node.kind == "unary" else BINARY[node.label]
    return _combined(label, lambda: [of_node(item, names) for item in node.args])


def _combined(rule: str, parts: Callable[[], list[Term]]) -> Term:
    match rule:
        case "mul":
            return _product(*map(_factors, parts()))
        case "div":
            above, below = map(_factors, parts())
            return _product(above, _inverse(below))
        case "neg":
            return _product(_number_factor(-1.0), _factors(parts()[0]))
        case "add":
            return _sum(*map(_summands, parts()))
        case "sub":
            one, two = parts()
            minus = _product(_number_factor(-1.0), _factors(two))
            return _sum(_summands(one), _summands(minus))
        case "pow_exponent":
            base, exponent = parts()
            if exponent.kind == "value" and exponent.value in range(2, HIGHEST + 1):
                return _product(*[_factors(base)] * int(exponent.value))
            return Term("call", rule, (base, exponent))
    return Term("call", rule, tuple(parts()))


def _number_factor(value: float) -> Term:
    return Term("product", value=value)


def _factors(term: Term) -> Term:
    """A term as a product."""
    if term.kind == "product":
        return term
    if term.kind == "value" and not term.label:
        return _number_factor(term.value)
    return Term("product", args=(term,), value=1.0)


def _inverse(term: Term) -> Term:
    value = 1 / term.value if term.value else math.inf
    return Term("product", args=term.below, below=term.args, value=value)


def _product(*parts: Term) -> Term:
    args = tuple(item for part in parts for item in part.args)
    below = tuple(item for part in parts for item in part.below)
    return Term("product", "", args, below, math.prod(part.value for part in parts))


def _summands(term: Term) -> Term:
    """A term as a sum."""
    if term.kind == "sum":
        return term
    if term.kind == "value" and not term.label:
        return Term("sum", value=term.value)
    return Term("sum", args=(term,))


def _sum(*parts: Term) -> Term:
    args = tuple(item for part in parts for item in part.args)
    return Term("sum", "", args, (), math.fsum(part.value for part in parts))


def evaluated(node: Node) -> float | None:
    """The number that an expression without names is."""
    match node:
        case Node("constant", text):
            return _read(text)
        case Node("unary", "-", (inner,)):
            value = evaluated(inner)
            return None if value is None else -value
        case Node("attribute", label, (Node("name", "math"),)):
            return CONSTANTS.get(label)
        case Node("call", _, (Node("attribute", label, (Node("name", "math"),)), arg)):
            value = evaluated(arg)
            return MATH[label](value) if label in MATH and value else None
        case Node("binary", label, (left, right)):
            return _binary(label, evaluated(left), evaluated(right))
    return None


def _read(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _binary(label: str, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    match label:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right:
            return left / right
        case "**" if left > 0:
            return float(left**right)
    return None


# --- What a forward spells out in several primitives and another one computes alone: `x * sigmoid(x)` is silu.
#
# In: a forward op, and the compositions of the rule table. Out: the rule and its arguments. Invariant: the op has the rule's
# value for all arguments; constants agree to the last digits, factors and terms may stand in any order.


HEADS = frozenset({"add", "sub", "mul", "div", "neg", "log", "exp", "log1p"})
Bound = dict[str, Op]


class Composition(NamedTuple):
    """A rule, and what stands for each of its parameters."""

    rule: Rule
    args: Bound


class Composer:
    """Finds the rules that ops of one program compose."""

    def __init__(self, applier: Applier) -> None:
        self.applier = applier
        self.known: dict[Op, Composition | None] = {}
        self.patterns: list[tuple[Rule, Term]] | None = None

    def __call__(self, op: Op) -> Composition | None:
        """The rule that computes what an op does in several steps."""
        if op.rule not in HEADS or op.kind != "real":
            return None
        if op not in self.known:
            self.known[op] = self._found(of_op(op), op)
        return self.known[op]

    def _found(self, term: Term, op: Op) -> Composition | None:
        if self.patterns is None:
            self.patterns = [
                (rule, of_node(pattern, _names(rule)))
                for rule, pattern in self.applier.table.compositions()
            ]
        for rule, pattern in self.patterns:
            for bound in matches(pattern, term, {}):
                if _fits(op, bound):
                    return Composition(rule, self._with_defaults(rule, bound))
        return None

    def _with_defaults(self, rule: Rule, bound: Bound) -> Bound:
        """What stands for parameters; one that the formulas do not read may be missing."""
        defaults = {
            item.name: self.applier.default(item.default)
            for item in rule.parameters
            if item.default is not None
        }
        return defaults | bound


def _names(rule: Rule) -> frozenset[str]:
    return frozenset(item.name for item in rule.parameters)


def _fits(op: Op, args: Bound) -> bool:
    """Whether nothing is broadcast: the rule's tensors have the result's shape."""
    tensors = [item for item in args.values() if item.is_tensor]
    return bool(tensors) and all(
        item.shape == op.shape and item.kind == "real" for item in tensors
    )


def matches(pattern: Term, term: Term, bound: Bound) -> Iterator[Bound]:
    """The arguments for which a pattern is the term."""
    if pattern.kind == "parameter":
        known = bound.get(pattern.label)
        if term.op is not None and known in (None, term.op):
            yield {**bound, pattern.label: term.op}
    elif (
        pattern.kind != term.kind
        or pattern.label != term.label
        or not close(pattern.value, term.value)
    ):
        return
    elif pattern.kind == "call":
        yield from _in_order(pattern.args, term.args, bound)
    else:
        for half in _in_any_order(pattern.below, term.below, bound):
            yield from _in_any_order(pattern.args, term.args, half)


Terms = tuple[Term, ...]


def _in_order(patterns: Terms, terms: Terms, bound: Bound) -> Iterator[Bound]:
    if len(patterns) != len(terms):
        return
    if not patterns:
        yield bound
        return
    for found in matches(patterns[0], terms[0], bound):
        yield from _in_order(patterns[1:], terms[1:], found)


def _in_any_order(patterns: Terms, terms: Terms, bound: Bound) -> Iterator[Bound]:
    """What is most particular first: a parameter fits anything."""
    if len(patterns) != len(terms):
        return
    if not patterns:
        yield bound
        return
    ordered = sorted(patterns, key=lambda item: item.kind == "parameter")
    for position, term in enumerate(terms):
        rest = terms[:position] + terms[position + 1 :]
        for found in matches(ordered[0], term, bound):
            yield from _in_any_order(tuple(ordered[1:]), rest, found)
