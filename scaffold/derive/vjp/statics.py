"""Arithmetic on what is known before the call: numbers are folded as an author would, the rest is written down.

In: static ops. Out: a static op. Invariant: the same value; a fold that would print a long decimal is not made.
"""

import operator
from collections.abc import Callable

from scaffold.derive.vjp.ir import Number, Op, Program, number
from scaffold.formula import Node

OPERATORS: dict[str, tuple[str, Callable[..., Number]]] = {
    "add": ("+", operator.add),
    "sub": ("-", operator.sub),
    "mul": ("*", operator.mul),
    "div": ("/", operator.truediv),
    "pow": ("**", operator.pow),
    "pow_exponent": ("**", operator.pow),
    "pow_base": ("**", operator.pow),
    "floor_divide": ("//", operator.floordiv),
    "remainder": ("%", operator.mod),
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OF_MATH = frozenset(
    {"exp", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh"}
    | {"cosh", "tanh", "erf", "expm1", "asin", "acos", "atan", "floor", "ceil"}
)
Write = Callable[[Op], Node]


def fold(program: Program, rule: str, args: tuple[Op, ...], write: Write) -> Op | None:
    """The static value of a primitive of static values; None where Python has no such function."""
    if rule in ("conj", "real") and len(args) == 1:
        return args[0]
    values = [number(arg) for arg in args]
    if rule == "neg":
        return _negated(program, args[0], write)
    if rule in OPERATORS and len(args) == 2:
        return _binary(program, rule, args, values, write)
    graph = program.graph
    nodes = tuple(write(arg) for arg in args)
    if rule in COMPARISONS:
        return program.static(graph.node("compare", COMPARISONS[rule], nodes))
    if rule in OF_MATH and len(args) == 1:
        function = graph.node("attribute", rule, (graph.name("math"),))
        return program.static(graph.node("call", "", (function, *nodes)))
    if rule == "abs":
        return program.static(graph.node("call", "", (graph.name("abs"), *nodes)))
    return None


def _negated(program: Program, value: Op, write: Write) -> Op:
    plain = number(value)
    if plain is not None:
        return program.const(-plain)
    node = write(value)
    if node.kind == "unary" and node.label == "-":
        return program.static(node.args[0])
    return program.static(program.graph.node("unary", "-", (node,)))


def _binary(
    program: Program,
    rule: str,
    args: tuple[Op, ...],
    values: list[Number | None],
    write: Write,
) -> Op:
    label, compute = OPERATORS[rule]
    left, right = values
    if left is not None and right is not None:
        result = _short(compute, left, right)
        if result is not None:
            return program.const(result)
    neutral = {"add": (0, 0), "mul": (1, 1), "sub": (None, 0), "div": (None, 1)}
    before, after = neutral.get(rule, (None, None))
    if left is not None and left == before:
        return args[1]
    if right is not None and right == after:
        return args[0]
    if rule == "add" and args[0] is args[1] and left is None:
        return _binary(program, "mul", (program.const(2), args[0]), [2, None], write)
    if rule == "mul":
        product = _product(program, args, values, write)
        if product is not None:
            return product
    if label == "**" and right == 1:
        return args[0]
    nodes = tuple(write(arg) for arg in args)
    return program.static(program.graph.node("binary", label, nodes))


def _product(
    program: Program,
    args: tuple[Op, ...],
    values: list[Number | None],
    write: Write,
) -> Op | None:
    """Numbers first and as one, signs before them; a root times itself is what it is the root of."""
    left, right = args
    if values[1] is not None and values[0] is None:
        return _binary(program, "mul", (right, left), [values[1], None], write)
    one, two = write(left), write(right)
    if one.kind == "unary" and one.label == "-" and values[0] is None:
        inner = _binary(
            program,
            "mul",
            (program.static(one.args[0]), right),
            [None, values[1]],
            write,
        )
        return _negated(program, inner, write)
    if two.kind == "unary" and two.label == "-" and values[1] is None:
        if (
            values[0] is not None
            and not isinstance(values[0], complex)
            and values[0] < 0
        ):
            return _binary(
                program,
                "mul",
                (program.const(-values[0]), program.static(two.args[0])),
                [-values[0], None],
                write,
            )
        inner = _binary(
            program,
            "mul",
            (left, program.static(two.args[0])),
            [values[0], None],
            write,
        )
        return _negated(program, inner, write)
    match one, two:
        case (
            Node("call", _, (Node("attribute", "sqrt"), Node("constant", text))),
            _,
        ) if (
            one is two
        ):
            return (
                program.const(int(text))
                if text.isdigit()
                else program.static(one.args[1])
            )
        case _, Node("binary", "*" | "/" as label, (Node("constant", text), rest)) if (
            values[0] is not None
        ):
            whole = _short(operator.mul, values[0], _number(text))
            if whole is None:
                return None
            if whole == 1 and label == "*":
                return program.static(rest)
            return program.static(
                program.graph.node("binary", label, (write(program.const(whole)), rest))
            )
    return None


def _number(text: str) -> Number:
    return float(text) if not text.isdigit() else int(text)


def _short(
    compute: Callable[..., Number], left: Number, right: Number
) -> Number | None:
    """The result, unless it takes more digits than an author would write."""
    try:
        result = compute(left, right)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    if isinstance(result, float) and result.is_integer() and abs(result) < 2**53:
        whole = isinstance(left, int) and isinstance(right, int)
        return int(result) if whole or abs(result) < 1000 else result
    longest = max(len(repr(left)), len(repr(right))) + 2
    return result if len(repr(result)) <= longest else None
