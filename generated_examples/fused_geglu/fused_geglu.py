"""The custom operator fused_geglu."""

import math
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_geglu_triton
except (ImportError, AttributeError) as error:
    fused_geglu_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_geglu runs without its kernels: {error}", stacklevel=2)


class FusedGEGLUFunction(Function):
    """Forward and backward of :func:`fused_geglu`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        if x.shape[-1] % 2 != 0:
            raise ValueError(
                f"x[..., D] has shape {[*x.shape]}, not one with D % 2 == 0"
            )
        if fused_geglu_triton is not None and fused_geglu_triton.takes(x):
            return fused_geglu_triton.forward(x)
        gate, value = x.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh") * value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.in_kernels = fused_geglu_triton is not None and fused_geglu_triton.takes(x)
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if ctx.in_kernels and not torch.is_grad_enabled():
            return fused_geglu_triton.fused_geglu_backward(grad_output, x)
        gate, value = x.chunk(2, dim=-1)
        grad_gelu = grad_output * value
        grad_value = grad_output * F.gelu(gate, approximate="tanh")
        tanh = torch.tanh(math.sqrt(2 / math.pi) * gate * (1 + 0.044715 * gate**2))
        product = gate * (1 - tanh**2) * (1 + 3 * 0.044715 * gate**2)
        grad_gate = 0.5 * grad_gelu * (1 + tanh + math.sqrt(2 / math.pi) * product)
        return torch.cat((grad_gate, grad_value), -1)


def fused_geglu(x: Tensor) -> Tensor:
    """Multiply the second half of each row by the GELU of the first.

    Computes::

        gate, value = x.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh") * value

    Requires ``D % 2 == 0``.

    Args:
        x: Tensor of shape ``(..., D)``.
    """
    return FusedGEGLUFunction.apply(x)


class FusedGEGLU(nn.Module):
    """:func:`fused_geglu` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return fused_geglu(x)
