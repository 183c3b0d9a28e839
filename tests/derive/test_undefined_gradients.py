"""An output that nothing reads makes no NaN of a gradient that is finite without it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import load, op_text, reference

# Each is singular where x is 0, but for its second output.
SINGULAR = {
    "root": "return x.sqrt(), x * w",
    "logarithm": "return torch.log(x), x.square()",
    "quotient": "return w / x, x * w",
    "power": "return x ** 0.5, x * w",
    "root that is saved": "root = x.sqrt()\nreturn root * root.exp() * w, x * w",
    "after a step of both": "y = x * w.exp()\nreturn y.sqrt(), y.sin()",
    "quotient that is saved": "cut = w / x\nreturn torch.tanh(cut) * cut.exp(), x.exp()",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "recompute": {"save_policy": "recompute"},
    "combined": {"style": "combined"},
    "once": {"once_differentiable": True},
}


def gradients(op: Any, end: int, once: bool) -> list[Tensor]:
    """First gradients of one output at 0, and those of their sum."""
    x = torch.tensor([0.0, 2.0], dtype=torch.double, requires_grad=True)
    w = torch.tensor([3.0, 5.0], dtype=torch.double, requires_grad=True)
    options: Any = {"allow_unused": True, "materialize_grads": True}
    y = op(x, w)[end]
    grads = torch.autograd.grad(y.sum(), (x, w), create_graph=not once, **options)
    if once or not any(grad.requires_grad for grad in grads):
        return [*grads]
    total = torch.stack([grad.sin().sum() for grad in grads]).sum()
    return [*grads, *torch.autograd.grad(total, (x, w), **options)]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", SINGULAR)
def test_an_output_that_is_not_read_makes_no_nan(name: str, setting: str) -> None:
    forward, options = SINGULAR[name], SETTINGS[setting]
    text = op_text("x[N], w[N]", forward=forward, outputs="a, b", **options)
    once = setting == "once"
    ours = gradients(load(text).some_op, 1, once)
    plain = gradients(reference(["x", "w"], forward), 1, once)
    assert all(grad.isfinite().all() for grad in plain)
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("name", SINGULAR)
def test_each_output_alone_and_both(name: str) -> None:
    values = (tensor(2, 3).abs() + 0.1, tensor(2, 3) + 3)
    check_forward("x[N, D], w[N, D]", SINGULAR[name], [values], outputs="a, b")


def test_the_term_of_such_an_output_is_added_where_it_is_read() -> None:
    text = op_text("x[N]", forward="return x.sqrt(), x * 2", outputs="a, b")
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("grad_x = 2 * grad_b")
    assert lines[at - 2 : at + 4] == [
        "if grad_b is None:",
        "grad_b = torch.zeros_like(a)",
        "grad_x = 2 * grad_b",
        "if grad_a is not None:",
        "grad_x = grad_x + grad_a / a / 2",
        "return grad_x",
    ]


@pytest.mark.parametrize(
    "forward",
    [
        "return x.sqrt(), x.log()",  # nothing is finite at 0
        "y = x.sqrt()\nreturn y, y * 2",  # both lead through the root
        "return torch.sqrt(x * x + 1), x * 2",  # never at 0
        "return (x.exp() + 1).log(), x * 2",
        "return x.var(-1, keepdim=True).add(1e-5).rsqrt(), x * 2",
        "return x / x.abs().clamp(min=1e-6), x * 2",
        "return x.sqrt()",
    ],
)
def test_no_other_gradient_may_be_none(forward: str) -> None:
    count = 1 if forward.endswith(")") and "," not in forward.split("return")[1] else 2
    outputs = "a" if count == 1 else "a, b"
    text = op_text("x[N, D]", forward=forward, outputs=outputs)
    assert "grad_a is not None" not in text
