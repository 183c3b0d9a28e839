"""The custom operator mul_constant."""

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function


class MulConstantFunction(Function):
    """Forward and backward of :func:`mul_constant`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, constant: float) -> Tensor:
        return x * constant

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _x, constant = inputs
        ctx.constant = constant

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return grad_output * ctx.constant, None


def mul_constant(x: Tensor, constant: float) -> Tensor:
    """Compute ``x * constant``."""
    return MulConstantFunction.apply(x, constant)


class MulConstant(nn.Module):
    """:func:`mul_constant` as a module."""

    def __init__(self, constant: float) -> None:
        super().__init__()
        self.constant = constant

    def forward(self, x: Tensor) -> Tensor:
        return mul_constant(x, self.constant)

    def extra_repr(self) -> str:
        return f"constant={self.constant}"
