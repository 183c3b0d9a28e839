"""The exponential, in place."""

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function


class Exp_Function(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        x.exp_()
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_dirty(*inputs)
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor | None:
        (output,) = ctx.saved_tensors
        grad_x: Tensor = grad_output * output
        return grad_x


def exp_(x: Tensor) -> Tensor:
    output: Tensor = Exp_Function.apply(x)  # type: ignore[no-untyped-call]
    return output


class Exp_(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return exp_(x)
