"""What a generated test compares with: the forward, if autograd can differentiate it."""

from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.render.reference import reference_lines
from tests.derive.building import spec_of
from tests.verify.ops import failure


@pytest.mark.parametrize(
    ("forward", "lines"),
    [
        ("x.div_(1 + x.abs())", ("x = x.div(1 + x.abs())", "return x")),
        (
            "x.sub_(x.mean()).mul_(2)\nx",
            ("x = x.sub(x.mean()).mul(2)", "return x"),
        ),
        ("x.mul_(y)\nx", ("x.mul_(y)", "return x")),
        (
            "v = x.view(-1)\nx.mul_(x.abs())\nx + v.sum()",
            ("v = x.view(-1)", "x.mul_(x.abs())", "return x + v.sum()"),
        ),
    ],
)
def test_what_changes_by_what_it_was_is_made_anew(
    forward: str, lines: tuple[str, ...]
) -> None:
    spec = spec_of("x[N], y[N]", forward=forward, dirty=["x"])
    found = reference_lines(spec, derive(spec))
    assert found == lines


@pytest.mark.parametrize(
    ("gradient", "said"),
    [
        ("grad_output * (1 - output.abs()) ** 2", "no failure"),
        ("grad_output * (1 - output.abs())", "grad_x: largest difference "),
    ],
)
def test_the_gradient_of_a_change_that_autograd_refuses_is_proven(
    gradient: str, said: str
) -> None:
    raw = {"inputs": "x[N]", "forward": "x.div_(1 + x.abs())", "dirty": ["x"]}
    assert failure(**raw, grad={"x": gradient}).startswith(said)


def reference_of(inputs: str, **raw: Any) -> tuple[str, ...] | None:
    spec = spec_of(inputs, **raw)
    return reference_lines(spec, derive(spec))


def test_it_is_the_forward() -> None:
    found = reference_of("x, y", forward="z = x * y\nreturn z.exp()", derive=True)
    assert found == ("z = x * y", "return z.exp()")


def test_that_of_several_outputs_returns_them_all() -> None:
    found = reference_of(
        "x", outputs="low, high", forward="x.sin(), x.cos()", derive=True
    )
    assert found == ("return x.sin(), x.cos()",)


def test_a_surrogate_has_the_function_whose_derivative_it_takes() -> None:
    found = reference_of("x", forward="torch.sign(x)", surrogate="x.clamp(-1, 1)")
    assert found == ("return x.clamp(-1, 1)",)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"forward": "np.exp(x)", "import_": ["numpy as np"]}
        | {"grad": {"x": "grad_output * output"}},
    ],
    ids=["nothing is written", "NumPy"],
)
def test_what_autograd_cannot_differentiate_is_none(raw: dict[str, Any]) -> None:
    assert reference_of("x", **raw) is None


def test_a_gradient_that_leaves_pytorch_leaves_the_forward_as_the_reference() -> None:
    grad = {"x": "grad_output * np.cos(x)"}
    raw: dict[str, Any] = {"forward": "torch.sin(x)", "import_": ["numpy as np"]}
    assert reference_of("x", **raw, grad=grad) == ("return torch.sin(x)",)
