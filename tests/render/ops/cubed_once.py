"""The cube, whose gradient cannot be differentiated."""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class CubedOnceFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor | None:
        (x,) = ctx.saved_tensors
        grad_x: Tensor = 3 * x * x * grad_output
        return grad_x


def cubed_once(x: Tensor) -> Tensor:
    output: Tensor = CubedOnceFunction.apply(x)  # type: ignore[no-untyped-call]
    return output
