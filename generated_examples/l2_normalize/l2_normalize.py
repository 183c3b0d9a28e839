"""The custom operator l2_normalize."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class L2NormalizeFunction(Function):
    """Forward and backward of :func:`l2_normalize`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / norm

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        if x.dtype.is_complex:
            raise TypeError("l2_normalize: x must be real")
        ctx.save_for_backward(x, output)
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        with ctx.autocast:
            x, output = ctx.saved_tensors
            norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            along = (grad_output * output).sum(-1, keepdim=True)
            return (grad_output - output * along) / norm


def l2_normalize(x: Tensor) -> Tensor:
    """Scale each row to length one.

    Computes::

        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / norm

    Args:
        x: Tensor of shape ``(..., D)``.
    """
    return L2NormalizeFunction.apply(x)


class L2Normalize(nn.Module):
    """:func:`l2_normalize` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return l2_normalize(x)
