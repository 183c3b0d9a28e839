from torch.autograd import Function


class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output @ weight
        if ctx.needs_input_grad[1]:
            flat = grad_output.view(-1, weight.shape[0])
            grad_weight = flat.t() @ x.reshape(-1, weight.shape[1])
        return grad_x, grad_weight
