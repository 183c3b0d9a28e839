"""Nothing that is differentiable once has a second derivative of 0."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from tests.derive.building import draft_of, load, op_text, spec_of

GATE = {"inputs": "x[N], y[N]", "forward": "x * x * torch.sigmoid(y)"}
WAYS: dict[str, dict[str, Any]] = {
    "all inputs saved": {**GATE, "once_differentiable": True},
    "an output saved": {"inputs": "x[N]", "forward": "torch.tanh(x)"},
    "an intermediate saved alone": {
        "inputs": "x[N]",
        "forward": "slope = torch.cos(x)\nreturn torch.sin(x)",
        "grad": {"x": "grad_output * slope"},
    },
    "several tensors": {
        "inputs": "*tensors",
        "forward": "tensors[0] * tensors[0]",
        "grad": {"tensors": "2 * grad_output * tensors[i] if i == 0 else None"},
    },
}
PENALTIES = "differentiable once|marked with @once_differentiable"


def op_of(way: str, **keys: Any) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    table = {**WAYS[way], "once_differentiable": True, **keys}
    spec = spec_of(**table)
    op = load(draft_of(spec)).some_op
    values = torch.linspace(0.3, 1.2, 3, dtype=torch.double)
    return op, tuple((k + 1) * values for k in range(2 if way in COUNTS else 1))


COUNTS = ("all inputs saved", "several tensors")


@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("way", WAYS)
def test_a_penalty_on_a_gradient_raises(way: str, style: str) -> None:
    op, values = op_of(way, style=style)
    inputs = [value.requires_grad_() for value in values]
    first = torch.autograd.grad(op(*inputs).sum(), inputs[0])[0]
    assert torch.count_nonzero(first) == 3
    output = op(*inputs)
    # Of a gradient that is a constant PyTorch's own decorator, in combined style, says nothing.
    weights = torch.ones_like(output, requires_grad=style == "combined")
    with pytest.raises(RuntimeError, match=PENALTIES):
        gradient = torch.autograd.grad(output, inputs[0], weights, create_graph=True)
        torch.autograd.backward(gradient[0].square().sum() + inputs[0].sum())


@pytest.mark.parametrize("way", [way for way in WAYS if way != "several tensors"])
def test_gradients_of_gradients_raise_under_transforms(way: str) -> None:
    op, values = op_of(way, style="setup-context")

    def total(x: Tensor) -> Tensor:
        return op(x, *values[1:]).sum()

    def slope(x: Tensor) -> Tensor:
        gradient: Tensor = grad(total)(x)
        return gradient.sum()

    assert torch.equal(grad(total)(values[0]), by_autograd(op, values))
    with pytest.raises(RuntimeError, match=PENALTIES):
        grad(slope)(values[0])
    with pytest.raises(RuntimeError, match=PENALTIES):
        vmap(grad(slope))(values[0].expand(2, -1))


def by_autograd(op: Callable[..., Tensor], values: tuple[Tensor, ...]) -> Tensor:
    first = values[0].clone().requires_grad_()
    return torch.autograd.grad(op(first, *values[1:]).sum(), first)[0]


@pytest.mark.parametrize("style", ["setup-context", "combined"])
def test_a_first_derivative_compiles(style: str) -> None:
    op, values = op_of("all inputs saved", style=style)
    inputs = [value.requires_grad_() for value in values]
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(*inputs).sum(), inputs)
    want = torch.autograd.grad(op(*inputs).sum(), inputs)
    torch.testing.assert_close(got, want)


def test_a_combined_backward_has_pytorchs_decorator() -> None:
    text = op_text(**GATE, once_differentiable=True)
    assert "    @once_differentiable\n    def backward(ctx: Any" in text
    assert "is_grad_enabled" not in text
    assert "_OnceDifferentiable" not in text


def test_an_intermediate_is_marked_where_the_inputs_lead_back() -> None:
    table: dict[str, Any] = {"inputs": "x[N]", "once_differentiable": True}
    table["style"] = "setup-context"
    slope = "slope = torch.cos(x)\nreturn torch.sin(x)"
    alone = op_text(**table, forward=slope, grad={"x": "grad_output * slope"})
    beside = op_text(**table, forward=slope, grad={"x": "grad_output * slope * x / x"})
    assert "mark_non_differentiable" not in alone
    assert "mark_non_differentiable(slope)" in beside


def test_a_gradient_that_reads_nothing_of_the_forward_has_pytorchs_decorator() -> None:
    apart = {"once_differentiable": True, "style": "setup-context"}
    text = op_text("x[N]", forward="x * 3", **apart)
    assert "    @once_differentiable\n" in text
    assert "_OnceDifferentiable" not in text
    assert "to differentiate its gradient is an error" in text


@pytest.mark.parametrize(
    ("forward", "second"), [("F.max_pool2d(x, 2)", False), ("x.exp() * x", True)]
)
def test_positions_lead_no_derivative_anywhere(forward: str, second: bool) -> None:
    text = op_text("x[B, C, H, W]", forward=forward)
    assert "Forward also returns what" in text
    assert ("so that second derivatives reach" in text) is second
