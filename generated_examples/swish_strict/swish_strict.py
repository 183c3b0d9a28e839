"""The custom operator swish_strict."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class SwishStrictFunction(Function):
    """Forward and backward of :func:`swish_strict`."""

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
            raise TypeError("swish_strict: x must be real")
        (x,) = ctx.saved_tensors
        if not torch.is_grad_enabled():
            grad_x: Tensor = torch.ops.aten.silu_backward(grad_output, x)
            return grad_x
        # silu_backward has no derivative
        sigmoid = torch.sigmoid(x)
        grad_x = grad_output * sigmoid * (1 + x * (1 - sigmoid))
        return grad_x


def swish_strict(x: Tensor) -> Tensor:
    """Compute ``x * torch.sigmoid(x)``."""
    apply: Callable[..., Tensor] = SwishStrictFunction.apply
    return apply(x)


class SwishStrict(nn.Module):
    """:func:`swish_strict` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return swish_strict(x)
