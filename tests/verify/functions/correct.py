"""Functions that were written by hand, in several styles: nothing is wrong with any of them."""

# mypy: ignore-errors
# ruff: noqa: RUF059

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
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


class SwishMemoryEfficient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i):
        ctx.save_for_backward(i)
        return i * torch.sigmoid(i)

    @staticmethod
    def backward(ctx, grad_output):
        i = ctx.saved_tensors[0]
        sigmoid_i = torch.sigmoid(i)
        return grad_output * (sigmoid_i * (1 + i * (1 - sigmoid_i)))


class MishJit(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.mul(torch.tanh(F.softplus(x)))

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0]
        x_sigmoid = torch.sigmoid(x)
        x_tanh_sp = F.softplus(x).tanh()
        return grad_output.mul(x_tanh_sp + x * x_sigmoid * (1 - x_tanh_sp * x_tanh_sp))


class GumbelHard(Function):
    """Straight-through one-hot."""

    @staticmethod
    def forward(ctx, logits):
        index = logits.argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, index, 1.0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class SpikeATan(Function):
    @staticmethod
    def forward(ctx, x, alpha=2.0):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return ctx.alpha / 2 / (1 + (torch.pi / 2 * ctx.alpha * x).pow(2)) * g, None


class ScaleGrad(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None


class VQ(Function):
    @staticmethod
    def forward(ctx, inputs, codebook):
        with torch.no_grad():
            distances = torch.cdist(inputs, codebook)
            indices = distances.argmin(-1)
            ctx.save_for_backward(indices, codebook)
            ctx.mark_non_differentiable(indices)
            return codebook[indices], indices

    @staticmethod
    def backward(ctx, grad_output, grad_indices):
        grad_inputs = grad_codebook = None
        if ctx.needs_input_grad[0]:
            grad_inputs = grad_output.clone()
        if ctx.needs_input_grad[1]:
            indices, codebook = ctx.saved_tensors
            flat = grad_output.contiguous().view(-1, codebook.size(1))
            grad_codebook = torch.zeros_like(codebook)
            grad_codebook.index_add_(0, indices.reshape(-1), flat)
        return grad_inputs, grad_codebook


class LogSumExp(Function):
    @staticmethod
    def forward(ctx, x, dim: int = -1):
        out = torch.logsumexp(x, dim)
        ctx.save_for_backward(x, out)
        ctx.dim = dim
        return out

    @staticmethod
    def backward(ctx, g):
        x, out = ctx.saved_tensors
        return (x - out.unsqueeze(ctx.dim)).exp() * g.unsqueeze(ctx.dim), None


class Embedding(Function):
    @staticmethod
    def forward(ctx, weight, indices, padding_idx=-1):
        ctx.save_for_backward(indices)
        ctx.num = weight.size(0)
        ctx.padding_idx = padding_idx
        return F.embedding(indices, weight)

    @staticmethod
    def backward(ctx, g):
        (indices,) = ctx.saved_tensors
        grad = torch.zeros(ctx.num, g.size(-1), dtype=g.dtype, device=g.device)
        grad.index_add_(0, indices.reshape(-1), g.reshape(-1, g.size(-1)))
        return grad, None, None


class ScatterSum(Function):
    @staticmethod
    def forward(ctx, src: Tensor, index: Tensor, dim_size: int):
        ctx.save_for_backward(index)
        out = src.new_zeros(dim_size, src.size(1))
        return out.index_add_(0, index, src)

    @staticmethod
    def backward(ctx, grad_out):
        (index,) = ctx.saved_tensors
        return grad_out.index_select(0, index), None, None


class RMSNorm(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float):
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        return x * rstd * weight

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, eps = inputs
        ctx.save_for_backward(x, weight)
        ctx.eps = eps

    @staticmethod
    def backward(ctx: Any, dy: Tensor):
        x, w = ctx.saved_tensors
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + ctx.eps)
        xhat = x * rstd
        wdy = w * dy
        dx = (wdy - xhat * (xhat * wdy).mean(-1, keepdim=True)) * rstd
        dw = (dy * xhat).reshape(-1, w.shape[0]).sum(0)
        return dx, dw, None


