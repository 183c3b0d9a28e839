"""The custom operator fused_quantize."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_quantize_triton
except (ImportError, AttributeError) as error:
    fused_quantize_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_quantize runs without its kernels: {error}", stacklevel=2)


class FusedQuantizeFunction(Function):
    """Forward and backward of :func:`fused_quantize`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bits: int) -> Tensor:
        if fused_quantize_triton is not None and fused_quantize_triton.takes(x):
            return fused_quantize_triton.forward(x, bits)
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / (2 ** (bits - 1) - 1)
        return x + (torch.round(x / scale) * scale - x).detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Backward needs nothing of the forward."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return grad_output, None


def fused_quantize(x: Tensor, bits: int = 8) -> Tensor:
    """Round each row to the given number of bits; the gradient passes straight through.

    Computes::

        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / (2 ** (bits - 1) - 1)
        return x + (torch.round(x / scale) * scale - x).detach()

    Args:
        x: Tensor of shape ``(..., D)``.
        bits: Integer.
    """
    return FusedQuantizeFunction.apply(x, bits)


class FusedQuantize(nn.Module):
    """:func:`fused_quantize` as a module."""

    def __init__(self, bits: int = 8) -> None:
        super().__init__()
        self.bits = bits

    def forward(self, x: Tensor) -> Tensor:
        return fused_quantize(x, self.bits)

    def extra_repr(self) -> str:
        return f"bits={self.bits}"
