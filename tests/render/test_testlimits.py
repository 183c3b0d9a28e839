"""What the generated test leaves out: what the forward itself does not take."""

from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.derive.derivation import Forward
from scaffold.derive.forward import live_forward
from scaffold.derive.forward.body import write_forward
from scaffold.formula import Formula
from scaffold.render.layout import Layout
from scaffold.render.reference import reference_lines
from scaffold.render.testdomains import with_domains
from scaffold.render.testlimits import (
    full_rank,
    is_its_derivative,
    maps,
    never_empty,
    precision,
    singular,
    takes_any_layout,
)
from scaffold.render.testsizes import choose_sizes
from scaffold.spec import OpSpec
from scaffold.spec.problems import Sought
from tests.derive.building import spec_of
from tests.render.formatted import suite_file


def suite_of(inputs: str, forward: str, **raw: Any) -> str:
    spec = spec_of(inputs, forward=forward, derive=True, **raw)
    derivation = derive(spec)
    spec = with_domains(spec, derivation)
    layout = Layout(spec.name, f"{spec.name}.py", f"test_{spec.name}.py")
    return suite_file(spec, derivation, layout, reference_lines(spec, derivation))


def test_a_forward_is_written_few_times_for_all_that_is_asked_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = list[object]()

    def counted(spec: OpSpec, formula: Formula) -> Forward:
        written.append(formula)
        return write_forward(spec, formula)

    monkeypatch.setattr(live_forward, "write_forward", counted)
    monkeypatch.setattr(Sought, "found", None)  # no place is searched for
    suite_of("x[N, D], w[N, D]", "y = x / w\nreturn y * y")
    assert len(written) <= 4, "as stated and as tested, and what has a gradient of each"


@pytest.mark.parametrize(
    ("forward", "plain"),
    [
        ("x * x.detach()", False),
        ("x + (x.round() - x).detach()", False),
        ("x * torch.detach(x)", False),
        ("x * w.detach()", True),
        ("x * x", True),
    ],
)
def test_what_is_detached_is_no_function_of_the_inputs(
    forward: str, plain: bool
) -> None:
    spec = spec_of("x[N, D], w[N, D; const]", forward=forward)
    assert is_its_derivative(spec) is plain
    text = suite_of("x[N, D], w[N, D; const]", forward)
    assert ("gradgradcheck(" in text) is plain
    assert "def test_gradients_match_reference" in text


def test_a_stated_gradient_too_is_that_of_autograd_where_something_is_detached() -> (
    None
):
    """Finite differences know of no `detach`: no gradient would pass both tests."""
    text = suite_of("x[N, D]", "x * x.detach()", grad={"x": "grad_output * x"})
    assert "gradgradcheck(" not in text
    assert "def test_gradients_match_reference" in text


def test_what_is_detached_in_another_output_hides_nothing() -> None:
    text = suite_of("x, y", "return x * y, (x - y).detach()", outputs="a, b")
    assert "ends = (0,)" in text and "def test_gradcheck" in text


def test_views_are_of_contiguous_memory() -> None:
    assert not takes_any_layout(spec_of("x[N, D]", forward="x.view(-1)"))
    assert takes_any_layout(spec_of("x[N, D]", forward="x.reshape(-1)"))
    alone = "    layouts = (torch.clone,)\n"
    assert alone in suite_of("x[N, D]", "x.view(-1) * 2")
    assert alone not in suite_of("x[N, D]", "x.reshape(-1) * 2")


@pytest.mark.parametrize(
    ("forward", "mapped"),
    [
        ("(x * F.one_hot(target, 4)).sum(-1)", False),
        ("x[mask].sum()", False),
        ("x[:, target].sum()", True),
        ("torch.where(mask, x, 0)", True),
    ],
)
def test_vmap_is_left_out_where_the_forward_has_none(
    forward: str, mapped: bool
) -> None:
    inputs = "x[N, 4], target[N; index(4)], mask[N, 4; bool]"
    assert maps(spec_of(inputs, forward=forward)) is mapped
    assert ("test_vmap_of_grad" in suite_of(inputs, forward)) is mapped


