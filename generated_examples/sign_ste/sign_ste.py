"""The custom operator sign_ste."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class SignSTEFunction(Function):
    """Forward and backward of :func:`sign_ste`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.sign(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1)


def sign_ste(x: Tensor) -> Tensor:
    """Compute ``torch.sign(x)``.

    The gradient is that of ``x.clamp(-1, 1)``, not the derivative. Where the op is
    traced through instead of called (``torch.export``, ``make_fx``, ``torch.compile``
    of ``torch.func.grad``), PyTorch uses the derivative of the forward.
    """
    return SignSTEFunction.apply(x)


class SignSTE(nn.Module):
    """:func:`sign_ste` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return sign_ste(x)
