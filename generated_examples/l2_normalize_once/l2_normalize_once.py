"""The custom operator l2_normalize_once."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class L2NormalizeOnceFunction(Function):
    """Forward and backward of :func:`l2_normalize_once`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        output = x / norm
        if x.dtype.is_complex:
            raise TypeError("l2_normalize_once: x must be real")
        ctx.save_for_backward(output, norm)
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        with ctx.autocast:
            output, norm = ctx.saved_tensors
            along = (grad_output * output).sum(-1, keepdim=True)
            return (grad_output - output * along) / norm


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
    return L2NormalizeOnceFunction.apply(x)


class L2NormalizeOnce(nn.Module):
    """:func:`l2_normalize_once` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return l2_normalize_once(x)
