"""Where test values lie: what the rules ask of the inputs that they read."""

import pytest

from scaffold.derive import derive
from scaffold.render.testdomains import with_domains
from tests.derive.building import spec_of


def domains(
    forward: str, inputs: str = "x[..., N], y[..., N], a[N, N]"
) -> dict[str, str]:
    spec = spec_of(inputs, forward=forward)
    seen = with_domains(spec, derive(spec))
    return {item.name: item.domain for item in seen.tensors if item.domain != "normal"}


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("torch.sin(x) * y", {}),
        ("torch.log(x) * y", {"x": "positive"}),
        ("torch.sqrt(x * y)", {"x": "positive", "y": "positive"}),
        ("torch.log(x + 1e-6)", {"x": "positive"}),
        ("torch.log(x - 2)", {}),
        ("torch.log(x * -2)", {}),
        ("torch.log(torch.exp(x))", {}),
        ("torch.log(x / (1 - x))", {"x": "unit"}),
        ("torch.logit(x)", {"x": "unit"}),
        ("torch.sqrt(1 - x * x)", {"x": "unit"}),
        ("torch.log(1 - 0.5 * x**2 * y)", {"x": "unit", "y": "unit"}),
        ("torch.log(1 - 2 * x)", {}),
        ("h = x.unsqueeze(-1); return torch.log(h)", {"x": "positive"}),
        ("torch.log(x.sum(-1))", {"x": "positive"}),
        ("x.abs() * y", {"x": "nonzero"}),
        ("torch.relu(x)", {"x": "nonzero"}),
        ("x / y", {"y": "nonzero"}),
        ("x.amax(-1)", {"x": "distinct"}),
        ("torch.sort(x).values", {"x": "distinct"}),
        ("torch.log(x) + x.abs() + y.abs()", {"x": "positive", "y": "nonzero"}),
        ("torch.logdet(a)", {"a": "spd"}),
        ("torch.linalg.inv(a) @ a", {"a": "spd"}),
        ("x ** y", {"x": "positive"}),
        ("x ** 3", {}),
        ("x ** 0.3", {"x": "positive"}),
        ("torch.rsqrt((x * x).mean(-1) + 1e-6)", {}),
        ("torch.sqrt(x ** 2 + y.square())", {}),
        ("torch.log(x.abs())", {"x": "nonzero"}),
    ],
)
def test_the_domain_of_an_input(forward: str, expected: dict[str, str]) -> None:
    assert domains(forward) == expected


def test_what_the_signature_says_stands() -> None:
    assert domains("torch.log(x)", "x[N; unit]") == {"x": "unit"}
    assert domains("x.abs()", "x[N; complex]") == {}


def test_a_matrix_that_may_not_be_square_is_not_made_so() -> None:
    assert domains("torch.logdet(a)", "a[N, M]") == {}
    assert domains("torch.logdet(a)", "a") == {"a": "spd"}


def test_where_nothing_is_derived_nothing_is_asked() -> None:
    spec = spec_of("x", forward="torch.log(x)", grad={"x": "grad_output / x"})
    assert with_domains(spec, derive(spec)) == spec
