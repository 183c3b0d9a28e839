"""The custom operator fused_swish."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_swish_triton
except (ImportError, AttributeError) as error:
    fused_swish_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_swish runs without its kernels: {error}", stacklevel=2)


class FusedSwishFunction(Function):
    """Forward and backward of :func:`fused_swish`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        if fused_swish_triton is not None and fused_swish_triton.takes(x):
            return fused_swish_triton.forward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.in_kernels = fused_swish_triton is not None and fused_swish_triton.takes(x)
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        if grad_output.dtype.is_complex:
            raise TypeError("fused_swish: x must be real")
        (x,) = ctx.saved_tensors
        if ctx.in_kernels and not torch.is_grad_enabled():
            return fused_swish_triton.fused_swish_backward(grad_output, x)
        sigmoid = torch.sigmoid(x)
        return grad_output * sigmoid * (1 + x * (1 - sigmoid))


def fused_swish(x: Tensor) -> Tensor:
    """Compute ``x * torch.sigmoid(x)``."""
    return FusedSwishFunction.apply(x)


class FusedSwish(nn.Module):
    """:func:`fused_swish` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return fused_swish(x)
