"""The custom operator rotary."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class RotaryFunction(Function):
    """Forward and backward of :func:`rotary`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if cos.shape != x.shape[-2:]:
            raise ValueError(
                f"cos[positions, D] has shape {[*cos.shape]}, not {[*x.shape[-2:]]}"
            )
        if sin.shape != x.shape[-2:]:
            raise ValueError(
                f"sin[positions, D] has shape {[*sin.shape]}, not {[*x.shape[-2:]]}"
            )
        if x.shape[-1] % 2 != 0:
            raise ValueError(
                f"x[..., positions, D] has shape {[*x.shape]}, not one with D % 2 == 0"
            )
        half = x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        rotated = torch.cat([-second, first], dim=-1)
        return x * cos + rotated * sin

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _x, cos, sin = inputs
        if cos.dtype.is_complex or sin.dtype.is_complex:
            raise TypeError("rotary: cos and sin must be real")
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        half = grad_output.shape[-1] // 2
        grad_rotated = grad_output * sin
        joined_grad = torch.cat(
            (grad_rotated[..., half:], -grad_rotated[..., :half]), dim=-1
        )
        return joined_grad + grad_output * cos, None, None


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of features by an angle for each position.

    Computes::

        half = x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        rotated = torch.cat([-second, first], dim=-1)
        return x * cos + rotated * sin

    Requires ``D % 2 == 0``.

    Args:
        x: Tensor of shape ``(..., positions, D)``.
        cos: Tensor of shape ``(positions, D)`` without a gradient.
        sin: Tensor of shape ``(positions, D)`` without a gradient.
    """
    return RotaryFunction.apply(x, cos, sin)
