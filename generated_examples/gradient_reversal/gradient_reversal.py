"""The custom operator gradient_reversal."""

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function


class GradientReversalFunction(Function):
    """Forward and backward of :func:`gradient_reversal`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, coefficient: float) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _x, coefficient = inputs
        ctx.coefficient = coefficient

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return -ctx.coefficient * grad_output, None


def gradient_reversal(x: Tensor, coefficient: float = 1.0) -> Tensor:
    """Pass the input on, and reverse its gradient.

    Computes::

        x

    The gradient is that of ``-coefficient * x``, not the derivative. Where the op is
    traced through instead of called (``torch.export``, ``make_fx``, ``torch.compile``
    of ``torch.func.grad``), PyTorch uses the derivative of the forward.
    """
    return GradientReversalFunction.apply(x, coefficient)


class GradientReversal(nn.Module):
    """:func:`gradient_reversal` as a module."""

    def __init__(self, coefficient: float = 1.0) -> None:
        super().__init__()
        self.coefficient = coefficient

    def forward(self, x: Tensor) -> Tensor:
        return gradient_reversal(x, self.coefficient)

    def extra_repr(self) -> str:
        return f"coefficient={self.coefficient}"