class SwiGLU(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, dc):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(a)
        silu = a * s
        return dc * (silu * (1 - s) + s) * b, dc * silu


class AllReduceIdentity(Function):
    """Copy to the region: the identity forward, a sum backward."""

    @staticmethod
    def forward(ctx, input_):
        return input_.view_as(input_)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone()


class Checkpointed(Function):
    @staticmethod
    def forward(ctx, x, w1, w2):
        ctx.save_for_backward(x, w1, w2)
        return torch.tanh(x @ w1) @ w2

    @staticmethod
    def backward(ctx, g):
        x, w1, w2 = ctx.saved_tensors
        h = torch.tanh(x @ w1)
        gh = (g @ w2.t()) * (1 - h * h)
        return gh @ w1.t(), x.t() @ gh, h.t() @ g


class Cholesky(Function):
    @staticmethod
    def forward(ctx, a):
        l = torch.linalg.cholesky(a)
        ctx.save_for_backward(l)
        return l

    @staticmethod
    def backward(ctx, grad_output):
        (l,) = ctx.saved_tensors
        linv = l.inverse()
        inner = torch.tril(torch.mm(l.t(), grad_output)) * torch.tril(
            1.0 - l.new_full((l.size(1),), 0.5).diag()
        )
        s = torch.mm(linv.t(), torch.mm(inner, linv))
        return (s + s.t()) / 2.0


class Inverse(Function):
    @staticmethod
    def forward(ctx, a):
        out = torch.linalg.inv(a)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        (inv,) = ctx.saved_tensors
        return -inv.mT @ g @ inv.mT


class UpFirDown(Function):
    @staticmethod
    def forward(ctx, x, kernel):
        ctx.save_for_backward(kernel)
        ctx.in_size = x.shape
        n, c, h, w = x.shape
        return F.conv2d(
            x.reshape(n * c, 1, h, w), kernel[None, None], padding=1
        ).reshape(n, c, *F.conv2d(x[:1, :1], kernel[None, None], padding=1).shape[-2:])

    @staticmethod
    def backward(ctx, g):
        (kernel,) = ctx.saved_tensors
        n, c, h, w = ctx.in_size
        gx = F.conv_transpose2d(
            g.reshape(n * c, 1, *g.shape[-2:]), kernel[None, None], padding=1
        )
        return gx.reshape(ctx.in_size), None


