"""Planted bugs that the fixes of some rules mend, where the example of the rule alone does not show them.

Each is a file below `HEAD` of `tests.lint.cases`.
"""

PLANTED = {
    "AF04": """\
class Keep(Function):
    @staticmethod
    def forward(ctx, x):
        mask = x > 0
        ctx.save_for_backward(mask)
        ctx.mark_non_differentiable(mask)
        return x * mask, mask

    @staticmethod
    def backward(ctx, grad_output):  # of the mask there is none
        (mask,) = ctx.saved_tensors
        return grad_output * mask
""",
    "AF06": """\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor: float):
        ctx.save_for_backward(x, factor)  # both of them
        return x * x * factor

    @staticmethod
    def backward(ctx, grad_output):
        x, factor = ctx.saved_tensors
        return 2 * x * grad_output * factor, None
""",
    "AF15": """\
class Both(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad_double, grad_triple):
        return grad_double * 2 + grad_triple * 3
""",
    "AF20": """\
class Swish(Function):
    @staticmethod
    def forward(ctx, x, factor=2.0):
        y = x * torch.sigmoid(x)
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * (y + torch.sigmoid(x) * (1 - y)), None
""",
    "AF22": """\
class Double(Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    # the tangent goes the same way
    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    "AF23": """\
class Mul(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x
""",
    "AF31": """\
from kernels_of_the_test import _C


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return _C.cube_backward(grad_output, x)
""",
    "AF35": """\
from torch.autograd import Variable


def start(n):
    return Variable(torch.zeros(n))
""",
    "AF44": """\
class Launcher:
    def __getitem__(self, grid):
        return self.run

    def run(self, x, out, n):
        flat = torch.as_strided(x, (n,), (1,))
        torch.as_strided(out, (n,), (1,)).copy_(flat * 2)


double_kernel = Launcher()


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        grad_x = torch.empty_like(grad_output)
        double_kernel[(1,)](grad_output, grad_x, grad_x.numel())
        return grad_x
""",
}
