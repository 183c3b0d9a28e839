"""Functions that were written by hand: one thing is wrong with each of them."""

# mypy: ignore-errors
# ruff: noqa: F821, RUF059

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
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


class SwishWrong(Function):
    @staticmethod
    def forward(ctx, i):
        ctx.save_for_backward(i)
        return i * torch.sigmoid(i)

    @staticmethod
    def backward(ctx, grad_output):
        i = ctx.saved_tensors[0]
        s = torch.sigmoid(i)
        return grad_output * (s * (1 + i * s))


class EmbeddingNoAccumulate(Function):
    @staticmethod
    def forward(ctx, weight, indices):
        ctx.save_for_backward(indices)
        ctx.num = weight.size(0)
        return F.embedding(indices, weight)

    @staticmethod
    def backward(ctx, g):
        (indices,) = ctx.saved_tensors
        grad = torch.zeros(ctx.num, g.size(-1), dtype=g.dtype)
        grad[indices.reshape(-1)] += g.reshape(-1, g.size(-1))
        return grad, None


class ScatterWrong(Function):
    @staticmethod
    def forward(ctx, src: Tensor, index: Tensor, dim_size: int):
        ctx.save_for_backward(index)
        out = src.new_zeros(dim_size, src.size(1))
        return out.index_add_(0, index, src)

    @staticmethod
    def backward(ctx, grad_out):
        (index,) = ctx.saved_tensors
        return grad_out[: index.numel()], None, None


class RMSNormWeightNotReduced(Function):
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
        return dx, dy * xhat, None


class RMSNormSum(Function):
    @staticmethod
    def forward(ctx, x, weight):
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight)
        return x * rstd * weight

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        xhat = x * rstd
        wdy = w * dy
        dx = (wdy - xhat * (xhat * wdy).sum(-1, keepdim=True)) * rstd
        return dx, (dy * xhat).reshape(-1, w.shape[0]).sum(0)


class SwiGLUSwapped(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, dc):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(a)
        silu = a * s
        return dc * silu, dc * (silu * (1 - s) + s) * b


class LSTMDropC(Function):
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
        d = gh * o * (1 - t * t)
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


