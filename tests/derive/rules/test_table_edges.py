"""Rules at zeros, ties and infinities: where autograd has a finite gradient, the rule has the same."""

import itertools
import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive.rules.sample_calls import Drawn, Several
from scaffold.derive.rules.table import Rule, built_in
from scaffold.formula import Node
from scaffold.verify.child.rule_runs import Run, drawn_values
from scaffold.verify.child.rule_values import Values
from tests.derive.rules.test_table import RULES, samples
from tests.sweeps import in_every_run

TABLE = built_in()
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, math.inf, -math.inf)
ROWS = (
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 1.0, 0.0, 2.0),
    (2.0, -1.0, 2.0, 2.0),
    (0.0, 3.0, 0.0, -1.0),
    (-math.inf, 1.0, -math.inf, 0.5),
    (-math.inf, -math.inf, -math.inf, -math.inf),
    (math.inf, 0.0, 1.0, 1.0),
)
POINTWISE = [
    rule
    for rule in RULES
    if rule.formulas
    and rule.category in ("elementwise", "loss")
    and rule.facts.complex != "only"
]
ALONG = [
    rule
    for rule in RULES
    if rule.formulas
    and rule.category in ("reduction", "same_shape")
    and rule.facts.singular != "rank"  # of a matrix, which PyTorch refuses with NaN
]


def agree(run: Run) -> None:
    """Compare where autograd is finite, and says something: where the call gives no NaN."""
    told = ~run.outputs[0].isnan() if run.rule.category != "reduction" else None
    for formula, got, wanted in run.variants():
        assert got.shape == wanted.shape
        finite = wanted.isfinite()
        if told is not None and told.shape == wanted.shape:
            finite = finite & told
        # Differences tell what PyTorch errs by: in the eighth digit, of its Bessel functions beyond 5.
        rtol = 1e-4 if run.opaque else 1e-6
        close = torch.isclose(got, wanted, rtol=rtol, atol=1e-9)
        wrong = finite & ~close
        if wrong.any():
            places = {
                name: value[wrong]
                for name, value in run.given.items()
                if isinstance(value, Tensor) and value.shape == wrong.shape
            }
            report = f"{places}\n{got[wrong]} for {wanted[wrong]}"
            pytest.fail(f"[{run.rule.name}] {formula}\n{report}")


def grid(count: int) -> list[Tensor]:
    """Every combination of the edges, a tensor for each argument."""
    several = EDGES if count < 3 else EDGES[:3] + EDGES[-2:]
    rows = list(itertools.product(several, repeat=count))
    return list(torch.tensor(rows, dtype=torch.float64).T.contiguous())


def on_grid(rule: Rule, sample: dict[str, Any]) -> Values:
    given = drawn_values(TABLE, rule, sample)
    names = [
        name
        for name in rule.formulas
        if isinstance(given.get(name), Tensor) and given[name].ndim
    ]
    places = grid(len(names))
    for name, value in zip(names, places, strict=True):
        unit = rule.domain.get(name) == "unit"  # the call itself refuses other values
        given[name] = value.clamp(0, 1) if unit else value
    for name, value in given.items():
        if isinstance(value, Tensor) and value.ndim and name not in names:
            given[name] = value.reshape(-1)[:1].expand(places[0].shape)
    return given


@pytest.mark.parametrize(
    "rule",
    in_every_run(POINTWISE, POINTWISE[::2], pytest.mark.each_commit),
    ids=lambda rule: str(rule.name),
)
def test_pointwise_rules_are_right_at_edges(rule: Rule) -> None:
    for sample in samples(rule):
        agree(Run(TABLE, rule, on_grid(rule, sample)))


