"""The custom operator sort_last."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class SortLastFunction(Function):
    """Forward and backward of :func:`sort_last`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.sort(x, dim=-1)
        return values, indices

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        _values, indices = outputs
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)

    @staticmethod
    def backward(ctx: Any, grad_values: Tensor, _grad_indices: Tensor) -> Tensor:
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(grad_values).scatter(-1, indices, grad_values)


def sort_last(x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``torch.sort(x, dim=-1)``.

    Args:
        x: Tensor of shape ``(..., N)``.

    Returns:
        ``values`` of shape ``(..., N)``, ``indices`` of shape ``(..., N)`` (no
        gradient).
    """
    return SortLastFunction.apply(x)


class SortLast(nn.Module):
    """:func:`sort_last` as a module."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return sort_last(x)
