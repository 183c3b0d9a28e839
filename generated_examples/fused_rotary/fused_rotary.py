"""The custom operator fused_rotary."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_rotary_triton
except (ImportError, AttributeError) as error:
    fused_rotary_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_rotary runs without its kernels: {error}", stacklevel=2)


class FusedRotaryFunction(Function):
    """Forward and backward of :func:`fused_rotary`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if x.ndim != 3:
            raise ValueError(f"x[B, T, D] has shape {[*x.shape]}, not 3-D")
        if cos.shape != x.shape[-2:]:
            raise ValueError(
                f"cos[T, D] has shape {[*cos.shape]}, not {[*x.shape[-2:]]}"
            )
        if sin.shape != x.shape[-2:]:
            raise ValueError(
                f"sin[T, D] has shape {[*sin.shape]}, not {[*x.shape[-2:]]}"
            )
        if x.shape[-1] % 2 != 0:
            raise ValueError(
                f"x[B, T, D] has shape {[*x.shape]}, not one with D % 2 == 0"
            )
        if fused_rotary_triton is not None and fused_rotary_triton.takes(x, cos, sin):
            return fused_rotary_triton.forward(x, cos, sin)
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, cos, sin = inputs
        if cos.dtype.is_complex or sin.dtype.is_complex:
            raise TypeError("fused_rotary: cos and sin must be real")
        ctx.in_kernels = fused_rotary_triton is not None and fused_rotary_triton.takes(
            x, cos, sin
        )
        ctx.save_for_backward(cos, sin)
        ctx.x_dtype = x.dtype

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        if ctx.in_kernels and not torch.is_grad_enabled():
            grad_x = fused_rotary_triton.fused_rotary_backward(
                grad_output, cos, sin, ctx.x_dtype
            )
            return grad_x, None, None
        grad_joined = grad_output * sin
        grad_first = grad_joined[..., grad_output.shape[-1] // 2 :]
        grad_second = -grad_joined[..., : grad_output.shape[-1] // 2]
        grad_x = grad_output * cos + torch.cat((grad_first, grad_second), dim=-1)
        return grad_x, None, None


def fused_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each row by the angles of its position.

    Computes::

        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    Requires ``D % 2 == 0``.

    Args:
        x: Tensor of shape ``(B, T, D)``.
        cos: Tensor of shape ``(T, D)`` without a gradient.
        sin: Tensor of shape ``(T, D)`` without a gradient.
    """
    return FusedRotaryFunction.apply(x, cos, sin)


class FusedRotary(nn.Module):
    """:func:`fused_rotary` as a module."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return fused_rotary(x, cos, sin)
