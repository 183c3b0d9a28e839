"""Apply a function of one tensor."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class ApplyToFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, function: Any) -> Tensor:
        output: Tensor = function(x)
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.function = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        pullback = torch.func.vjp(ctx.function, x)[1]
        return pullback(grad_output)[0], None


def apply_to(x: Tensor, function: object) -> Tensor:
    output: Tensor = ApplyToFunction.apply(x, function)  # type: ignore[no-untyped-call]
    return output


class ApplyTo(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return apply_to(x, self.function)
