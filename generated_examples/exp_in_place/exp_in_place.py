"""The custom operator exp_in_place."""

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function


class ExpInPlaceFunction(Function):
    """Forward and backward of :func:`exp_in_place`."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        x.exp_()
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.mark_dirty(x)
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        if grad_output.dtype.is_complex:
            raise TypeError("exp_in_place: x must be real")
        (output,) = ctx.saved_tensors
        return grad_output * output


def exp_in_place(x: Tensor) -> Tensor:
    """Compute ``x.exp_()``.

    Changes ``x`` in place.
    """
    return ExpInPlaceFunction.apply(x)


class ExpInPlace(nn.Module):
    """:func:`exp_in_place` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return exp_in_place(x)
