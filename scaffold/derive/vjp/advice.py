"""What is numerically delicate in a forward, and how it is spelled stably: said, never rewritten.

In: the results of a lowered forward. Out: a line for each formula of the table that is met, whatever its spelling.
Invariant: the forward stays as it is; of two patterns that meet in one value the first of the table is told.
"""

import ast
from collections.abc import Callable, Iterable
from functools import cache

from scaffold.derive.vjp.advice_table import ADVICE, Advice
from scaffold.derive.vjp.ir import Op, is_number

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
}
COMMUTES = frozenset({"add", "mul"})
# Other rules that are one of the patterns'.
SAME = {
    "sum": ("sum", "nansum"),
    "norm": ("norm", "linalg_norm"),
    "prod": ("prod", "prod_all"),
}
LARGEST = frozenset(
    {"amax", "max_all", "max_dim", "logsumexp", "cummax", "aminmax", "maximum"}
)
Values = dict[str, Op]


def advice(results: Iterable[Op]) -> tuple[str, ...]:
    """What to say of a forward."""
    told: dict[str, None] = {}
    inside = set[Op]()
    for op in _from_outside(results):
        if op in inside or not op.is_tensor:
            continue
        for item in ADVICE:
            parts = _met(item, op)
            if parts:
                told[f"{item.shown} {item.trouble}; stable is {item.stable}"] = None
                inside |= parts
                break
    return tuple(told)


def _from_outside(results: Iterable[Op]) -> list[Op]:
    """The ops of a forward, those that read others first."""
    found = {op.serial: op for result in results for op in result.walk()}
    return [found[serial] for serial in sorted(found, reverse=True)]


@cache
def _trees(patterns: tuple[str, ...]) -> tuple[ast.expr, ...]:
    return tuple(ast.parse(text, mode="eval").body for text in patterns)


def _met(item: Advice, op: Op) -> set[Op]:
    """The ops inside the first pattern that a value has; none where it has no pattern."""
    harmless = HARMLESS.get(item.unless)
    for tree in _trees(item.patterns):
        values, parts = Values(), set[Op]()
        fits = _fits(tree, op, values, parts)
        if fits and not (harmless and harmless(values["x"])):
            return parts
    return set()


def _fits(tree: ast.expr, op: Op, values: Values, parts: set[Op]) -> bool:
    match tree:
        case ast.Name(name):
            return values.setdefault(name, op) is op
        case ast.Constant(int(value)):
            return is_number(op, value)
    parts.add(op)
    match tree:
        case ast.UnaryOp(ast.USub(), inner):
            return op.rule == "neg" and _fits(inner, op.args[0], values, parts)
        case ast.BinOp(left, ast.Mult(), right) if ast.dump(left) == ast.dump(right):
            return _is_square(left, op, values, parts)
        case ast.BinOp(left, operator, right):
            rules = (OPERATORS[type(operator)],)
            return op.rule in rules and _both(op, (left, right), values, parts)
        case ast.Call(ast.Name(name), args):
            return op.rule in SAME.get(name, (name,)) and _all(
                args, op.args, values, parts
            )
    raise AssertionError(f"no pattern: {ast.dump(tree)}")


def _both(
    op: Op, pair: tuple[ast.expr, ast.expr], values: Values, parts: set[Op]
) -> bool:
    """The two sides of an operator, in either order where that is the same."""
    known = dict(values)
    if _all(list(pair), op.args, values, parts):
        return True
    values.clear()
    values.update(known)
    turned = [pair[1], pair[0]]
    return op.rule in COMMUTES and _all(turned, op.args, values, parts)


def _all(
    trees: list[ast.expr], args: tuple[Op, ...], values: Values, parts: set[Op]
) -> bool:
    return len(args) >= len(trees) and all(
        _fits(tree, arg, values, parts) for tree, arg in zip(trees, args, strict=False)
    )


def _is_square(tree: ast.expr, op: Op, values: Values, parts: set[Op]) -> bool:
    """`x * x`, `x ** 2`, `x.square()`."""
    power = op.rule in ("pow_exponent", "pow") and is_number(op.args[1], 2)
    if op.rule == "square" or power or (op.rule == "mul" and op.args[0] is op.args[1]):
        return _fits(tree, op.args[0], values, parts)
    return False


def _is_shifted(op: Op) -> bool:
    """`x - x.amax()`: its exponential cannot overflow."""
    below = op.args[1].walk() if op.rule == "sub" else ()
    return any(item.rule in LARGEST for item in below) or _is_nonpositive(op)


def _is_nonpositive(op: Op) -> bool:
    """`-x.abs()`, `-(x * x)`, `-x * x`."""
    if op.rule == "neg":
        return _is_nonnegative(op.args[0])
    if op.rule in ("mul", "div"):
        one, two = op.args
        turned = one.rule == "neg" and one.args[0] is two and op.rule == "mul"
        return (
            turned
            or (_is_nonpositive(one) and _is_nonnegative(two))
            or (_is_nonnegative(one) and _is_nonpositive(two))
        )
    return op.rule == "logsigmoid" or _number(op) <= 0


def _is_nonnegative(op: Op) -> bool:
    if op.rule in ("abs", "relu", "square", "exp", "sigmoid", "softplus"):
        return True
    if op.rule == "pow_exponent":
        return any(is_number(op.args[1], even) for even in (2, 4, 6))
    if op.rule in ("mul", "div"):
        same = op.args[0] is op.args[1]
        return same or all(map(_is_nonnegative, op.args))
    if op.rule in ("sum", "mean"):
        return _is_nonnegative(op.args[0])
    return op.rule == "const" and _number(op) > 0


def _number(op: Op) -> float:
    """A constant, and for what is none a number that says nothing."""
    from math import nan

    value = op.value if op.rule == "const" else None
    return value if isinstance(value, int | float) else nan


HARMLESS: dict[str, Callable[[Op], bool]] = {
    "nonpositive": _is_nonpositive,
    "shifted": _is_shifted,
    "nonnegative": _is_nonnegative,
}