class ChannelShuffle(Function):
    @staticmethod
    def forward(ctx, x, groups: int):
        ctx.groups = groups
        n, c, h, w = x.shape
        return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)

    @staticmethod
    def backward(ctx, g):
        n, c, h, w = g.shape
        return (
            g.reshape(n, c // ctx.groups, ctx.groups, h, w)
            .transpose(1, 2)
            .reshape(n, c, h, w),
            None,
        )


class FocalLoss(Function):
    @staticmethod
    def forward(ctx, logits, targets, alpha: float, gamma: float):
        p = torch.sigmoid(logits)
        ctx.save_for_backward(logits, targets)
        ctx.alpha, ctx.gamma = alpha, gamma
        ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        pt = p * targets + (1 - p) * (1 - targets)
        return (alpha * (1 - pt) ** gamma * ce).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        logits, targets = ctx.saved_tensors
        with torch.enable_grad():
            z = logits.detach().requires_grad_()
            p = torch.sigmoid(z)
            ce = F.binary_cross_entropy_with_logits(z, targets, reduction="none")
            pt = p * targets + (1 - p) * (1 - targets)
            loss = (ctx.alpha * (1 - pt) ** ctx.gamma * ce).sum()
        (grad,) = torch.autograd.grad(loss, z)
        return grad * g, None, None, None


class SegmentedCumsum(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(-1)

    @staticmethod
    def backward(ctx, g):
        return g.flip(-1).cumsum(-1).flip(-1)


class SoftThreshold(Function):
    @staticmethod
    def forward(ctx, x, lambd=0.5):
        ctx.save_for_backward(x)
        ctx.lambd = lambd
        return F.softshrink(x, lambd)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() > ctx.lambd), None


class SplitHalf(Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x.chunk(2, dim=-1)
        return a.clone(), b.clone()

    @staticmethod
    def backward(ctx, ga, gb):
        return torch.cat([ga, gb], dim=-1)


class BilinearForm(Function):
    @staticmethod
    def forward(ctx, x, A, y):
        ctx.save_for_backward(x, A, y)
        return torch.einsum("bi,ij,bj->b", x, A, y)

    @staticmethod
    def backward(ctx, g):
        x, A, y = ctx.saved_tensors
        gx = torch.einsum("b,ij,bj->bi", g, A, y)
        gA = torch.einsum("b,bi,bj->ij", g, x, y)
        gy = torch.einsum("b,bi,ij->bj", g, x, A)
        return gx, gA, gy


class LSTMCell(Function):
    @staticmethod
    def forward(ctx, gates, c):
        i, f, o, u = gates.chunk(4, -1)
        ctx.save_for_backward(gates, c)
        c2 = f.sigmoid() * c + i.sigmoid() * u.tanh()
        return o.sigmoid() * c2.tanh(), c2

    @staticmethod
    def backward(ctx, gh, gc):
        gates, c = ctx.saved_tensors
        i, f, o, u = gates.chunk(4, -1)
        i, f, o, u = i.sigmoid(), f.sigmoid(), o.sigmoid(), u.tanh()
        c2 = f * c + i * u
        t = c2.tanh()
        d = gc + gh * o * (1 - t * t)
        return (
            torch.cat(
                [
                    d * u * i * (1 - i),
                    d * c * f * (1 - f),
                    gh * t * o * (1 - o),
                    d * i * (1 - u * u),
                ],
                -1,
            ),
            d * f,
        )


class ComplexAbs2(Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return (z * z.conj()).real

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return 2 * g * z


class Reduction(Function):
    @staticmethod
    def forward(ctx, x, reduction="mean"):
        ctx.shape, ctx.reduction = x.shape, reduction
        return x.mean() if reduction == "mean" else x.sum()

    @staticmethod
    def backward(ctx, g):
        g = g.expand(ctx.shape)
        return (g / math.prod(ctx.shape) if ctx.reduction == "mean" else g), None


class Pad(Function):
    @staticmethod
    def forward(ctx, x, pad=(1, 1)):
        ctx.pad = pad
        return F.pad(x, pad)

    @staticmethod
    def backward(ctx, g):
        left, right = ctx.pad
        return g[..., left : g.shape[-1] - right], None


class NumpyTanh(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.from_numpy(np.tanh(x.detach().cpu().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        gn = g.numpy() * (1 - y.numpy() ** 2)
        return torch.from_numpy(gn)


class TwoDOnly(Function):
    @staticmethod
    def forward(ctx, x, y):
        assert x.dim() == 2 and y.dim() == 2, "matrices"
        ctx.save_for_backward(x, y)
        return torch.mm(x, y.t())

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g.mm(y), g.t().mm(x)


class GroupNorm(Function):
    @staticmethod
    def forward(ctx, x, num_groups: int, weight, bias, eps: float):
        n, c = x.shape[:2]
        v = x.reshape(n, num_groups, -1)
        mean = v.mean(-1, keepdim=True)
        rstd = (v.var(-1, unbiased=False, keepdim=True) + eps).rsqrt()
        xhat = ((v - mean) * rstd).reshape(x.shape)
        shape = (1, c) + (1,) * (x.dim() - 2)
        ctx.save_for_backward(xhat, rstd, weight)
        ctx.num_groups = num_groups
        return xhat * weight.reshape(shape) + bias.reshape(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        xhat, rstd, weight = ctx.saved_tensors
        n, c = g.shape[:2]
        shape = (1, c) + (1,) * (g.dim() - 2)
        dims = [d for d in range(g.dim()) if d != 1]
        gw, gb = (g * xhat).sum(dims), g.sum(dims)
        gx = (g * weight.reshape(shape)).reshape(n, ctx.num_groups, -1)
        xh = xhat.reshape(n, ctx.num_groups, -1)
        gx = rstd * (
            gx - gx.mean(-1, keepdim=True) - xh * (gx * xh).mean(-1, keepdim=True)
        )
        return gx.reshape(g.shape), None, gw, gb, None


class Where(Function):
    @staticmethod
    def forward(ctx, cond, a, b):
        ctx.save_for_backward(cond)
        return torch.where(cond, a, b)

    @staticmethod
    def backward(ctx, g):
        (cond,) = ctx.saved_tensors
        zero = torch.zeros_like(g)
        return None, torch.where(cond, g, zero), torch.where(cond, zero, g)


class NLL(Function):
    @staticmethod
    def forward(ctx, logp, labels):
        ctx.save_for_backward(labels)
        ctx.shape = logp.shape
        return -logp.gather(1, labels[:, None]).squeeze(1).mean()

    @staticmethod
    def backward(ctx, g):
        (labels,) = ctx.saved_tensors
        grad = torch.zeros(ctx.shape, dtype=g.dtype)
        grad.scatter_(1, labels[:, None], -1.0 / ctx.shape[0])
        return grad * g, None


class TopK(Function):
    @staticmethod
    def forward(ctx, x, k: int):
        values, indices = torch.topk(x, k, dim=-1)
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        ctx.size = x.shape
        return values, indices

    @staticmethod
    def backward(ctx, g, _):
        (indices,) = ctx.saved_tensors
        return torch.zeros(ctx.size, dtype=g.dtype).scatter(-1, indices, g), None


class Interp(Function):
    @staticmethod
    def forward(ctx, a, b, t):
        ctx.save_for_backward(a, b, t)
        return a + t * (b - a)

    @staticmethod
    def backward(ctx, g):
        a, b, t = ctx.saved_tensors
        ga = gb = gt = None
        if ctx.needs_input_grad[0]:
            ga = (g * (1 - t)).sum_to_size(a.shape)
        if ctx.needs_input_grad[1]:
            gb = (g * t).sum_to_size(b.shape)
        if ctx.needs_input_grad[2]:
            gt = (g * (b - a)).sum_to_size(t.shape)
        return ga, gb, gt


class Parent(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos()


class Child(Parent):
    @staticmethod
    def forward(ctx, x):
        return Parent.forward(ctx, x)


class Rope(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        a, b = x.chunk(2, -1)
        ctx.save_for_backward(cos, sin)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        ga, gb = g.chunk(2, -1)
        return torch.cat([ga * cos + gb * sin, gb * cos - ga * sin], -1), None, None


class JvpToo(Function):
    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w = inputs
        ctx.save_for_backward(x, w)
        ctx.save_for_forward(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.mT, x.mT @ g

    @staticmethod
    def jvp(ctx, dx, dw):
        x, w = ctx.saved_tensors
        return dx @ w + x @ dw

    @staticmethod
    def vmap(info, in_dims, x, w):
        x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x
        w = w.movedim(in_dims[1], 0) if in_dims[1] is not None else w
        return JvpToo.apply(x, w), 0


class JvpOfFourier(Function):
    """The tangent of complex numbers is complex, the gradient of real ones is real."""

    @staticmethod
    def forward(x):
        return torch.fft.fft(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.size = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx, g):
        return torch.fft.ifft(g).real * ctx.size

    @staticmethod
    def jvp(ctx, tangent):
        return torch.fft.fft(tangent)


class JvpInFloat32(Function):
    """The output has another dtype than the input."""

    @staticmethod
    def forward(x, w):
        return (x * w).float()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return (g * w).to(x.dtype), (g * x).to(w.dtype)

    @staticmethod
    def jvp(ctx, dx, dw):
        x, w = ctx.saved_tensors
        return (dx * w + x * dw).float()


class PairwiseDistance(Function):
    @staticmethod
    def forward(ctx, x, y, eps=1e-8):
        diff = x[:, None] - y[None]
        dist = (diff.square().sum(-1) + eps).sqrt()
        ctx.save_for_backward(x, y, dist)
        return dist

    @staticmethod
    def backward(ctx, g):
        x, y, dist = ctx.saved_tensors
        w = (g / dist)[..., None] * (x[:, None] - y[None])
        return w.sum(1), -w.sum(0), None


class Float16Storage(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x > 0)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask


class RandomizedRelu(Function):
    @staticmethod
    def forward(ctx, x, lower=0.1, upper=0.3):
        a = torch.empty_like(x).uniform_(lower, upper)
        slope = torch.where(x >= 0, torch.ones_like(x), a)
        ctx.save_for_backward(slope)
        return x * slope

    @staticmethod
    def backward(ctx, g):
        (slope,) = ctx.saved_tensors
        return g * slope, None, None


class SingleGradient(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.double() ** 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (2 * g * x).float()


class ForExport(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def symbolic(graph, x):
        return graph.op("Round", x)


class IndexOnCtx(Function):
    """An index is kept on ctx, as in libraries of point clouds."""

    @staticmethod
    def forward(ctx, features, idx):
        ctx.for_backward = (idx, features.shape[1])
        return features.gather(1, idx)

    @staticmethod
    def backward(ctx, g):
        idx, count = ctx.for_backward
        return g.new_zeros(g.shape[0], count).scatter_add(1, idx, g), None


class DecayScan(Function):
    """Inputs of one shape broadcast by accident: the weight is meant for a row."""

    @staticmethod
    def forward(ctx, x, a):
        h, found = torch.zeros_like(x[0]), []
        for row in x:
            h = a * h + row
            found.append(h)
        y = torch.stack(found)
        ctx.save_for_backward(y, a)
        return y

    @staticmethod
    def backward(ctx, gy):
        y, a = ctx.saved_tensors
        g, ga, gx = torch.zeros_like(gy[0]), torch.zeros_like(a), []
        for t in reversed(range(y.shape[0])):
            g = gy[t] + (a * g if gx else 0)
            gx.insert(0, g)
            if t > 0:
                ga = ga + (g * y[t - 1]).sum_to_size(a.shape)
        return torch.stack(gx), ga


class GatedBound(Function):
    """A gradient passes where it moves the value back above the bound."""

    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x, bound)
        return torch.max(x, bound)

    @staticmethod
    def backward(ctx, g):
        x, bound = ctx.saved_tensors
        return ((x >= bound) | (g < 0)) * g, None


class Rotary(Function):
    """Rows have halves, so their size is even."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        one, two = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-two, one), dim=-1) * sin

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        one, two = (g * sin).chunk(2, dim=-1)
        return g * cos + torch.cat((two, -one), dim=-1), None, None


class ScatterMean(Function):
    """A whole number is a size."""

    @staticmethod
    def forward(ctx, src, index, dim_size):
        count = torch.bincount(index, minlength=dim_size).clamp(min=1).to(src.dtype)
        ctx.save_for_backward(index, count)
        out = src.new_zeros(dim_size, src.size(1)).index_add_(0, index, src)
        return out / count.unsqueeze(1)

    @staticmethod
    def backward(ctx, g):
        index, count = ctx.saved_tensors
        return (g / count.unsqueeze(1))[index], None, None


class ComplexMul(Function):
    """Real numbers are refused."""

    @staticmethod
    def forward(ctx, z, w):
        if not (z.is_complex() and w.is_complex()):
            raise TypeError("expected complex tensors")
        ctx.save_for_backward(z, w)
        return z * w

    @staticmethod
    def backward(ctx, g):
        z, w = ctx.saved_tensors
        return (g * w.conj()).sum_to_size(z.shape), (g * z.conj()).sum_to_size(w.shape)


class Ternarize(Function):
    """Rounded to three numbers, of which two depend on the input."""

    @staticmethod
    def forward(ctx, weight):
        mask = (weight.abs() > 0.7 * weight.abs().mean()).to(weight.dtype)
        scale = (weight.abs() * mask).sum() / mask.sum().clamp(min=1)
        return scale * weight.sign() * mask

    @staticmethod
    def backward(ctx, g):
        return g.clone()


class MatrixRoot(Function):
    """The forward reads one triangle of a symmetric matrix."""

    @staticmethod
    def forward(ctx, a):
        values, vectors = torch.linalg.eigh(a)
        ctx.save_for_backward(values.sqrt(), vectors)
        return (vectors * values.sqrt()) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        s, v = ctx.saved_tensors
        inner = v.mT @ g @ v / (s.unsqueeze(-1) + s.unsqueeze(-2))
        return v @ inner @ v.mT


class NormOfChannels(Function):
    """Two equal values of channels have no variance: there the gradient has a peak as narrow as eps."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.eps = eps
        mu = x.mean(1, keepdim=True)
        var = (x - mu).pow(2).mean(1, keepdim=True)
        y = (x - mu) / (var + eps).sqrt()
        ctx.save_for_backward(y, var, weight)
        return weight.view(1, -1, 1, 1) * y + bias.view(1, -1, 1, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        y, var, weight = ctx.saved_tensors
        g = grad_output * weight.view(1, -1, 1, 1)
        mean_g = g.mean(1, keepdim=True)
        mean_gy = (g * y).mean(1, keepdim=True)
        grad_x = (g - y * mean_gy - mean_g) / torch.sqrt(var + ctx.eps)
        dims = (0, 2, 3)
        return grad_x, (grad_output * y).sum(dims), grad_output.sum(dims), None


class LearnedBound(Function):
    """A bound is positive: below 0 it would cross the lower limit."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        return torch.minimum(x.clamp(min=0), alpha)

    @staticmethod
    def backward(ctx, dy):
        x, alpha = ctx.saved_tensors
        above, below = x >= alpha, x <= 0
        grad_x = dy * (~(above | below)).to(dy.dtype)
        return grad_x, (dy * above.to(dy.dtype)).sum_to_size(alpha.shape)


class ClampedByParameter(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        return torch.clamp(x, min=0, max=alpha.item())

    @staticmethod
    def backward(ctx, dy):
        x, alpha = ctx.saved_tensors
        above, below = x >= alpha, x < 0
        grad_alpha = (dy * above.to(dy.dtype)).sum().reshape(alpha.shape)
        return dy * (~(above | below)).to(dy.dtype), grad_alpha


class FocalOfTargets(Function):
    """Targets are 0 or 1: between them the gradient would be another one."""

    @staticmethod
    def forward(ctx, logits, targets, alpha=0.25, gamma=2.0):
        p = torch.sigmoid(logits)
        ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        pt = p * targets + (1 - p) * (1 - targets)
        at = alpha * targets + (1 - alpha) * (1 - targets)
        ctx.save_for_backward(logits, targets)
        ctx.alpha, ctx.gamma = alpha, gamma
        return at * (1 - pt) ** gamma * ce

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        logits, targets = ctx.saved_tensors
        p, q = torch.sigmoid(logits), torch.sigmoid(-logits)
        one = q**ctx.gamma * (ctx.gamma * p * F.logsigmoid(logits) - q)
        zero = p**ctx.gamma * (p - ctx.gamma * q * F.logsigmoid(-logits))
        slope = ctx.alpha * targets * one + (1 - ctx.alpha) * (1 - targets) * zero
        return slope * grad_output, None, None, None


class ScatterOptionalSize(Function):
    @staticmethod
    def forward(ctx, src, index, dim_size=None):
        if dim_size is None:
            dim_size = int(index.max()) + 1
        ctx.save_for_backward(index)
        out = torch.zeros(dim_size, *src.shape[1:], dtype=src.dtype)
        return out.index_add_(0, index, src)

    @staticmethod
    def backward(ctx, grad_out):
        (index,) = ctx.saved_tensors
        return grad_out[index], None, None


class DepthwiseConv(Function):
    @staticmethod
    def forward(ctx, x, weight, stride=1, padding=0):
        ctx.stride, ctx.padding, ctx.groups = stride, padding, x.shape[1]
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, None, stride, padding, 1, x.shape[1])

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        said = {"stride": ctx.stride, "padding": ctx.padding, "groups": ctx.groups}
        gx = torch.nn.grad.conv2d_input(x.shape, weight, grad_output, **said)
        gw = torch.nn.grad.conv2d_weight(x, weight.shape, grad_output, **said)
        return gx, gw, None, None


class ModReLU(Function):
    """Its first input is complex, its second is not."""

    @staticmethod
    def forward(ctx, z, bias):
        ctx.save_for_backward(z, bias)
        r = z.abs()
        return torch.relu(r + bias) * z / r

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        z, bias = ctx.saved_tensors
        r = z.abs()
        active = (r + bias > 0).to(r.dtype)
        along = (grad * z.conj() / r).real
        across = (grad * z.conj() / r).imag
        gz = active * z / r * torch.complex(along, across * (r + bias) / r)
        return gz, (active * along).reshape(-1, bias.shape[0]).sum(0)


class SparseValues(Function):
    """The size of a sparse matrix is a tuple of numbers."""

    @staticmethod
    def forward(ctx, indices, values, shape, b):
        ctx.save_for_backward(indices, values, b)
        ctx.shape = shape
        return torch.matmul(torch.sparse_coo_tensor(indices, values, shape), b)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        indices, values, b = ctx.saved_tensors
        a = torch.sparse_coo_tensor(indices, values, ctx.shape)
        picked = grad_output[indices[0]] * b[indices[1]]
        return None, picked.sum(-1), None, a.t().matmul(grad_output)


class BackwardAlone(Function):
    """Its backward refuses torch.autograd.grad."""

    @staticmethod
    def forward(ctx, run, *tensors):
        ctx.run = run
        ctx.save_for_backward(*tensors)
        with torch.no_grad():
            return run(*tensors)

    @staticmethod
    def backward(ctx, grad_output):
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("not compatible with .grad(), use .backward()")
        given = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            torch.autograd.backward(ctx.run(*given), grad_output)
        return None, *(x.grad for x in given)


class TrainedDropout(Function):
    """An argument has a name of nn.Module."""

    @staticmethod
    def forward(ctx, x, p=0.5, train=True):
        ctx.noise = None
        if not train:
            return x.clone()
        ctx.noise = torch.empty_like(x[0]).bernoulli_(1 - p).div_(1 - p)
        return x * ctx.noise

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.noise is None:
            return grad_output, None, None
        return grad_output * ctx.noise, None, None


class Solved(Function):
    """A matrix of equal rows has no solution: that says nothing of strides."""

    @staticmethod
    def forward(ctx, a, b):
        x = torch.from_numpy(np.linalg.solve(a.numpy(), b.numpy()))
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        a, x = ctx.saved_tensors
        one = torch.from_numpy(np.linalg.solve(a.numpy().T, grad.numpy()))
        return -one @ x.t(), one


class PermutedRows(Function):
    """No index stands twice in a permutation."""

    @staticmethod
    def forward(ctx, x, perm):
        ctx.save_for_backward(perm)
        return x[perm]

    @staticmethod
    def backward(ctx, grad):
        (perm,) = ctx.saved_tensors
        return grad[torch.argsort(perm)], None


class BatchStatistics(Function):
    """The running mean is there to be changed."""

    @staticmethod
    def forward(ctx, x, running_mean, momentum):
        mean = x.mean(0)
        running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
        return x - mean

    @staticmethod
    def backward(ctx, grad):
        return grad - grad.mean(0), None, None


class OneScale(Function):
    """Parameters of one element."""

    @staticmethod
    def forward(ctx, x, scale, shift):
        ctx.save_for_backward(x, scale)
        return scale * x.relu().square() + shift

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        r = x.relu()
        whole = (grad * r * r).sum().view_as(scale), grad.sum().view_as(scale)
        return 2 * grad * scale * r, *whole


class CircularConvolution(Function):
    """A kernel of one dim, though its rows could differ; conj() does not make it complex."""

    @staticmethod
    def forward(ctx, u, k):
        ctx.save_for_backward(u, k)
        n = u.shape[-1]
        return torch.fft.irfft(torch.fft.rfft(u) * torch.fft.rfft(k, n=n), n=n)

    @staticmethod
    def backward(ctx, grad):
        u, k = ctx.saved_tensors
        n = u.shape[-1]
        of_grad = torch.fft.rfft(grad)
        grad_u = torch.fft.irfft(of_grad * torch.fft.rfft(k, n=n).conj(), n=n)
        grad_k = torch.fft.irfft(of_grad * torch.fft.rfft(u).conj(), n=n)
        dims = tuple(range(grad_k.ndim - 1))
        return grad_u, grad_k.sum(dims)[: k.shape[-1]]


class ExpOfBounded(Function):
    """Backward limits its exponent on purpose, as a gradient is to stay finite."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.exp(x.clamp(-15, 15))


class CountedMean(Function):
    """A running mean is there to be changed, whatever its name; no output reads it."""

    @staticmethod
    def forward(ctx, x, average, momentum=0.1):
        mean = x.mean(0)
        average.lerp_(mean, momentum)
        return x - mean

    @staticmethod
    def backward(ctx, grad):
        return grad - grad.mean(0), None, None


class PolarForm(Function):
    """At the origin PyTorch itself has no gradient."""

    @staticmethod
    def forward(ctx, xy):
        x, y = xy.unbind(-1)
        r = torch.hypot(x, y)
        ctx.save_for_backward(xy, r)
        return torch.stack([r, torch.atan2(y, x)], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        xy, r = ctx.saved_tensors
        x, y = xy.unbind(-1)
        of_r, of_angle = grad.unbind(-1)
        of_angle = of_angle / r
        return (
            torch.stack([of_r * x - of_angle * y, of_r * y + of_angle * x], -1)
            / r[..., None]
        )


class CopiedSum(Function):
    """Edges have as many sources as x has elements, but no float stands for an index."""

    @staticmethod
    def forward(ctx, x, edge_index, num_nodes):
        src, dst = edge_index
        ctx.save_for_backward(src, dst)
        ctx.rows = x.shape[0]
        return x.new_zeros(num_nodes, x.shape[1]).index_add_(0, dst, x[src])

    @staticmethod
    def backward(ctx, grad):
        src, dst = ctx.saved_tensors
        zeros = grad.new_zeros(ctx.rows, grad.shape[1])
        return zeros.index_add(0, src, grad[dst]), None, None


class RealGain(Function):
    """Its gain is real: the conj in backward is that of a spectrum of real inputs."""

    @staticmethod
    def forward(ctx, x, gain):
        ctx.save_for_backward(x, gain)
        return torch.fft.irfft(torch.fft.rfft(x) * gain, n=x.shape[-1])

    @staticmethod
    def backward(ctx, grad):
        x, gain = ctx.saved_tensors
        n, of_grad = grad.shape[-1], torch.fft.rfft(grad)
        counts = torch.full((n // 2 + 1,), 2.0 / n, dtype=grad.dtype)
        counts[0] = 1.0 / n
        if n % 2 == 0:
            counts[-1] = 1.0 / n
        of_gain = (torch.fft.rfft(x).conj() * of_grad).real * counts
        grad_x = torch.fft.irfft(of_grad * gain, n=n)
        return grad_x, of_gain.sum_to_size(gain.shape)


class LatentCost(Function):
    """Beside the exp of a large logvar, differences lose the gradient of mu."""

    @staticmethod
    def forward(ctx, mu, logvar):
        ctx.save_for_backward(mu, logvar)
        return 0.5 * (mu * mu + logvar.exp() - 1 - logvar).sum(1).mean()

    @staticmethod
    def backward(ctx, grad):
        mu, logvar = ctx.saved_tensors
        scale = grad / mu.shape[0]
        return scale * mu, scale * 0.5 * (logvar.exp() - 1)


class AttachedLoss(Function):
    """An input is called output; the loss gets a gradient though the output is the other input."""

    @staticmethod
    def forward(ctx, output, loss):
        ctx.save_for_backward(loss)
        return output.view_as(output)

    @staticmethod
    def backward(ctx, grad):
        (loss,) = ctx.saved_tensors
        return grad, torch.ones_like(loss)
