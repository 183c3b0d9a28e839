"""Ops and formulas in one form in which two ways of writing the same are equal.

In: a forward op, or a node over a rule's parameters. Out: a `Term`. Invariant: the term has their value; products and sums
are flat, with one constant each.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from scaffold.derive.vjp.ir import UNKNOWN, Op, literal
from scaffold.formula import Node

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
    if isinstance(op.data, Node):
        number = evaluated(op.data)
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
