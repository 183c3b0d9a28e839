"""What is said of numerically delicate forwards: each pattern is met in every spelling, and no stable spelling is."""

import pytest

from scaffold.derive import derive
from scaffold.primitives.unstable_formulas import ADVICE
from tests.derive.building import spec_of

MET = {
    "torch.log_softmax(x, dim)": (
        "torch.log(torch.softmax(x, -1))",
        "x.softmax(dim=-1).log()",
        "torch.log(F.softmax(x, dim=1) + 1e-8)",
        "p = torch.softmax(x, -1); return -(p * torch.log(p)).sum(-1)",
    ),
    "F.cross_entropy(x, target)": ("F.cross_entropy(torch.softmax(a, 1), n)",),
    "F.binary_cross_entropy_with_logits(x, target)": (
        "F.binary_cross_entropy(torch.sigmoid(x), y)",
    ),
    "F.logsigmoid(-x)": ("torch.log(1 - torch.sigmoid(x))",),
    "F.logsigmoid(x)": (
        "torch.log(torch.sigmoid(x))",
        "x.sigmoid().log()",
        "torch.log(1 / (1 + torch.exp(-x)))",
        "torch.log(torch.sigmoid(x) + 1e-6)",
    ),
    "F.softplus(x)": (
        "torch.log(1 + torch.exp(x))",
        "torch.log1p(x.exp())",
        "e = torch.exp(x); s = e + 1; return s.log()",
    ),
    "torch.logaddexp(x, y)": ("torch.log(torch.exp(x) + torch.exp(y))",),
    "torch.logsumexp(x, dim)": (
        "torch.log(torch.exp(x).sum(-1))",
        "x.exp().sum(dim=-1, keepdim=True).log()",
        "torch.log(torch.mean(torch.exp(x), -1))",
    ),
    "torch.logcumsumexp(x, dim)": ("torch.log(torch.cumsum(torch.exp(x), -1))",),
    "torch.softmax(x, dim)": (
        "torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)",
        "e = x.exp(); return e / torch.sum(e, dim=-1, keepdim=True)",
    ),
    "torch.tanh(x)": (
        "(torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))",
    ),
    "torch.sigmoid(x)": (
        "1 / (1 + torch.exp(-x))",
        "torch.reciprocal(torch.exp(-x) + 1)",
        "torch.exp(x) / (1 + torch.exp(x))",
    ),
    "F.softplus(2 * x) - x - math.log(2)": ("torch.log(torch.cosh(x))",),
    "torch.sigmoid(-x)": (
        "1 - torch.sigmoid(x)",
        "1.0 - x.sigmoid()",
        "1 / (1 + torch.exp(x))",
    ),
    "torch.log(-torch.expm1(x))": ("torch.log(1 - torch.exp(x))",),
    "torch.expm1(x)": ("torch.exp(x) - 1", "x.exp() - 1.0", "torch.exp(x).sub(1)"),
    "torch.log1p(x)": ("torch.log(1 + x)", "(x + 1).log()"),
    "torch.log1p(-x)": ("torch.log(1 - x)",),
    "torch.erfc(x)": ("1 - torch.erf(x)",),
    "2 * torch.sin(x / 2) ** 2": ("1 - torch.cos(x)",),
    "x.var(dim, unbiased=False)": (
        "(x * x).mean(-1) - x.mean(-1) ** 2",
        "torch.mean(x.square(), -1) - torch.mean(x, -1).pow(2)",
    ),
    "F.normalize(x, dim=dim)": (
        "x / x.norm(dim=-1, keepdim=True)",
        "x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)",
        "x / torch.sqrt((x ** 2).sum(-1, keepdim=True))",
    ),
    "torch.linalg.vector_norm(x, dim=dim)": (
        "torch.sqrt((x * x).sum(-1))",
        "(x ** 2).sum().sqrt()",
    ),
    "torch.hypot(x, y)": ("torch.sqrt(x * x + y * y)", "(x ** 2 + y ** 2).sqrt()"),
    "x.abs()": ("torch.sqrt(x * x)",),
    "torch.log(x).sum(dim)": ("torch.log(torch.prod(x, -1))",),
    "torch.logdet(x)": ("torch.log(torch.det(a))",),
    "torch.linalg.solve(a, b)": ("torch.linalg.inv(a) @ b",),
    "torch.special.xlogy(x, x)": ("x * torch.log(x)", "torch.log(x) * x"),
    "torch.sinc(x / math.pi)": (
        "1 / x * torch.sin(x)",
        "torch.sin(x) / x",
    ),
}
INPUTS = "x[..., N], y[..., N], a[N, N], b[N, N], n[N; index(N)]"
STABLE = (
    *("F.log_softmax(x, -1)", "F.cross_entropy(a, n)", "F.logsigmoid(-x)"),
    *("F.binary_cross_entropy_with_logits(x, y)", "F.logsigmoid(x)", "F.softplus(x)"),
    *("torch.logaddexp(x, y)", "torch.logsumexp(x, -1)", "torch.logcumsumexp(x, -1)"),
    *("torch.softmax(x, -1)", "torch.tanh(x)", "torch.sigmoid(x)", "torch.sigmoid(-x)"),
    *("F.softplus(2 * x) - x - math.log(2)", "torch.log(-torch.expm1(x))"),
    *("torch.expm1(x)", "torch.log1p(x)", "torch.log1p(-x)", "torch.erfc(x)"),
    *("2 * torch.sin(x / 2) ** 2", "x.var(-1, unbiased=False)", "torch.hypot(x, y)"),
    *("F.normalize(x, dim=-1)", "torch.linalg.vector_norm(x, dim=-1)", "x.abs()"),
    *("torch.log(x).sum(-1)", "torch.logdet(a)", "torch.linalg.solve(a, b)"),
    *("torch.special.xlogy(x, x)", "torch.sinc(x / math.pi)"),
)
# Like a pattern, and without its trouble.
HARMLESS = (
    "torch.log1p(torch.exp(-x.abs()))",
    "e = torch.exp(-x.abs()); return e / (1 + e)",
    "m = x.amax(-1, keepdim=True); return torch.log(torch.exp(x - m).sum(-1)) + m[..., 0]",
    "e = torch.exp(x - x.amax(-1, keepdim=True)); return e / e.sum(-1, keepdim=True)",
    "x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)",
    "torch.sqrt((x * x).sum(-1) + 1e-8)",
    "x / (x.norm(dim=-1, keepdim=True) + 1e-6)",
    "torch.sqrt(x * x + y * y + 1e-3)",
    "torch.exp(x) - y",
    "x / y.norm(dim=-1, keepdim=True)",
    "2 - torch.sigmoid(x)",
    "x * torch.log(y)",
)


