import torch
from torch.autograd import Function


class LogCosh(Function):
    @staticmethod
    def forward(ctx, error):
        ctx.save_for_backward(error)
        return torch.log(torch.cosh(error)).mean()

    @staticmethod
    def backward(ctx, grad_output):
        (error,) = ctx.saved_tensors
        return grad_output * torch.tanh(error)
