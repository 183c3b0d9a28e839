"""Functions that were written by hand, in several styles: nothing is wrong with any of them."""

# mypy: ignore-errors
# ruff: noqa: RUF059

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class LinearDocs(Function):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class Cube(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3, x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g, g2):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g + 2 * g2


class ExpSaved(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class NumpySort(Function):
    generate_vmap_rule = False

    @staticmethod
    def forward(x, dim):
        x_np = x.detach().cpu().numpy()
        ind = np.argsort(x_np, axis=dim)
        ind_inv = np.argsort(ind, axis=dim)
        result = np.take_along_axis(x_np, ind, axis=dim)
        return torch.tensor(result), torch.tensor(ind), torch.tensor(ind_inv)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dim = inputs
        _, ind, ind_inv = output
        ctx.mark_non_differentiable(ind, ind_inv)
        ctx.save_for_backward(ind, ind_inv)
        ctx.dim = dim

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output, _0, _1):
        ind, ind_inv = ctx.saved_tensors
        return torch.gather(grad_output, ctx.dim, ind_inv), None


class RoundSTE(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class SignClipped(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1)


class GradReverse(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.alpha * grad_output, None


class ClipGrad(Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clamp(-ctx.limit, ctx.limit), None


class GatherRows(Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = table.shape[0]
        return table[index]

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        grad = grad_output.new_zeros(ctx.rows, *grad_output.shape[1:])
        return grad.index_add(0, index, grad_output), None


class LayerNormOnce(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps=1e-5):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True, unbiased=False)
        rstd = (var + eps).rsqrt()
        xhat = (x - mean) * rstd
        ctx.save_for_backward(xhat, rstd, weight)
        return xhat * weight + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        xhat, rstd, weight = ctx.saved_tensors
        dims = tuple(range(g.ndim - 1))
        gw = (g * xhat).sum(dims)
        gb = g.sum(dims)
        gx = g * weight
        gx = rstd * (
            gx - gx.mean(-1, keepdim=True) - xhat * (gx * xhat).mean(-1, keepdim=True)
        )
        return gx, gw, gb, None


class Float32Only(Function):
    @staticmethod
    def forward(ctx, x):
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return g * (s * (1 + x * (1 - s)))


class MixedPrecision(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        y = torch.tanh(x.float())
        return (g.float() * (1 - y * y)).to(x.dtype)


def fake_kernel(x, w):
    assert x.is_contiguous() and w.is_contiguous()
    return x * w


class KernelScale(Function):
    @staticmethod
    def forward(ctx, x, w):
        x, w = x.contiguous(), w.contiguous()
        ctx.save_for_backward(x, w)
        return fake_kernel(x, w.expand_as(x).contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        g = grad_output.contiguous()
        return fake_kernel(g, w.expand_as(x).contiguous()), (g * x).sum_to_size(w.shape)


class InplaceRelu(Function):
    @staticmethod
    def forward(ctx, x):
        x.clamp_(min=0)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (y > 0)


class CrossEntropy(Function):
    @staticmethod
    def forward(ctx, logits, target):
        logp = logits.log_softmax(-1)
        ctx.save_for_backward(logits, target)
        n = logits.shape[0]
        return -logp[torch.arange(n), target].mean()

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        p = logits.softmax(-1)
        onehot = F.one_hot(target, logits.shape[-1]).to(p.dtype)
        return g * (p - onehot) / logits.shape[0], None


class MaskedFill(Function):
    @staticmethod
    def forward(ctx, x, mask, value=0.0):
        ctx.save_for_backward(mask)
        return x.masked_fill(mask, value)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g.masked_fill(mask, 0.0), None, None


class OptionalScale(Function):
    @staticmethod
    def forward(ctx, x, scale=None):
        ctx.save_for_backward(x, scale)
        return x if scale is None else x * scale

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        if scale is None:
            return g, None
        return g * scale, (g * x).sum_to_size(scale.shape)


class MaxPool1(Function):
    @staticmethod
    def forward(ctx, x):
        values, index = x.max(-1)
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        ctx.mark_non_differentiable(index)
        return values, index

    @staticmethod
    def backward(ctx, g, _):
        (index,) = ctx.saved_tensors
        zeros = g.new_zeros(ctx.shape)
        return zeros.scatter(-1, index.unsqueeze(-1), g.unsqueeze(-1))


class NoneGrads(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, ga, gb):
        (x,) = ctx.saved_tensors
        grad = None
        if ga is not None:
            grad = ga * x.cos()
        if gb is not None:
            b = -gb * x.sin()
            grad = b if grad is None else grad + b
        return grad


class Dropout(Function):
    @staticmethod
    def forward(ctx, x, p=0.5, training=True):
        if not training:
            ctx.save_for_backward(torch.ones_like(x))
            return x.clone()
        mask = (torch.rand_like(x) > p).to(x.dtype) / (1 - p)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask, None, None


class Conv(Function):
    @staticmethod
    def forward(ctx, x, weight, stride=1, padding=1):
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, stride=stride, padding=padding)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = torch.nn.grad.conv2d_input(x.shape, w, g, ctx.stride, ctx.padding)
        gw = torch.nn.grad.conv2d_weight(x, w.shape, g, ctx.stride, ctx.padding)
        return gx, gw, None, None


class Attention(Function):
    @staticmethod
    def forward(q, k, v):
        p = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        return p @ v

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        q, k, v = ctx.saved_tensors
        s = 1 / math.sqrt(q.shape[-1])
        p = torch.softmax(q @ k.mT * s, -1)
        gv = p.mT @ g
        gp = g @ v.mT
        ga = p * (gp - (gp * p).sum(-1, keepdim=True))
        return ga @ k * s, ga.mT @ q * s, gv


class Recompute(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        with torch.no_grad():
            return torch.relu(x @ w)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            y = torch.relu(x @ w)
        return torch.autograd.grad(y, (x, w), g)


class SquaredReLU(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.relu(x).square()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * torch.relu(x)


class MSELoss(Function):
    @staticmethod
    def forward(ctx, pred, target):
        ctx.save_for_backward(pred, target)
        return ((pred - target) ** 2).mean()

    @staticmethod
    def backward(ctx, g):
        pred, target = ctx.saved_tensors
        grad = 2 * (pred - target) / pred.numel() * g
        return grad, -grad


class Argmax(Function):
    @staticmethod
    def forward(ctx, x):
        out = x.argmax(-1)
        ctx.mark_non_differentiable(out)
        return out

    @staticmethod
    def backward(ctx, g):
        return None


class BatchNormTrain(Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, eps):
        mu = x.mean((0, 2, 3), keepdim=True)
        var = x.var((0, 2, 3), unbiased=False, keepdim=True)
        inv = torch.rsqrt(var + eps)
        xhat = (x - mu) * inv
        ctx.save_for_backward(xhat, inv, gamma)
        return gamma.view(1, -1, 1, 1) * xhat + beta.view(1, -1, 1, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        xhat, inv, gamma = ctx.saved_tensors
        gb = g.sum((0, 2, 3))
        gg = (g * xhat).sum((0, 2, 3))
        n = g.numel() / g.shape[1]
        v = lambda t: t.view(1, -1, 1, 1)
        gx = v(gamma) * inv * (g - v(gb) / n - xhat * v(gg) / n)
        return gx, gg, gb, None


class Cat(Function):
    @staticmethod
    def forward(ctx, *xs):
        ctx.sizes = [x.shape[0] for x in xs]
        return torch.cat(xs)

    @staticmethod
    def backward(ctx, g):
        return tuple(g.split(ctx.sizes))


class Quantize(Function):
    @staticmethod
    def forward(ctx, x, scale, zero_point, qmin, qmax):
        q = torch.round(x / scale) + zero_point
        ctx.save_for_backward((q >= qmin) & (q <= qmax))
        return (q.clamp(qmin, qmax) - zero_point) * scale

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return g * inside, None, None, None, None
