"""The custom operator l2_normalize_once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class L2NormalizeOnceFunction(Function):
    """Forward and backward of :func:`l2_normalize_once`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / norm, norm

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        output, norm = outputs
        ctx.mark_non_differentiable(norm)
        ctx.save_for_backward(output, norm)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor, _grad_norm: Tensor) -> Tensor | None:
        output, norm = ctx.saved_tensors
        along = (grad_output * output).sum(-1, keepdim=True)
        grad_x: Tensor = (grad_output - output * along) / norm
        return grad_x


def l2_normalize_once(x: Tensor) -> Tensor:
    """Scale each row to length one.

    Computes::

        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / norm

    Once differentiable: the gradient must not be part of a loss, since autograd may
    drop the second derivative without an error.

    Args:
        x: Tensor of shape ``(..., D)``.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = L2NormalizeOnceFunction.apply
    output, _norm = apply(x)
    return output


class L2NormalizeOnce(nn.Module):
    """:func:`l2_normalize_once` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return l2_normalize_once(x)