def said(forward: str) -> tuple[str, ...]:
    """What is said of a forward, without its place."""
    found = derive(spec_of(INPUTS, forward=forward)).notes
    return tuple(note.removeprefix("--forward: ") for note in found)


@pytest.mark.parametrize(
    ("forward", "stable"),
    [(forward, stable) for stable, forwards in MET.items() for forward in forwards],
)
def test_a_delicate_formula_is_pointed_out(forward: str, stable: str) -> None:
    (words,) = [words for words in said(forward) if "stable is" in words]
    assert words.endswith(f"; stable is {stable}")


def test_every_pattern_of_the_table_has_its_forwards() -> None:
    assert {item.stable for item in ADVICE} == set(MET)


@pytest.mark.parametrize("forward", [*STABLE, *HARMLESS])
def test_of_a_stable_spelling_nothing_is_said(forward: str) -> None:
    assert said(forward) == ()


def test_the_forward_is_not_rewritten() -> None:
    forward = "torch.log(torch.softmax(x, -1))"
    told = derive(spec_of("x", forward=forward, save_policy="recompute"))
    assert told.notes
    assert derive(spec_of("x", forward=forward, derive=False)).forward == told.forward


def test_with_every_gradient_stated_nothing_is_looked_for() -> None:
    spec = spec_of("x", forward="torch.exp(x) - 1", grad={"x": "grad_output * output"})
    assert derive(spec).notes == ()
