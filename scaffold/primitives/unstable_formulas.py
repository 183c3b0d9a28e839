"""Formulas with a more accurate equivalent: they lose digits or overflow.

A user who writes `torch.log(1 + torch.exp(x))` is told that it overflows, and to write `F.softplus(x)`.

In: nothing. Out: `ADVICE`, the table `scaffold.derive` compares forwards with. Invariant: a pattern and its stable spelling have
the same value in exact arithmetic, and no pattern matches a stable spelling.

A pattern is written with the names of primitives, Python's operators and numbers; any other name stands for a value,
the same one at each place. It matches any spelling: the factors of a product and the terms of a sum in any order,
`x.square()` for `x * x`. Arguments missing in a pattern may have any value.
"""

from typing import NamedTuple


class Advice(NamedTuple):
    """Unstable formulas of one value, `patterns`, with its stable spelling, and the trouble without it, as a message has it.

    The first pattern is the typical one. `unless` names a property, such as "nonpositive", with which there is no trouble.
    """

    patterns: tuple[str, ...]
    stable: str
    trouble: str
    unless: str = ""  # no trouble if the value `x` of the pattern has this property

    @property
    def shown(self) -> str:
        """Return the first pattern, for messages."""
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
        (
            "cross_entropy(softmax(x, dim), target)",
            "nll_loss_of_rows(log_softmax(softmax(x, dim), classes), target)",
        ),
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
        ("log(sum(exp(x), dim))", "log(mean(exp(x), dim))", "log(nansum(exp(x), dim))"),
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
        (
            "x / norm(x)",
            "x / vector_norm(x)",
            "x / linalg_norm(x)",
            "x / sqrt(sum(x * x))",
        ),
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
    Advice(
        ("log(prod(x, dim))", "log(prod_all(x))"), "torch.log(x).sum(dim)", OVERFLOWS
    ),
    Advice(("log(det(x))",), "torch.logdet(x)", OVERFLOWS),
    Advice(
        ("inv(a) @ b",),
        "torch.linalg.solve(a, b)",
        "loses digits where a is nearly singular",
    ),
    Advice(("x * log(x)",), "torch.special.xlogy(x, x)", "is NaN where x is 0"),
    Advice(("sin(x) / x",), "torch.sinc(x / math.pi)", "is NaN where x is 0"),
)
