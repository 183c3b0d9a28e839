"""The square, whose gradient cannot be differentiated; combined style."""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class SquareOnceFunction(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor | None:
        (x,) = ctx.saved_tensors
        grad_x: Tensor = 2 * x * grad_output
        return grad_x


def square_once(x: Tensor) -> Tensor:
    output: Tensor = SquareOnceFunction.apply(x)  # type: ignore[no-untyped-call]
    return output