class CumsumNoFlip(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(-1)

    @staticmethod
    def backward(ctx, g):
        return g.cumsum(-1)


class InverseNoMinus(Function):
    @staticmethod
    def forward(ctx, a):
        out = torch.linalg.inv(a)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        (inv,) = ctx.saved_tensors
        return -inv @ g @ inv


class SplitSwap(Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x.chunk(2, dim=-1)
        return a.clone(), b.clone()

    @staticmethod
    def backward(ctx, ga, gb):
        return torch.cat([gb, ga], dim=-1)


class ShuffleSame(Function):
    @staticmethod
    def forward(ctx, x, groups: int):
        ctx.groups = groups
        n, c, h, w = x.shape
        return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)

    @staticmethod
    def backward(ctx, g):
        n, c, h, w = g.shape
        return (
            g.view(n, ctx.groups, c // ctx.groups, h, w)
            .transpose(1, 2)
            .reshape(n, c, h, w),
            None,
        )


class ReluGe(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        g[y <= 0] = 0
        return g


class LossDouble(Function):
    @staticmethod
    def forward(ctx, pred, target):
        diff = pred - target
        ctx.save_for_backward(diff)
        return 0.5 * diff.pow(2).sum()

    @staticmethod
    def backward(ctx, g):
        (diff,) = ctx.saved_tensors
        return diff, None


class DropoutEvalMask(Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = (torch.rand_like(x) > p).to(x.dtype)
        ctx.save_for_backward(mask)
        ctx.p = p
        return x * mask / (1 - p)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask, None


class DropoutNewMask(Function):
    @staticmethod
    def forward(ctx, x, p):
        ctx.p = p
        mask = (torch.rand_like(x) > p).to(x.dtype)
        return x * mask / (1 - p)

    @staticmethod
    def backward(ctx, g):
        mask = (torch.rand_like(g) > ctx.p).to(g.dtype)
        return g * mask / (1 - ctx.p), None


class GlobalState(Function):
    saved = []  # noqa: RUF012

    @staticmethod
    def forward(ctx, x):
        GlobalState.saved.append(x.detach().cos())
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * GlobalState.saved.pop()


class KeepdimLost(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x - x.mean(-1, keepdim=True)

    @staticmethod
    def backward(ctx, g):
        return g - g.mean()


class VarUnbiased(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.var(-1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * (x - x.mean(-1, keepdim=True)) / x.shape[-1] * g.unsqueeze(-1)


class MaxTies(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.max(-1).values
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (x == y.max()).to(g.dtype) * g.unsqueeze(-1)


class AttentionScale(Function):
    @staticmethod
    def forward(q, k, v):
        p = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
        return p @ v

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        q, k, v = ctx.saved_tensors
        s = q.shape[-1] ** -0.5
        p = torch.softmax(q @ k.mT * s, -1)
        gp = g @ v.mT
        ga = p * (gp - (gp * p).sum(-1, keepdim=True))
        return ga @ k, ga.mT @ q, p.mT @ g


class ContextOutput(Function):
    @staticmethod
    def forward(ctx, x, w):
        y = torch.tanh(x @ w)
        ctx.x, ctx.w, ctx.y = x, w, y
        return y

    @staticmethod
    def backward(ctx, g):
        d = g * (1 - ctx.y**2)
        return d @ ctx.w.t(), ctx.x.t() @ d


class HuberConst(Function):
    @staticmethod
    def forward(ctx, x, delta: float = 1.0):
        ctx.save_for_backward(x)
        ctx.delta = delta
        return F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.clamp(-1, 1) * 2, None


class SqueezeShape(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum(0)

    @staticmethod
    def backward(ctx, g):
        return g


class NoneForNeeded(Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x * w + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gw = None
        if ctx.needs_input_grad[0]:
            gw = g * x
        return g * w, gw, g


class UnstableSigmoid(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        e = torch.exp(x)
        return g * e / (1 + e) ** 2


class HalfCast(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.to(torch.bfloat16))
        return x**2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (2 * x * g).to(g.dtype)


class ComplexNoConj(Function):
    @staticmethod
    def forward(ctx, z, w):
        ctx.save_for_backward(z, w)
        return torch.view_as_real(torch.view_as_complex(z) * torch.view_as_complex(w))

    @staticmethod
    def backward(ctx, g):
        z, w = (torch.view_as_complex(t) for t in ctx.saved_tensors)
        gc = torch.view_as_complex(g)
        return torch.view_as_real(gc * w), torch.view_as_real(gc * z)


class ReductionSumOnly(Function):
    @staticmethod
    def forward(ctx, x, reduction="mean"):
        ctx.shape = x.shape
        return x.mean() if reduction == "mean" else x.sum()

    @staticmethod
    def backward(ctx, g):
        return g.expand(ctx.shape), None


class PadWrongSide(Function):
    @staticmethod
    def forward(ctx, x, pad=(1, 2)):
        ctx.pad = pad
        return F.pad(x, pad)

    @staticmethod
    def backward(ctx, g):
        left, right = ctx.pad
        return g[..., right : g.shape[-1] - left], None


class NumpyNoOnce(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.from_numpy(np.tanh(x.detach().cpu().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return torch.from_numpy(g.detach().numpy() * (1 - y.detach().numpy() ** 2))


class WhereSwapped(Function):
    @staticmethod
    def forward(ctx, cond, a, b):
        ctx.save_for_backward(cond)
        return torch.where(cond, a, b)

    @staticmethod
    def backward(ctx, g):
        (cond,) = ctx.saved_tensors
        zero = torch.zeros_like(g)
        return None, torch.where(cond, zero, g), torch.where(cond, g, zero)


class NLLNoScale(Function):
    @staticmethod
    def forward(ctx, logp, labels):
        ctx.save_for_backward(labels)
        ctx.shape = logp.shape
        return -logp.gather(1, labels[:, None]).squeeze(1).mean()

    @staticmethod
    def backward(ctx, g):
        (labels,) = ctx.saved_tensors
        grad = torch.zeros(ctx.shape, dtype=g.dtype)
        grad.scatter_(1, labels[:, None], -1.0)
        return grad * g, None


class TopKNoMark(Function):
    @staticmethod
    def forward(ctx, x, k: int):
        values, indices = torch.topk(x, k, dim=-1)
        ctx.save_for_backward(indices)
        ctx.size = x.shape
        return values, indices

    @staticmethod
    def backward(ctx, g, _):
        (indices,) = ctx.saved_tensors
        out = torch.zeros(ctx.size, dtype=g.dtype)
        out[..., : g.shape[-1]] = g
        return out, None


class InterpT(Function):
    @staticmethod
    def forward(ctx, a, b, t):
        ctx.save_for_backward(a, b, t)
        return a + t * (b - a)

    @staticmethod
    def backward(ctx, g):
        a, b, t = ctx.saved_tensors
        return g * (1 - t), g * t, g * (a - b)


class RopeSign(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        a, b = x.chunk(2, -1)
        ctx.save_for_backward(cos, sin)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        ga, gb = g.chunk(2, -1)
        return torch.cat([ga * cos - gb * sin, gb * cos + ga * sin], -1), None, None


class VmapWrong(Function):
    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.mT, x.mT @ g

    @staticmethod
    def vmap(info, in_dims, x, w):
        return VmapWrong.apply(x, w[0] if in_dims[1] is not None else w), 0


class PairwiseNoEps(Function):
    @staticmethod
    def forward(ctx, x, y):
        dist = (x[:, None] - y[None]).square().sum(-1).sqrt()
        ctx.save_for_backward(x, y, dist)
        return dist

    @staticmethod
    def backward(ctx, g):
        x, y, dist = ctx.saved_tensors
        w = (g / dist)[..., None] * (x[:, None] - y[None])
        return w.sum(1), w.sum(0)


class DirtyNotReturned(Function):
    @staticmethod
    def forward(ctx, x, buf):
        buf.add_(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


class ReturnsSelf(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.w = w
        ctx.save_for_backward(x)
        return x * w

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.w, g * x


class FlattenGrad(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.transpose(0, 1).contiguous()

    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.shape)


class DtypeBreaks(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        scale = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.float64).triu().tril()
        return (g * x.exp()) @ scale


class BatchStat(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x - x.mean(0)) / x.std(0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / x.std(0)


class RetainInBackward(Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.inp = x.detach().requires_grad_()
            ctx.out = ctx.inp.tanh().exp()
        return ctx.out.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        ctx.out.backward(g)
        return ctx.inp.grad


class SaturatedClip(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(0, 6)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0)


class OutputsApart(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 1, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return 2 * g if h is None else 3 * h if g is None else g + 3 * h


class SavedOrder(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * torch.as_strided(x, x.shape, torch.empty(x.shape).stride())


class LowPrecisionPath(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if x.dtype == torch.bfloat16:
            return g * x
        return g * 2 * x


class NormAtZero(Function):
    """Not a number where a row is 0."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x / (x.norm(dim=-1, keepdim=True) + 1e-12)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        norm = x.pow(2).sum(-1, keepdim=True).sqrt()
        y = x / norm
        return (g - y * (g * y).sum(-1, keepdim=True)) / norm


class DistanceAtZero(Function):
    """Not a number where two rows are equal."""

    @staticmethod
    def forward(ctx, x, y):
        d = (x - y).norm(dim=-1)
        ctx.save_for_backward(x, y, d)
        return d

    @staticmethod
    def backward(ctx, g):
        x, y, d = ctx.saved_tensors
        gx = (g / d).unsqueeze(-1) * (x - y)
        return gx, -gx


class MeanOfNone(Function):
    """Not a number where the mask has no True in a row."""

    @staticmethod
    def forward(ctx, x, mask):
        m = mask.to(x.dtype)
        count = m.sum(1)
        ctx.save_for_backward(m, count)
        return torch.nan_to_num((x * m).sum(1) / count)

    @staticmethod
    def backward(ctx, g):
        m, count = ctx.saved_tensors
        return (g / count).unsqueeze(1) * m, None


class MaxOfTies(Function):
    """Each of several equal maxima gets the whole gradient."""

    @staticmethod
    def forward(ctx, x):
        m = x.max(dim=1, keepdim=True).values
        ctx.save_for_backward(x, m)
        return m.squeeze(1)

    @staticmethod
    def backward(ctx, g):
        x, m = ctx.saved_tensors
        return (x == m).to(g.dtype) * g.unsqueeze(1)


class BatchOfOne(Function):
    """A batch of one loses its dim."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.bmm(x.unsqueeze(1), w.unsqueeze(2)).squeeze()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = g.unsqueeze(1)
        return g * w, g * x


class IgnoredInForward(Function):
    """Backward forgets the rows that are left out."""

    @staticmethod
    def forward(ctx, logits, labels, ignore_index=-100):
        safe = labels.clamp(min=0)
        nll = -F.log_softmax(logits, -1).gather(1, safe.unsqueeze(1)).squeeze(1)
        ctx.save_for_backward(logits, safe)
        return (nll * (labels != ignore_index)).sum()

    @staticmethod
    def backward(ctx, g):
        logits, safe = ctx.saved_tensors
        p = torch.softmax(logits, -1) - F.one_hot(safe, logits.shape[-1])
        return g * p, None, None


class ComplexMatmulNoConj(Function):
    """Real numbers are refused."""

    @staticmethod
    def forward(ctx, a, b):
        if not torch.is_complex(a):
            raise TypeError("complex matrices only")
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.t(), a.t() @ g


class LearnedStep(Function):
    """The gradient of the step takes the ratio, which is not clipped."""

    @staticmethod
    def forward(ctx, x, s, lo, hi):
        ctx.save_for_backward(x, s)
        ctx.limits = (lo, hi)
        return torch.clamp(x / s, lo, hi) * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        lo, hi = ctx.limits
        q = x / s
        inside = ((q >= lo) & (q <= hi)).to(g.dtype)
        gs = (g * (1 - inside) * q).sum_to_size(s.shape)
        return g * inside, gs, None, None


class HalfMatmul(Function):
    """What is saved is of another dtype than grad_output."""

    @staticmethod
    def forward(ctx, x, w):
        xf, wf = x.float(), w.float()
        ctx.save_for_backward(xf, wf)
        return (xf @ wf).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        xf, wf = ctx.saved_tensors
        return g @ wf.t(), xf.t() @ g


class PoolOverwrites(Function):
    @staticmethod
    def forward(ctx, x, kernel_size, stride):
        out, at = x.unfold(-1, kernel_size, stride).max(dim=-1)
        ctx.save_for_backward(at + torch.arange(at.shape[-1]) * stride)
        ctx.shape = x.shape
        return out

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        grad_x = grad_output.new_zeros(ctx.shape)
        return grad_x.scatter_(-1, index, grad_output), None, None


class TableOfSingles(Function):
    """The gradient is in float32, whatever it is added of."""

    @staticmethod
    def forward(ctx, table, idx):
        ctx.save_for_backward(idx)
        ctx.size = table.size()
        return table[idx]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (idx,) = ctx.saved_tensors
        return torch.zeros(ctx.size).index_add_(0, idx, grad), None


class UsualEps(Function):
    """The backward has an eps of its own."""

    @staticmethod
    def forward(ctx, x, eps=1e-12):
        ctx.save_for_backward(x)
        return x / torch.sqrt((x * x).sum(-1, keepdim=True) + eps)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        norm = torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-12)
        y = x / norm
        return (grad - y * (grad * y).sum(-1, keepdim=True)) / norm, None


class UnusedTemperature(Function):
    """The backward is right for a temperature of 1."""

    @staticmethod
    def forward(ctx, logits, temperature=1.0):
        y = torch.softmax(logits / temperature, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(-1, keepdim=True)), None


class FirstOfBatch(Function):
    """The gradient of the slope is the first row's, if there are more than two dims."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        shape = (1, -1, *[1] * (x.dim() - 2))
        return torch.where(x >= 0, x, slope.view(shape) * x)

    @staticmethod
    def backward(ctx, grad):
        x, slope = ctx.saved_tensors
        shape = (1, -1, *[1] * (x.dim() - 2))
        gs = torch.where(x >= 0, 0.0, x * grad)
        gs = gs.flatten(2).sum(2)[0] if x.dim() > 2 else gs.sum(0)
        return torch.where(x >= 0, grad, slope.view(shape) * grad), gs


class MaxOfEmptyGroups(Function):
    """The index of an empty group, -1, is that of the last row."""

    @staticmethod
    def forward(ctx, src, index, num_groups):
        out = src.new_zeros(num_groups, src.shape[1])
        at = index.new_full((num_groups, src.shape[1]), -1)
        for group in range(num_groups):
            rows = (index == group).nonzero().flatten()
            if rows.numel():
                out[group], where = src[rows].max(0)
                at[group] = rows[where]
        ctx.save_for_backward(at)
        ctx.rows = src.shape[0]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (at,) = ctx.saved_tensors
        columns = torch.arange(grad.shape[1]).expand_as(at)
        out = grad.new_zeros(ctx.rows, grad.shape[1])
        return out.index_put_((at, columns), grad, accumulate=True), None, None


class BiasUnlessNeeded(Function):
    """The gradient of the bias is there if the weight's is not needed."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_bias = None if ctx.needs_input_grad[1] else grad.sum(0)
        return grad @ weight, grad.t() @ x, grad_bias


class FourierFilter(Function):
    """The second input alone is complex; all its frequencies but two count twice."""

    @staticmethod
    def forward(ctx, x, h):
        spectrum = torch.fft.rfft(x)
        ctx.save_for_backward(spectrum, h)
        ctx.n = x.shape[-1]
        return torch.fft.irfft(spectrum * h, n=ctx.n)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        spectrum, h = ctx.saved_tensors
        out = torch.fft.rfft(grad)
        gh = out * spectrum.conj() / ctx.n
        gx = torch.fft.irfft(out * h.conj(), n=ctx.n)
        return gx, gh.reshape(-1, h.shape[-1]).sum(0)


class CentersOfSteps(Function):
    """The gradient lacks the width of the steps; the centers are a vector."""

    @staticmethod
    def forward(ctx, x, weights, centers, sigma):
        diff = (x.unsqueeze(-1) - centers) / sigma
        phi = torch.exp(-0.5 * diff**2)
        ctx.save_for_backward(diff, phi, weights)
        return (phi * weights).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        diff, phi, weights = ctx.saved_tensors
        gx = -(diff * phi * weights).sum(-1) * grad
        gw = (phi * grad.unsqueeze(-1)).flatten(0, -2).sum(0)
        return gx, gw, None, None


class Float32Buffer(Function):
    """The gradient is gathered in float32, whatever the input is."""

    @staticmethod
    def forward(ctx, x, idx):
        ctx.save_for_backward(idx)
        ctx.shape = x.shape
        return x.gather(1, idx)

    @staticmethod
    def backward(ctx, grad):
        (idx,) = ctx.saved_tensors
        return torch.zeros(ctx.shape).scatter_add_(1, idx, grad), None


class PowersToThree(Function):
    """The factors are right for the usual degree."""

    @staticmethod
    def forward(ctx, x, degree=3):
        ctx.save_for_backward(x)
        ctx.degree = degree
        return torch.stack([x**n for n in range(degree + 1)])

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        terms = (grad[n] * min(n, 3) * x ** (n - 1) for n in range(1, ctx.degree + 1))
        return sum(terms, torch.zeros_like(x)), None


class WrongTangent(Function):
    """Of two derivatives that should agree the one of forward mode is wrong."""

    @staticmethod
    def forward(x):
        return x / (1 + x.abs())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (1 + x.abs()) ** 2

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent / (1 + x.abs())


class FallingRows(Function):
    """A minimum so far has several gradients, though rows that fall are returned as they are."""

    @staticmethod
    def forward(ctx, x):
        values, indices = torch.cummin(x, -1)
        ctx.save_for_backward(indices)
        return values

    @staticmethod
    def backward(ctx, grad):
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(-1, indices, grad)


class UnsortedByItsOrder(Function):
    """The gradient is gathered where it is to be scattered: the same where the order is its own inverse, as that of two."""

    @staticmethod
    def forward(ctx, x, weights):
        values, order = x.sort(dim=-1, descending=True)
        ctx.save_for_backward(values, order, weights)
        return (values * weights).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        values, order, weights = ctx.saved_tensors
        grad = grad.unsqueeze(-1)
        spread = (grad * weights).expand_as(values)
        of_weights = (grad * values).reshape(-1, weights.numel()).sum(0)
        return spread.gather(-1, order), of_weights


class RecordedFactor(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * (3 if torch.is_grad_enabled() else 2)


class OnlyPlainTensors(Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mapped = torch._C._functorch.maybe_current_level() is not None

    @staticmethod
    def backward(ctx, grad):
        return grad * (3 if ctx.mapped else 2)


class AutocastFactor(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 3 if torch.is_autocast_enabled("cpu") else 2
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor


class CountedCalls(Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        CountedCalls.calls += 1
        ctx.call = CountedCalls.calls
        ctx.save_for_backward(torch.tensor(float(ctx.call)))
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (call,) = ctx.saved_tensors
        return grad * (2 + call - ctx.call)
