"""The custom operator apply_pointwise."""

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function


class ApplyPointwiseFunction(Function):
    """Forward and backward of :func:`apply_pointwise`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, function: Any, derivative: Any) -> Tensor:
        return function(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _function, derivative = inputs
        ctx.save_for_backward(x)
        ctx.derivative = derivative

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        return grad_output * ctx.derivative(x), None, None


def apply_pointwise(x: Tensor, function: Any, derivative: Any) -> Tensor:
    """Apply a function to every element, with its derivative given beside it.

    Computes::

        function(x)
    """
    return ApplyPointwiseFunction.apply(x, function, derivative)


class ApplyPointwise(nn.Module):
    """:func:`apply_pointwise` as a module."""

    def __init__(self, function: Any, derivative: Any) -> None:
        super().__init__()
        self.function = function
        self.derivative = derivative

    def forward(self, x: Tensor) -> Tensor:
        return apply_pointwise(x, self.function, self.derivative)
