"""Functions that were written by hand: one thing is wrong with each of them."""

# mypy: ignore-errors
# ruff: noqa: F821, RUF059

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class WrongFactor(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x**2 * g


class WrongSign(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x / y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g / y, g * x / y**2


class Swapped(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * x, g * y


class LinearTransposed(Function):
    @staticmethod
    def forward(ctx, input, weight, bias):
        ctx.save_for_backward(input, weight)
        return input @ weight.t() + bias

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, x.t() @ g, g.sum(0)


class BiasMean(Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, g):
        return g, g.mean(0)


class TwoPassShared(Function):
    cache = None

    @staticmethod
    def forward(ctx, x):
        TwoPassShared.cache = x.detach().clone()
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * TwoPassShared.cache.cos()


class CtxInput(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.x * g


class OutputOnCtx(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.out = torch.sigmoid(x)
        return ctx.out

    @staticmethod
    def backward(ctx, g):
        return g * ctx.out * (1 - ctx.out)


class GradInplace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.relu(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_output[x < 0] = 0
        return grad_output


class InputInplace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        return g


class MissingNone(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x * alpha

    @staticmethod
    def backward(ctx, g):
        return g * ctx.alpha


class NeedsIndexSwapped(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[1]:
            gx = g * w
        if ctx.needs_input_grad[0]:
            gw = g * x
        return gx, gw


class SumNoExpand(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sum(-1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.sum() * torch.ones_like(x)


class SoftmaxNoSum(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (1 - y) * g


class SoftmaxWrongDim(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(1, keepdim=True))


class LossIgnoresGrad(Function):
    @staticmethod
    def forward(ctx, pred, target):
        ctx.save_for_backward(pred, target)
        return ((pred - target) ** 2).mean()

    @staticmethod
    def backward(ctx, g):
        pred, target = ctx.saved_tensors
        return 2 * (pred - target) / pred.numel(), None


class ClampBoundary(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-3, 3)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g


class LayerNormNoOnce(Function):
    @staticmethod
    def forward(ctx, x, weight):
        mean = x.mean(-1, keepdim=True)
        rstd = (x.var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt()
        xhat = (x - mean) * rstd
        ctx.save_for_backward(xhat, rstd, weight)
        return xhat * weight

    @staticmethod
    def backward(ctx, g):
        xhat, rstd, weight = ctx.saved_tensors
        gw = (g * xhat).sum(0)
        gx = g * weight
        gx = rstd * (
            gx - gx.mean(-1, keepdim=True) - xhat * (gx * xhat).mean(-1, keepdim=True)
        )
        return gx, gw


class LayerNormMissingTerm(Function):
    @staticmethod
    def forward(ctx, x, weight):
        mean = x.mean(-1, keepdim=True)
        rstd = (x.var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt()
        xhat = (x - mean) * rstd
        ctx.save_for_backward(xhat, rstd, weight)
        return xhat * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        xhat, rstd, weight = ctx.saved_tensors
        gx = g * weight
        return rstd * (gx - gx.mean(-1, keepdim=True)), (g * xhat).sum(0)


class VmapRuleBroken(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x.sum().item()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.sum() + (g * x).sum()


class ViewGrad(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.reshape(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(ctx.shape).transpose(0, 1).contiguous().view(ctx.shape)


class ViewStrided(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g.view(-1) * x.exp().view(-1)).view(x.shape)


class RawMemory(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx, g):
        n = g.untyped_storage().nbytes() // g.element_size()
        flat = torch.as_strided(g, (min(n, g.numel()),), (1,), 0)
        out = torch.zeros(g.numel(), dtype=g.dtype)
        out[: flat.numel()] = flat
        return 3 * out.reshape(g.shape)


class Float64Lost(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g.half() * x.half().cos()).to(g.dtype)


class DirtyMissing(Function):
    @staticmethod
    def forward(ctx, x):
        x.clamp_(min=0)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0)


class FreedCache(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.buffer = [x.cos()]
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * ctx.buffer.pop()


class SavedMutated(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.d = x.cos()
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return ctx.d.mul_(g)


class SecondOutputIgnored(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square(), x.abs().sum(-1)

    @staticmethod
    def backward(ctx, g, g2):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class NoneArithmetic(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        return a + b, a - b

    @staticmethod
    def backward(ctx, g1, g2):
        return g1 + g2, g1 - g2


class IndexPut(Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        grad = g.new_zeros(ctx.shape)
        grad[index] = g
        return grad, None


class CrossEntropyNoMean(Function):
    @staticmethod
    def forward(ctx, logits, target):
        ctx.save_for_backward(logits, target)
        return F.cross_entropy(logits, target)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        p = logits.softmax(-1)
        p[torch.arange(len(target)), target] -= 1
        return g * p, None


class GeluApprox(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        return g * cdf


class NormEps(Function):
    @staticmethod
    def forward(ctx, x):
        n = x.norm(dim=-1, keepdim=True)
        ctx.save_for_backward(x, n)
        return x / n

    @staticmethod
    def backward(ctx, g):
        x, n = ctx.saved_tensors
        return g / n


class DetachedSecond(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.detach().clone())
        return x**4

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 4 * x**3


class ConvNoPadding(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, padding=1)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return (
            torch.nn.grad.conv2d_input(x.shape, w, g, padding=1),
            torch.nn.grad.conv2d_weight(x, w.shape, g, padding=1).flip(-1),
        )


class AbsAtNegative(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.leaky_relu(x, 0.1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, 0.01 * g)


class HardTanhLarge(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.softplus(x, threshold=20)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp() / (1 + x.exp())


class ReturnsList(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return g, g, None, g


class BackwardTypo(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * undefined_name
