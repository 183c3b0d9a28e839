"""The custom operator fused_swiglu."""

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_swiglu_triton
except (ImportError, AttributeError) as error:
    fused_swiglu_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_swiglu runs without its kernels: {error}", stacklevel=2)


class FusedSwiGLUFunction(Function):
    """Forward and backward of :func:`fused_swiglu`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        if x.shape[-1] % 2 != 0:
            raise ValueError(
                f"x[..., D] has shape {[*x.shape]}, not one with D % 2 == 0"
            )
        if fused_swiglu_triton is not None and fused_swiglu_triton.takes(x):
            return fused_swiglu_triton.forward(x)
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.in_kernels = fused_swiglu_triton is not None and fused_swiglu_triton.takes(
            x
        )
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        if grad_output.dtype.is_complex:
            raise TypeError("fused_swiglu: x must be real")
        (x,) = ctx.saved_tensors
        if ctx.in_kernels and not torch.is_grad_enabled():
            return fused_swiglu_triton.fused_swiglu_backward(grad_output, x)
        gate, value = x.chunk(2, dim=-1)
        sigmoid = torch.sigmoid(gate)
        grad_gate = grad_output * value * sigmoid * (1 + gate * (1 - sigmoid))
        return torch.cat((grad_gate, grad_output * F.silu(gate)), -1)


def fused_swiglu(x: Tensor) -> Tensor:
    """Multiply the second half of each row by the SiLU of the first.

    Computes::

        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value

    Requires ``D % 2 == 0``.

    Args:
        x: Tensor of shape ``(..., D)``.
    """
    return FusedSwiGLUFunction.apply(x)


class FusedSwiGLU(nn.Module):
    """:func:`fused_swiglu` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return fused_swiglu(x)
