"""The custom operator sigmoid."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class SigmoidFunction(Function):
    """Forward and backward of :func:`sigmoid`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return 1 / (1 + torch.exp(-x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        if grad_output.dtype.is_complex:
            raise TypeError("sigmoid: x must be real")
        (output,) = ctx.saved_tensors
        return grad_output * output * (1 - output)


def sigmoid(x: Tensor) -> Tensor:
    """Compute ``1 / (1 + torch.exp(-x))``."""
    return SigmoidFunction.apply(x)


class Sigmoid(nn.Module):
    """:func:`sigmoid` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return sigmoid(x)
