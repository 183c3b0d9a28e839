"""What a mask hides is not divided by in second derivatives: those are autograd's of the forward, also where it is zero."""

import pytest
import torch
from torch import Tensor

from tests.derive.building import load, spec_of, text_of

FORWARDS = {
    "before a factor": "(x * y).clamp(min=0).sqrt().gather(-1, index)",
    "before a factor and its gradient": "h = (1 - x * y**2) / 2\nreturn h.clamp(min=0).sqrt().gather(-1, index) * y[:, :1]",
    "where few are picked": "r = (x * y).clamp(min=0).sqrt()\nreturn (x - r.gather(-1, index)).clamp(min=0) ** 2",
}


def second(op: object, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """The second derivative, along fixed directions."""
    output = op(x, y, index)  # type: ignore[operator]
    weight = torch.arange(1.0, output.numel() + 1).view_as(output)
    first = torch.autograd.grad((output * weight).sum(), (x, y), create_graph=True)
    total = sum((item * item.detach().sin()).sum() for item in first)
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, (x, y))


@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
def test_second_derivatives_are_those_of_autograd(forward: str) -> None:
    signature = "x[N, C], y[N, C], index[N, 1; index(C)]"
    op = load(text_of(spec_of(signature, forward=forward, derive=True))).some_op
    plain = load(text_of(spec_of(signature, forward=forward))).SomeOpFunction.forward
    x = torch.tensor([[0.5, -1, 2], [-0.3, 0.7, -2]], dtype=torch.double)
    y = torch.tensor([[0.9, 1, 0.4], [0.8, 1.1, 1]], dtype=torch.double)
    tensors = (x.requires_grad_(), y.requires_grad_(), torch.tensor([[0], [1]]))
    right = second(plain, *tensors)
    assert all(item.isfinite().all() for item in right)
    torch.testing.assert_close(second(op, *tensors), right)
