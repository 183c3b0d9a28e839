from torch.autograd import Function


class Round(Function):
    """Round, with the gradient of doing nothing."""

    @staticmethod
    def forward(ctx, x, levels):
        return (x * levels).round() / levels

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None
