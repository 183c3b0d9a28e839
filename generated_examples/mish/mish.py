"""The custom operator mish."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function


class MishFunction(Function):
    """Forward and backward of :func:`mish`.

    Forward also returns what it saves, so that second derivatives reach the inputs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        tanh = torch.tanh(F.softplus(x))
        return x * tanh, tanh

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        (x,) = inputs
        _output, tanh = outputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, tanh)

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor | None, extra_grad_tanh: Tensor | None
    ) -> Tensor:
        x, tanh = ctx.saved_tensors
        if grad_output is None:  # a second derivative, by tanh alone
            grad_output = torch.zeros_like(x)
        grad_tanh = grad_output * x
        if extra_grad_tanh is not None:
            grad_tanh = grad_tanh + extra_grad_tanh
        grad_softplus = torch.ops.aten.tanh_backward(grad_tanh, tanh)
        grad_x_via_softplus = torch.ops.aten.softplus_backward(
            grad_softplus, x, beta=1, threshold=20
        )
        return torch.addcmul(grad_x_via_softplus, grad_output, tanh)


def mish(x: Tensor) -> Tensor:
    """Compute ``x * torch.tanh(F.softplus(x))``."""
    output, _tanh = MishFunction.apply(x)
    return output


class Mish(nn.Module):
    """:func:`mish` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return mish(x)
