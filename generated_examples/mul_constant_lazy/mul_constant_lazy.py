"""The custom operator mul_constant_lazy."""

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function


class MulConstantLazyFunction(Function):
    """Forward and backward of :func:`mul_constant_lazy`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, constant: float) -> Tensor:
        return x * constant

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _x, constant = inputs
        ctx.set_materialize_grads(False)
        ctx.constant = constant

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_output is None:
            return None, None
        return grad_output * ctx.constant, None


def mul_constant_lazy(x: Tensor, constant: float) -> Tensor:
    """Compute ``x * constant``."""
    return MulConstantLazyFunction.apply(x, constant)


class MulConstantLazy(nn.Module):
    """:func:`mul_constant_lazy` as a module."""

    def __init__(self, constant: float) -> None:
        super().__init__()
        self.constant = constant

    def forward(self, x: Tensor) -> Tensor:
        return mul_constant_lazy(x, self.constant)

    def extra_repr(self) -> str:
        return f"constant={self.constant}"
