"""What is numerically delicate in a forward, and how it is spelled stably: said, never rewritten.

In: the results of a lowered forward. Out: a line for each formula of the table that is met, whatever its spelling.
Invariant: the forward stays as it is; of two patterns that meet in one value the first of the table is told.
"""

import ast
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from scaffold.derive.graph.op import Op, is_number

# --- Formulas that lose digits or overflow where another spelling does not.
#
# In: nothing. Out: the table that `advice` matches. Invariant: a pattern and its stable spelling have the same value in exact
# arithmetic, and no pattern fits a stable spelling.
#
# A pattern is written with the names of rules, Python's operators and numbers; any other name stands for a value, the same
# one at each place. The factors of a product and the terms of a sum may stand the other way around.


class Advice(NamedTuple):
    """Patterns, the first of which says what is meant, the stable spelling, and what is wrong without it."""

    patterns: tuple[str, ...]
    stable: str
    trouble: str
    unless: str = ""  # what the value `x` of the pattern is where there is no trouble

    @property
    def shown(self) -> str:
        """The first pattern, which says what is meant."""
        return self.patterns[0]


OVERFLOWS = "overflows"
UNDERFLOWS = "is -inf where the inner value underflows"
CANCELS = "loses the digits of small results"
NO_SLOPE = "has no finite gradient at 0"

ADVICE = (
    Advice(
        (
            "log(softmax(x, dim))",
            "log(softmax(x, dim) + eps)",
            "softmax(x, dim) * log(softmax(x, dim))",
        ),
        "torch.log_softmax(x, dim)",
        UNDERFLOWS,
    ),
    Advice(
        ("cross_entropy(softmax(x, dim), target)",),
        "F.cross_entropy(x, target)",
        "applies the softmax twice: F.cross_entropy takes logits",
    ),
    Advice(
        ("binary_cross_entropy(sigmoid(x), target)",),
        "F.binary_cross_entropy_with_logits(x, target)",
        "loses the digits of confident predictions",
    ),
    Advice(("log(1 - sigmoid(x))",), "F.logsigmoid(-x)", UNDERFLOWS),
    Advice(
        ("log(sigmoid(x))", "log(sigmoid(x) + eps)", "log(1 / (1 + exp(-x)))"),
        "F.logsigmoid(x)",
        UNDERFLOWS,
    ),
    Advice(
        ("log(1 + exp(x))", "log1p(exp(x))"),
        "F.softplus(x)",
        OVERFLOWS,
        unless="nonpositive",
    ),
    Advice(
        ("log(exp(x) + exp(y))",), "torch.logaddexp(x, y)", OVERFLOWS, unless="shifted"
    ),
    Advice(
        ("log(sum(exp(x), dim))", "log(mean(exp(x), dim))"),
        "torch.logsumexp(x, dim)",
        OVERFLOWS,
        unless="shifted",
    ),
    Advice(
        ("log(cumsum(exp(x), dim))",),
        "torch.logcumsumexp(x, dim)",
        OVERFLOWS,
        unless="shifted",
    ),
    Advice(
        ("exp(x) / sum(exp(x), dim)",),
        "torch.softmax(x, dim)",
        OVERFLOWS,
        unless="shifted",
    ),
    Advice(
        ("(exp(x) - exp(-x)) / (exp(x) + exp(-x))",),
        "torch.tanh(x)",
        OVERFLOWS,
    ),
    Advice(
        ("1 / (1 + exp(-x))", "reciprocal(1 + exp(-x))"),
        "torch.sigmoid(x)",
        OVERFLOWS,
        unless="nonnegative",
    ),
    Advice(
        ("1 / (1 + exp(x))", "reciprocal(1 + exp(x))"),
        "torch.sigmoid(-x)",
        OVERFLOWS,
        unless="nonpositive",
    ),
    Advice(
        ("exp(x) / (1 + exp(x))",),
        "torch.sigmoid(x)",
        OVERFLOWS,
        unless="nonpositive",
    ),
    Advice(("log(cosh(x))",), "F.softplus(2 * x) - x - math.log(2)", OVERFLOWS),
    Advice(("1 - sigmoid(x)",), "torch.sigmoid(-x)", CANCELS),
    Advice(("log(1 - exp(x))",), "torch.log(-torch.expm1(x))", CANCELS),
    Advice(("exp(x) - 1",), "torch.expm1(x)", CANCELS),
    Advice(("log(1 + x)",), "torch.log1p(x)", CANCELS),
    Advice(("log(1 - x)",), "torch.log1p(-x)", CANCELS),
    Advice(("1 - erf(x)",), "torch.erfc(x)", CANCELS),
    Advice(("1 - cos(x)",), "2 * torch.sin(x / 2) ** 2", CANCELS),
    Advice(
        ("mean(x * x, dim) - mean(x, dim) * mean(x, dim)",),
        "x.var(dim, unbiased=False)",
        CANCELS,
    ),
    Advice(
        ("x / norm(x)", "x / vector_norm(x)", "x / sqrt(sum(x * x))"),
        "F.normalize(x, dim=dim)",
        "divides by zero where x is 0",
    ),
    Advice(
        ("sqrt(sum(x * x))",),
        "torch.linalg.vector_norm(x, dim=dim)",
        NO_SLOPE,
    ),
    Advice(("sqrt(x * x + y * y)",), "torch.hypot(x, y)", NO_SLOPE),
    Advice(("sqrt(x * x)",), "x.abs()", NO_SLOPE),
    Advice(("log(prod(x, dim))",), "torch.log(x).sum(dim)", OVERFLOWS),
    Advice(("log(det(x))",), "torch.logdet(x)", OVERFLOWS),
    Advice(
        ("inv(a) @ b",),
        "torch.linalg.solve(a, b)",
        "loses digits where a is nearly singular",
    ),
    Advice(("x * log(x)",), "torch.special.xlogy(x, x)", "is NaN where x is 0"),
    Advice(("sin(x) / x",), "torch.sinc(x / math.pi)", "is NaN where x is 0"),
)


# --- What is numerically delicate in a forward, and how it is spelled stably: said, never rewritten.


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
