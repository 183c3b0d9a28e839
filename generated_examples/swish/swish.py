"""The custom operator swish."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class SwishFunction(Function):
    """Forward and backward of :func:`swish`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        if grad_output.dtype.is_complex:
            raise TypeError("swish: x must be real")
        (x,) = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return torch.ops.aten.silu_backward(grad_output, x)
        # silu_backward has no derivative
        sigmoid = torch.sigmoid(x)
        return grad_output * sigmoid * (1 + x * (1 - sigmoid))


def swish(x: Tensor) -> Tensor:
    """Compute ``x * torch.sigmoid(x)``."""
    return SwishFunction.apply(x)


class Swish(nn.Module):
    """:func:`swish` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return swish(x)