@pytest.mark.parametrize(
    "rule",
    in_every_run(POINTWISE, POINTWISE[1::2], pytest.mark.each_commit),
    ids=lambda rule: str(rule.name),
)
def test_where_autograd_says_nan_a_rule_does_not_say_zero(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NaN that a gradient hides would be looked for in the wrong place."""
    monkeypatch.setattr(sys.modules[__name__], "EDGES", (0.0, 1.0, math.nan, -2.0))
    for sample in samples(rule):
        try:
            run = Run(TABLE, rule, on_grid(rule, sample))
        except RuntimeError as error:
            assert "between 0 and 1" in str(error)  # which the call itself refuses
            continue
        tensors = [one for one in run.given.values() if isinstance(one, Tensor)]
        for formula, got, wanted in run.variants():
            of_nan = torch.zeros_like(wanted)
            for one in tensors:
                of_nan += one.isnan() if one.shape == wanted.shape else 0
            hidden = wanted.isnan() & ~got.isnan() & (of_nan > 0)
            assert not hidden.any(), f"[{rule.name}] {formula}"


def along(
    rule: Rule, sample: dict[str, Any], several: tuple[tuple[float, ...], ...] = ROWS
) -> Values | None:
    """The sample with x of the rows above, whichever dimension is meant."""
    given = drawn_values(TABLE, rule, sample)
    if given["x"].ndim != 2 or any(
        not isinstance(item, Node) for name, item in sample.items() if name != "x"
    ):
        return None
    rows = torch.tensor(several, dtype=torch.float64)
    given["x"] = rows.mT.contiguous() if given.get("dim") == 0 else rows
    return given


@pytest.mark.parametrize("rule", ALONG, ids=lambda rule: rule.name)
def test_rules_along_a_dimension_are_right_at_edges(rule: Rule) -> None:
    for sample in samples(rule):
        for several in (ROWS, ROWS[:4]):
            given = along(rule, sample, several)
            if given is not None:
                agree(Run(TABLE, rule, given))


@pytest.mark.parametrize(
    "rule",
    in_every_run(ALONG + POINTWISE, ALONG + POINTWISE[1::2], pytest.mark.each_commit),
    ids=lambda rule: str(rule.name),
)
def test_rules_work_on_tensors_without_elements(rule: Rule) -> None:
    for sample in samples(rule):
        least = 2 if rule.category == "same_shape" else 1  # its x is no vector
        emptied = {
            name: without_elements(value, least) for name, value in sample.items()
        }
        try:
            run = Run(TABLE, rule, drawn_values(TABLE, rule, emptied))
        except (RuntimeError, IndexError):  # the call itself is not for them
            continue
        agree(run)


def without_elements(argument: Any, least: int) -> Any:
    """A tensor of a sample with its first size 0, if it has `least` dimensions."""
    if isinstance(argument, Drawn) and len(argument.sizes) >= least:
        first = 0 if argument.sizes[0] != 1 else 1
        return Drawn(argument.name, (first, *argument.sizes[1:]))
    if isinstance(argument, Several):
        return Several(tuple(without_elements(item, least) for item in argument.items))
    return argument


@pytest.mark.parametrize("base", [0.0, -2.0])
def test_powers_of_what_has_no_logarithm(base: float) -> None:
    """Of a negative base autograd has NaN, of zero it is finite where the exponent is not negative."""
    (exponents,) = grid(1)
    run = Run(TABLE, TABLE.rule("pow_base"), {"base": base, "y": exponents})
    ((_, got, wanted),) = run.variants()
    torch.testing.assert_close(got, wanted, equal_nan=True)


ZEROS = torch.zeros(2, dtype=torch.float64)
NOTHING = torch.full((2,), -math.inf, dtype=torch.float64)
POINTS = torch.ones(2, 3, dtype=torch.float64)
WITH_NAN = torch.tensor([math.nan, 1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "given", "factor"),
    [
        ("hypot", {"x": ZEROS, "y": ZEROS}, 0.0),
        ("logaddexp", {"x": NOTHING, "y": NOTHING}, 0.5),
        ("logaddexp2", {"x": NOTHING, "y": NOTHING}, 0.5),
        ("cdist", {"x1": POINTS, "x2": POINTS}, 0.0),
        ("dist", {"x": POINTS, "y": POINTS}, 0.0),
        ("matrix_norm", {"x": torch.zeros(2, 3, dtype=torch.float64)}, 0.0),
        ("nansum", {"x": WITH_NAN}, [0.0, 1.0]),
    ],
)
def test_where_autograd_has_nan_the_rule_need_not(
    name: str, given: Values, factor: float | list[float]
) -> None:
    """A subgradient, and of two nothings that are added each has its half."""
    run = Run(TABLE, TABLE.rule(name), dict(given))
    factors = torch.tensor(factor, dtype=torch.float64)
    grad = run.interpret.values["grad"]
    for formula, got, _ in run.variants():
        wanted = factors * (grad if grad.shape == got.shape else grad.sum())
        torch.testing.assert_close(got, wanted.expand_as(got), msg=formula)


def test_a_product_of_zeros_has_a_gradient() -> None:
    for name, zeros in (("prod", 0), ("prod", 1), ("prod", 2)):
        x = torch.tensor([[2.0, 3.0, 5.0]], dtype=torch.float64)
        x[0, :zeros] = 0
        agree(Run(TABLE, TABLE.rule(name), {"x": x, "dim": -1}))


TAILS = tuple(
    sign * size
    for size in (1e-6, 1e-3, 0.3, 2.0, 8.0, 20.0, 40.0, 88.0)
    for sign in (1, -1)
)
SEVERAL_TAILS = ((), TAILS, (1e-4, 0.5, 3.0, 20.0, -1e-4, -0.5, -3.0, -20.0))
FEW_TAILS = (0.01, 2.0, -0.01, -2.0)
EPSILON = 2.0**-24  # half a unit in the last place of float32


def in_the_tails(rule: Rule, sample: dict[str, Any], dtype: torch.dtype) -> Values:
    """Small and large values, each of them a float32, for every argument that has a formula."""
    given = drawn_values(TABLE, rule, sample)
    drawn = [
        name
        for name, value in given.items()
        if isinstance(value, Tensor) and value.ndim and value.is_floating_point()
    ]
    names = [name for name in rule.formulas if name in drawn]
    several = SEVERAL_TAILS[len(names)] if len(names) < 3 else FEW_TAILS
    rows = torch.tensor(list(itertools.product(several, repeat=len(names))))
    for name, value in zip(names, rows.T, strict=True):
        domain = rule.domain.get(name, "any")
        inside = value.sigmoid() if domain.startswith(("unit", "(0, 1)")) else value
        given[name] = (
            inside.abs() if domain.startswith("positive") else inside
        ).clone()
    for name in drawn:
        if name not in names:
            given[name] = given[name].reshape(-1)[:1].expand(len(rows)).clone()
        given[name] = given[name].float().to(dtype)
    return given


@pytest.mark.parametrize(
    "rule",
    in_every_run(POINTWISE, POINTWISE[::2], pytest.mark.each_commit),
    ids=lambda rule: str(rule.name),
)
def test_tails_are_as_good_as_autograd_s(rule: Rule) -> None:
    """In float32, beside the truth in float64: an error of four times autograd's own at most.

    Or of 20 roundings: `exp(-19)` of a rounded argument has as many, with some instructions of a processor and not with others.
    """
    for sample in samples(rule):
        try:
            single, double = (
                Run(TABLE, rule, in_the_tails(rule, sample, dtype))
                for dtype in (torch.float32, torch.float64)
            )
        except (RuntimeError, IndexError):  # the call itself is not for them
            continue
        grads = [run.interpret.values["grad"].double() for run in (single, double)]
        told = ~single.outputs[0].isnan()
        ours = (*single.variants(), *single.fused())
        truths = (*double.variants(), *double.fused())
        for (formula, got, own), (_, _, truth) in zip(ours, truths, strict=True):
            right = truth / grads[1]
            errors = [(item / grads[0] - right).abs() for item in (got, own)]
            least = torch.maximum(errors[1], right.abs() * (5 * EPSILON))
            counts = right.isfinite() & errors[1].isfinite() & (right.abs() > 1e-37)
            bad = counts & told & ~(errors[0] <= 4 * least)
            assert not bad.any(), f"[{rule.name}] {formula}: {errors[0][bad]}"


@pytest.fixture(autouse=True)
def the_same_values() -> None:
    """In every order of tests: of unlucky ones, `exp(x) - target` loses digits that autograd happens to keep."""
    torch.manual_seed(0)


ROWS_OF_TAILS = {
    "small": ((1e-4, 2e-4, 5e-4, 1.1e-3), (1e-6, 3e-6, 2e-6, 4e-6)),
    "large": ((20, -20, 3, 0.5), (88, 1, -40, 8), (-20, -8, -3, -1), (40, 39, 38, 37)),
    "close": ((1, 1.0001, 0.9999, 1.0002), (5, 5.001, 4.999, 5.0003)),
    "mixed": ((1e-6, 1e-3, 0.3, 2), (-1e-6, 8, 1e-3, -2), (0.3, -0.3, 2, -8)),
}


def in_rows(
    rule: Rule, sample: dict[str, Any], several: Any, dtype: torch.dtype
) -> Values | None:
    """The sample with x of such rows, each value of it a float32."""
    given = along(rule, sample, several)
    if given is None:
        return None
    domain = rule.domain.get("x", "any")
    if domain.startswith("positive"):
        given["x"] = given["x"].abs()
    if domain.startswith(("unit", "(0, 1)")):
        given["x"] = given["x"].sigmoid()
    return {
        name: (
            value.float().to(dtype)
            if isinstance(value, Tensor) and value.is_floating_point()
            else value
        )
        for name, value in given.items()
    }


def with_float32(
    rule: Rule, given: Values | None, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """A run whose output gradients are the same in every precision."""
    assert given is not None
    torch.manual_seed(5)
    draw = torch.randn
    with monkeypatch.context() as patched:
        patched.setattr(torch, "randn", lambda size, dtype: draw(size).to(dtype))
        return Run(TABLE, rule, given)


@pytest.mark.parametrize("rule", ALONG, ids=lambda rule: rule.name)
def test_tails_along_a_dimension_are_as_good_as_autograd_s(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, by rows: their elements have a sum in common, and its error."""
    for sample, several in itertools.product(samples(rule), ROWS_OF_TAILS.values()):
        values = [
            in_rows(rule, sample, several, dtype)
            for dtype in (torch.float32, torch.float64)
        ]
        if values[0] is None:
            continue
        single, double = (with_float32(rule, item, monkeypatch) for item in values)
        ours = (*single.variants(), *single.fused())
        truths = (*double.variants(), *double.fused())
        for (formula, got, own), (_, _, truth) in zip(ours, truths, strict=True):
            errors = [(item.double() - truth).abs() for item in (got, own)]
            dim = values[0].get("dim", -1)
            largest, own_error = (
                item.amax(dim, keepdim=True) for item in (truth.abs(), errors[1])
            )
            least = torch.maximum(own_error, largest * EPSILON)
            counts = truth.isfinite() & errors[1].isfinite()
            bad = counts & ~(errors[0] <= 4 * least)
            assert not bad.any(), f"[{rule.name}] {formula}: {errors[0][bad]}"


def near(count: int, distance: float) -> Tensor:
    """Points that are so far from the same others, each of them a float32."""
    torch.manual_seed(3)
    others = torch.randn(count, 3, dtype=torch.float64)
    return (others + distance * torch.randn(count, 3).sign()).float()


@pytest.mark.parametrize("distance", [1e-6, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("counts", [(4, 4), (4, 26), (26, 4), (40, 40)])
def test_points_that_are_close_have_as_good_gradients_as_autograd_s(
    counts: tuple[int, int], distance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 25 points autograd takes their differences; of more it multiplies, and has as many digits less."""
    one, two = (
        near(count, at) for count, at in zip(counts, (0, distance), strict=True)
    )
    single, double = (
        with_float32(
            TABLE.rule("cdist"), {"x1": one.to(dtype), "x2": two.to(dtype)}, monkeypatch
        )
        for dtype in (torch.float32, torch.float64)
    )
    ours, truths = single.variants(), double.variants()
    for (formula, got, own), (_, _, truth) in zip(ours, truths, strict=True):
        errors = [(item.double() - truth).abs().max() for item in (got, own)]
        least = max(errors[1], truth.abs().max() * EPSILON)
        assert errors[0] <= 4 * least, f"{formula}: {errors}"


NAN_PASSES = (
    *("relu", "relu6", "elu", "selu", "celu"),
    *("hardtanh", "hardshrink", "softshrink", "threshold", "hardswish"),
)


@pytest.mark.parametrize("name", NAN_PASSES)
def test_a_gradient_of_nan_is_autograd_s(name: str) -> None:
    """As on an accelerator and for a few elements: on a CPU PyTorch's vectorized loops have 0 for some of them."""
    rule = TABLE.rule(name)
    for sample in samples(rule):
        given = drawn_values(TABLE, rule, sample)
        given["x"] = torch.tensor([math.nan, 1.0, -1.0], dtype=torch.float64)
        for formula, got, wanted in Run(TABLE, rule, given).variants():
            torch.testing.assert_close(got, wanted, msg=formula)


@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
def test_second_derivatives_at_zero(name: str) -> None:
    rule = TABLE.rule(name)
    for sample in samples(rule):
        given = drawn_values(TABLE, rule, sample)
        given["x"] = torch.tensor([0.0, -0.0, 1.0, -1.0], dtype=torch.float64)
        run = Run(TABLE, rule, given)
        for formula, got, wanted in run.variants():
            found, right = (
                torch.autograd.grad(item.sum(), run.inputs, retain_graph=True)
                for item in (got, wanted)
            )
            torch.testing.assert_close(found, right, msg=formula)


LONG = torch.tensor([[3.0, 4.0]]).double()  # its norm is 5


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("norm", {"x": torch.zeros(2, 3).double(), "p": 0.5, "dim": -1}),
        ("vector_norm", {"x": torch.zeros(2, 3).double(), "ord": 0.5, "dim": -1}),
        ("normalize", {"x": LONG, "eps": 5.0}),
        ("cosine_similarity", {"x1": LONG, "x2": LONG, "eps": 5.0}),
        ("cosine_similarity", {"x1": LONG, "x2": LONG + 1, "eps": 5.0}),
        ("std", {"x": torch.full((2, 3), 0.1).double(), "dim": -1}),
        ("std_unbiased", {"x": torch.full((2, 3), 0.1).double(), "dim": -1}),
    ],
)
def test_a_kink_is_as_in_autograd(name: str, given: Values) -> None:
    agree(Run(TABLE, TABLE.rule(name), dict(given)))


def test_the_margin_of_a_hinge() -> None:
    given = {
        "input": torch.tensor([1.0, 0.5, 2.0]).double(),
        "target": -torch.ones(3).double(),
        "reduction": "sum",
    }
    agree(Run(TABLE, TABLE.rule("hinge_embedding_loss"), given))
