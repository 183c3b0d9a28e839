"""The custom operator mish."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function


class MishFunction(Function):
    """Forward and backward of :func:`mish`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * torch.tanh(F.softplus(x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        with ctx.autocast:
            (x,) = ctx.saved_tensors
            sigmoid = torch.sigmoid(x)
            squared = (1 - sigmoid) ** 2
            denom = 1 + squared
            total = 2 - sigmoid + 4 * x * squared / denom
            return grad_output * sigmoid * total / denom


def mish(x: Tensor) -> Tensor:
    """Compute ``x * torch.tanh(F.softplus(x))``."""
    return MishFunction.apply(x)


class Mish(nn.Module):
    """:func:`mish` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return mish(x)
