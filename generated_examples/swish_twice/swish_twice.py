"""The custom operator swish_twice."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class SwishTwiceFunction(Function):
    """Forward and backward of :func:`swish_twice`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return SwishTwiceBackwardFunction.apply(grad_output, x)


class SwishTwiceBackwardFunction(Function):
    """The backward of :func:`swish_twice`, which can be differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad_output: Tensor, x: Tensor) -> Tensor:
        grad_x = torch.ops.aten.silu_backward(grad_output, x)
        return grad_x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        grad_output, x = inputs
        ctx.save_for_backward(x, grad_output if ctx.needs_input_grad[1] else None)

    @staticmethod
    def backward(ctx: Any, grad_grad_x: Tensor) -> tuple[Tensor | None, ...]:
        x, grad_output = ctx.saved_tensors
        grad_grad_output = grad_x = None
        sigmoid = torch.sigmoid(x)
        # w.r.t. grad_output * sigmoid
        grad_product = grad_grad_x * (1 + x * (1 - sigmoid))
        if ctx.needs_input_grad[1]:
            # w.r.t. 1 + x * (1 - sigmoid)
            grad_total = grad_grad_x * grad_output * sigmoid
            grad_sigmoid = grad_product * grad_output - grad_total * x
            grad_x = (1 - sigmoid) * (grad_total + grad_sigmoid * sigmoid)
        if ctx.needs_input_grad[0]:
            grad_grad_output = grad_product * sigmoid
        return grad_grad_output, grad_x


def swish_twice(x: Tensor) -> Tensor:
    """Compute ``x * torch.sigmoid(x)``."""
    return SwishTwiceFunction.apply(x)


class SwishTwice(nn.Module):
    """:func:`swish_twice` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return swish_twice(x)
