"""The custom operator l2_normalize_once."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


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
        (x,) = inputs
        output, norm = outputs
        ctx.mark_non_differentiable(norm)
        ctx.save_for_backward(output, norm)
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, _grad_norm: Tensor) -> Tensor:
        with ctx.autocast:
            output, norm = ctx.saved_tensors
            with torch.no_grad():
                along = (grad_output * output).sum(-1, keepdim=True)
                grad_x = (grad_output - output * along) / norm
            if torch.is_grad_enabled():
                grad_x = _OnceDifferentiable.apply(grad_x, grad_output, output, norm)
            return grad_x


class _OnceDifferentiable(Function):
    """A gradient, which raises where it is differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, *_read: Tensor | None) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Backward needs nothing of the forward."""

    @staticmethod
    def backward(ctx: Any, _grad_output: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError("l2_normalize_once is differentiable once")


def l2_normalize_once(x: Tensor) -> Tensor:
    """Scale each row to length one.

    Computes::

        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / norm

    Once differentiable: to differentiate its gradient is an error.

    Args:
        x: Tensor of shape ``(..., D)``.
    """
    output, _norm = L2NormalizeOnceFunction.apply(x)
    return output


class L2NormalizeOnce(nn.Module):
    """:func:`l2_normalize_once` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return l2_normalize_once(x)
