"""The sign, with the gradient of a clamp."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class SignSteFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.sign(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor | None:
        (x,) = ctx.saved_tensors
        grad_x: Tensor = grad_output * (x.abs() <= 1)
        return grad_x


def sign_ste(x: Tensor) -> Tensor:
    output: Tensor = SignSteFunction.apply(x)  # type: ignore[no-untyped-call]
    return output
