"""Sort along the last dimension."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class SortLastFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.sort(x, dim=-1)
        return values, indices

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]
    ) -> None:
        _values, indices = output
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)

    @staticmethod
    def backward(
        ctx: Any, grad_values: Tensor, _grad_indices: Tensor | None
    ) -> Tensor | None:
        (indices,) = ctx.saved_tensors
        grad_x = torch.zeros_like(grad_values).scatter(-1, indices, grad_values)
        return grad_x


def sort_last(x: Tensor) -> tuple[Tensor, Tensor]:
    outputs: tuple[Tensor, Tensor] = SortLastFunction.apply(x)  # type: ignore[no-untyped-call]
    return outputs
