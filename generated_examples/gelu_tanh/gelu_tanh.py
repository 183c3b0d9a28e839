"""The custom operator gelu_tanh."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class GELUTanhFunction(Function):
    """Forward and backward of :func:`gelu_tanh`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return (
            0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        if grad_output.dtype.is_complex:
            raise TypeError("gelu_tanh: x must be real")
        (x,) = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(grad_output, x, approximate="tanh")


def gelu_tanh(x: Tensor) -> Tensor:
    """Gaussian error linear unit, by its tanh approximation.

    Computes::

        0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    """
    return GELUTanhFunction.apply(x)


class GELUTanh(nn.Module):
    """:func:`gelu_tanh` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return gelu_tanh(x)