@pytest.mark.parametrize(
    ("forward", "single"),
    [
        ("x.float().exp().to(x.dtype)", True),
        ("y = x.to(torch.float32)\nreturn x * y.sum()", True),
        ("torch.softmax(x, -1, dtype=torch.float32)", True),
        ("x.half() * 2", True),
        ("torch.softmax(x, -1, dtype=torch.bfloat16).float()", True),
        ("x * (x > 0).float()", False),
        ("x * mask.float()", False),
        ("x.double() * mask.to(torch.float32)", False),
        ("y = x\nfor row in x:\n    y = y * row.float()\nreturn y", True),
    ],
)
def test_single_precision_has_no_finite_differences(forward: str, single: bool) -> None:
    inputs = "x[N, 4], mask[N, 4; bool]"
    spec = spec_of(inputs, forward=forward)
    half = "half" in forward or "float16" in forward
    rounded = "half" if half else "single"
    assert precision(spec) == (rounded if single else "double")
    assert is_its_derivative(spec) is not single
    suite = suite_of(inputs, forward)
    assert ("rtol, atol = " in suite) is single
    assert ("rtol, atol = 2e-2" in suite) is half
    assert ("def test_gradcheck" in suite) is not single


@pytest.mark.parametrize(
    ("inputs", "forward", "kept"),
    [
        ("v[O, I], g[O, 1]", "g * v / v.norm(2, dim=1, keepdim=True)", {"I"}),
        ("q[T, D], k[S, D]", "F.scaled_dot_product_attention(q, k, k)", {"D"}),
        ("x[N, D]", "x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)", set()),
        ("x[N, 3]", "torch.linalg.svdvals(x.t() @ x)", {"N"}),
        ("x[N, M]", "torch.linalg.norm(x, 'nuc')", {"N", "M"}),
        ("x[N, D], g[D]", "x * g", set()),
        ("x, g", "x / x.norm() * g", set()),
    ],
)
def test_what_has_a_length_that_is_divided_by_is_not_empty(
    inputs: str, forward: str, kept: set[str]
) -> None:
    assert never_empty(spec_of(inputs, forward=forward)) == kept
    text = suite_of(inputs, forward)
    assert not any(f'"{name}=0"' in text for name in kept)


@pytest.mark.parametrize(
    ("inputs", "forward", "least"),
    [
        ("x[N, 3], y[M, 2]", "torch.linalg.svdvals(x.t() @ x).sum() * y", 5),
        ("a[N, N]", "torch.linalg.inv(a)", 0),
        ("x[N, 3]", "x * 2", 0),
    ],
)
def test_there_are_enough_rows_for_full_rank(
    inputs: str, forward: str, least: int
) -> None:
    spec = spec_of(inputs, forward=forward)
    assert full_rank(spec) == least
    assert choose_sizes(spec)["N"] == (least or 2)


def test_a_logarithm_to_any_base_has_a_slope_without_bound_at_zero() -> None:
    for forward in ("torch.log(x)", "torch.log2(x)", "torch.log10(x)"):
        assert singular(spec_of("x[N]", forward=f"({forward}).sum()")), forward
    assert singular(spec_of("x[N, D]", forward="x.std(0, unbiased=False)"))
    assert not singular(spec_of("x[N]", forward="x.exp()"))


@pytest.mark.parametrize(
    ("forward", "divided"),
    [
        ("b, c = x.size()\nreturn x.square().sum() / (b * c)", True),
        ("x.square().sum() / x.shape[0]", True),
        ("x.square().sum() / len(x)", True),
        ("n = x.numel()\nfor i in range(2):\n    x = x / n\nreturn x", True),
        ("x.square().sum() / tau", False),
        ("x.square().sum() / (2 * math.pi)", False),
        ("x * (1 / x.shape[0])", False),  # of no rows Python itself refuses
        ("x / y", False),
    ],
)
def test_a_sum_of_nothing_may_be_divided_by_no_rows(
    forward: str, divided: bool
) -> None:
    inputs = "x[N, D], y[N, D], tau: float = 2.0"
    assert singular(spec_of(inputs, forward=forward)) is divided
