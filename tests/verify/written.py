"""Hand-written Functions."""

RELU = """\
import torch
from torch.autograd import Function

# not formatted   at all
def   helper( a ): return a


class Relu(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return x.clamp(min=0) * alpha

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[x < 0] = 0
        return grad_input * ctx.alpha, None
"""
SCALED = """\
import torch


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        if not ctx.needs_input_grad[0]:
            return None, None
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad * ctx.factor
        return grad_x, None
"""
