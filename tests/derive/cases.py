"""The development cases: ops as a user would write them, with inputs to try them on.

In: nothing. Out: `CASES`, each with its signature, its forward and the inputs of several calls. Invariant: a case needs nothing but
torch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Case(NamedTuple):
    """An op; each call of `samples` gives the same inputs."""

    name: str
    inputs: str
    forward: str
    samples: Callable[[], list[tuple[Any, ...]]]
    outputs: str = "output"


def r(*shape: int) -> Tensor:
    """Normal values."""
    return torch.randn(shape, dtype=torch.double)


def z(*shape: int) -> Tensor:
    """Complex values."""
    return torch.randn(shape, dtype=torch.cdouble)


def p(*shape: int) -> Tensor:
    """Values from 0.5 to 1.5."""
    return torch.rand(shape, dtype=torch.double) + 0.5


def index(below: int, *shape: int) -> Tensor:
    """Integers from 0."""
    return torch.randint(0, below, shape)


def spd(*shape: int) -> Tensor:
    """A symmetric positive definite matrix."""
    a = r(*shape)
    return a @ a.mT + 2 * torch.eye(shape[-1], dtype=torch.double)


CASES = (
    Case(
        "linear",
        "input[..., K], weight[M, K], bias[M]?",
        "input @ weight.t() + bias",
        lambda: [
            (r(2, 3, 4), r(5, 4), r(5)),
            (r(3, 4), r(5, 4), None),
            (r(4), r(5, 4), r(5)),
        ],
    ),
    Case(
        "bilinear",
        "x[..., I], y[..., J], weight[O, I, J], bias[O]?",
        """
out = torch.einsum('...i,oij,...j->...o', x, weight, y)
return out + bias
""",
        lambda: [(r(3, 2), r(3, 4), r(5, 2, 4), r(5))],
    ),
    Case(
        "bilinear2",
        "x[N, I], y[N, J], weight[O, I, J], bias[O]?",
        "torch.einsum('ni,oij,nj->no', x, weight, y) + bias",
        lambda: [
            (r(3, 2), r(3, 4), r(5, 2, 4), r(5)),
            (r(3, 2), r(3, 4), r(5, 2, 4), None),
        ],
    ),
    Case(
        "swish",
        "x",
        "x * torch.sigmoid(x)",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "swish_beta",
        "x, beta",
        "x * torch.sigmoid(beta * x)",
        lambda: [(r(3, 4), r(4)), (r(3, 4), torch.randn((), dtype=torch.double))],
    ),
    Case(
        "mish",
        "x",
        "x * torch.tanh(F.softplus(x))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "gelu_erf",
        "x",
        "0.5 * x * (1 + torch.erf(x / math.sqrt(2)))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "gelu_tanh",
        "x",
        "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "softplus",
        "x",
        "torch.log1p(torch.exp(x))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "logsumexp",
        "x, dim=-1",
        "torch.logsumexp(x, dim)",
        lambda: [(r(3, 4), -1), (r(3, 4), 0)],
    ),
    Case(
        "logsumexp_naive",
        "x",
        """
m = x.amax(-1, keepdim=True).detach()
return (x - m).exp().sum(-1, keepdim=True).log() + m
""",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "softmax",
        "x",
        "torch.softmax(x, dim=-1)",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "softmax_manual",
        "x",
        """
e = torch.exp(x - x.detach().amax(-1, keepdim=True))
return e / e.sum(-1, keepdim=True)
""",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "cross_entropy",
        "logits[N, C], target[N; index(C)]",
        "-torch.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1).mean()",
        lambda: [(r(3, 5), index(5, 3))],
    ),
    Case(
        "label_smooth_ce",
        "logits[N, C], target[N; index(C)], eps=0.1",
        """
logp = torch.log_softmax(logits, -1)
nll = -logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
smooth = -logp.mean(-1)
return ((1 - eps) * nll + eps * smooth).mean()
""",
        lambda: [(r(3, 5), index(5, 3), 0.1)],
    ),
    Case(
        "cosine_similarity",
        "x[..., D], y[..., D], eps=1e-8",
        """
dot = (x * y).sum(-1)
nx = x.norm(dim=-1)
ny = y.norm(dim=-1)
return dot / (nx * ny).clamp(min=eps)
""",
        lambda: [(r(3, 4), r(3, 4), 1e-08), (r(2, 3, 4), r(2, 3, 4), 1e-08)],
    ),
    Case(
        "layer_norm",
        "x[..., D], weight[D]?, bias[D]?, eps=1e-5",
        """
mean = x.mean(-1, keepdim=True)
xc = x - mean
rstd = torch.rsqrt((xc * xc).mean(-1, keepdim=True) + eps)
xhat = xc * rstd
y = xhat * weight
return y + bias
""",
        lambda: [
            (r(2, 3, 4), r(4), r(4), 1e-05),
            (r(3, 4), None, None, 1e-05),
            (r(3, 4), r(4), None, 1e-05),
        ],
    ),
    Case(
        "layer_norm_var",
        "x[..., D], weight[D], bias[D], eps=1e-5",
        """
mean = x.mean(-1, keepdim=True)
var = x.var(-1, unbiased=False, keepdim=True)
return (x - mean) / torch.sqrt(var + eps) * weight + bias
""",
        lambda: [(r(2, 3, 4), r(4), r(4), 1e-05)],
    ),
    Case(
        "rms_norm",
        "x[..., D], weight[D], eps=1e-6",
        """
rstd = torch.rsqrt((x*x).mean(-1, keepdim=True) + eps)
return x * rstd * weight
""",
        lambda: [(r(2, 3, 4), r(4), 1e-06), (r(3, 4), r(4), 1e-06)],
    ),
    Case(
        "rms_norm_untyped",
        "x, weight, eps=1e-6",
        """
rstd = torch.rsqrt((x*x).mean(-1, keepdim=True) + eps)
return x * rstd * weight
""",
        lambda: [(r(2, 3, 4), r(4), 1e-06), (r(3, 4), r(3, 1), 1e-06)],
    ),
    Case(
        "group_norm",
        "x[N, C, L], weight[C], bias[C], groups=2, eps=1e-5",
        """
xg = x.reshape(x.shape[0], groups, -1)
mean = xg.mean(-1, keepdim=True)
var = ((xg - mean) ** 2).mean(-1, keepdim=True)
xn = ((xg - mean) / torch.sqrt(var + eps)).reshape(x.shape)
return xn * weight[:, None] + bias[:, None]
""",
        lambda: [(r(2, 4, 3), r(4), r(4), 2, 1e-05)],
    ),
    Case(
        "batch_norm_eval",
        "x[N, C, L], mean[C], var[C], weight[C], eps=1e-5",
        "(x - mean[:, None]) * (weight * torch.rsqrt(var + eps))[:, None]",
        lambda: [(r(2, 4, 3), r(4), p(4), r(4), 1e-05)],
    ),
    Case(
        "l2_normalize",
        "x, eps=1e-12",
        "x / x.norm(dim=-1, keepdim=True).clamp(min=eps)",
        lambda: [(r(3, 4), 1e-12)],
    ),
    Case(
        "attention",
        "q[B, H, S, D], k[B, H, T, D], v[B, H, T, E], scale=1.0",
        """
attn = torch.softmax(q @ k.transpose(-2, -1) * scale, dim=-1)
return attn @ v
""",
        lambda: [(r(1, 2, 3, 4), r(1, 2, 5, 4), r(1, 2, 5, 2), 0.5)],
    ),
    Case(
        "attention_mask",
        "q, k, v, mask[...; bool]",
        """
scale = q.shape[-1] ** -0.5
scores = (q @ k.transpose(-2, -1) * scale).masked_fill(mask, -1e9)
attn = torch.softmax(scores, dim=-1)
return attn @ v
""",
        lambda: [
            (r(2, 3, 4), r(2, 3, 4), r(2, 3, 4), torch.ones(3, 3).triu(1).bool()),
            (
                r(2, 2, 3, 4),
                r(2, 1, 3, 4),
                r(2, 1, 3, 4),
                torch.ones(3, 3).triu(1).bool(),
            ),
        ],
    ),
    Case(
        "attention_two_out",
        "q, k, v",
        """
attn = torch.softmax(q @ k.mT, dim=-1)
return attn @ v, attn
""",
        lambda: [(r(2, 3, 4), r(2, 5, 4), r(2, 5, 2))],
        "attended, attn",
    ),
    Case(
        "einsum",
        "a, b",
        "torch.einsum('bij,bjk->bik', a, b)",
        lambda: [(r(2, 3, 4), r(2, 4, 5))],
    ),
    Case(
        "where_relu6",
        "x",
        "torch.where(x > 0, x * x, 0.1 * torch.exp(x))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "clamp",
        "x, lo=-0.5, hi=0.5",
        "torch.clamp(x, lo, hi) * x",
        lambda: [(r(3, 4), -0.5, 0.5)],
    ),
    Case(
        "hardswish",
        "x",
        "x * torch.clamp(x + 3, 0, 6) / 6",
        lambda: [(3 * r(3, 4),)],
    ),
    Case(
        "huber",
        "pred[..., D], target[..., D], delta=1.0",
        """
err = pred - target
a = err.abs()
return torch.where(a < delta, 0.5 * err * err, delta * (a - 0.5 * delta)).mean()
""",
        lambda: [(2 * r(3, 4), r(3, 4), 1.0), (2 * r(2, 3, 4), r(2, 3, 4), 1.0)],
    ),
    Case(
        "focal",
        "logits[..., D], target[..., D; int], gamma=2.0",
        """
p = torch.sigmoid(logits)
pt = torch.where(target > 0, p, 1 - p)
logpt = torch.where(target > 0, F.logsigmoid(logits), F.logsigmoid(-logits))
return -((1 - pt) ** gamma * logpt).mean()
""",
        lambda: [(r(3, 4), index(2, 3, 4), 2.0)],
    ),
    Case(
        "bce_logits",
        "x, z[...; const]",
        "(torch.clamp(x, min=0) - x * z + torch.log1p(torch.exp(-x.abs()))).mean()",
        lambda: [(r(3, 4), index(2, 3, 4).double())],
    ),
    Case(
        "dice",
        "logits[N, D], target[N, D; const], eps=1.0",
        """
p = torch.sigmoid(logits)
inter = (p * target).sum(-1)
return (1 - (2 * inter + eps) / (p.sum(-1) + target.sum(-1) + eps)).mean()
""",
        lambda: [(r(3, 4), index(2, 3, 4).double(), 1.0)],
    ),
    Case(
        "rotary",
        "x[..., S, D], cos[S, D; const], sin[S, D; const]",
        """
d = x.shape[-1] // 2
x1 = x[..., :d]
x2 = x[..., d:]
rot = torch.cat([-x2, x1], dim=-1)
return x * cos + rot * sin
""",
        lambda: [(r(2, 3, 4), r(3, 4), r(3, 4)), (r(5, 2, 3, 4), r(3, 4), r(3, 4))],
    ),
    Case(
        "glu",
        "x",
        """
a, b = x.chunk(2, -1)
return a * torch.sigmoid(b)
""",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "swiglu",
        "x[..., K], w1[H, K], w2[H, K], w3[K, H]",
        """
g = x @ w1.t()
u = x @ w2.t()
h = F.silu(g) * u
return h @ w3.t()
""",
        lambda: [(r(2, 3, 4), r(5, 4), r(5, 4), r(4, 5))],
    ),
    Case(
        "matmul_chain",
        "a[N, K], b[K, M], c[M, P]",
        "a @ b @ c",
        lambda: [(r(2, 3), r(3, 4), r(4, 5))],
    ),
    Case(
        "bmm_broadcast",
        "a, b",
        "torch.tanh(a @ b)",
        lambda: [(r(2, 1, 3, 4), r(5, 4, 2)), (r(3, 4), r(5, 4, 2))],
    ),
    Case(
        "matvec",
        "a[N, K], x[K]",
        "a @ x",
        lambda: [(r(3, 4), r(4))],
    ),
    Case(
        "outer",
        "x[N], y[M]",
        "torch.outer(x, y)",
        lambda: [(r(3), r(4))],
    ),
    Case(
        "outer_bcast",
        "x, y",
        "torch.exp(-(x[:, None] - y[None, :]) ** 2)",
        lambda: [(r(3), r(4))],
    ),
    Case(
        "gather",
        "x, index[...; int]",
        "torch.gather(x, -1, index) ** 2",
        lambda: [(r(3, 5), index(5, 3, 2))],
    ),
    Case(
        "index_select",
        "x, index[...; int]",
        "x.index_select(0, index) * 2",
        lambda: [(r(5, 3), index(5, 4))],
    ),
    Case(
        "embedding",
        "weight, index[...; int]",
        "weight[index] * 3",
        lambda: [(r(5, 3), index(5, 4))],
    ),
    Case(
        "cumsum",
        "x",
        "torch.exp(torch.cumsum(x, -1))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "logdet",
        "a",
        "torch.logdet(a)",
        lambda: [(spd(3, 3),)],
    ),
    Case(
        "solve",
        "a[N, N], b[N, M]",
        "torch.linalg.solve(a, b)",
        lambda: [(spd(3, 3), r(3, 2))],
    ),
    Case(
        "inverse",
        "a",
        "torch.linalg.inv(a)",
        lambda: [(spd(3, 3),)],
    ),
    Case(
        "complex_abs",
        "z[...; complex]",
        "z.abs()",
        lambda: [(z(3, 4),)],
    ),
    Case(
        "complex_mul_abs2",
        "z[...; complex], w",
        "(z * w).abs() ** 2",
        lambda: [(z(3, 4), r(3, 4))],
    ),
    Case(
        "pow_tensor",
        "x, y",
        "x ** y",
        lambda: [(p(3, 4), r(4))],
    ),
    Case(
        "kl_gauss",
        "mu, logvar",
        "-0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(-1).mean()",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "gauss_nll",
        "mu, logvar, x[...; const]",
        "(0.5 * (logvar + (x - mu) ** 2 / torch.exp(logvar))).sum()",
        lambda: [(r(3, 4), r(3, 4), r(3, 4)), (r(3, 4), r(4), r(3, 4))],
    ),
    Case(
        "rbf",
        "x[N, D], y[M, D], gamma=0.5",
        """
d2 = (x * x).sum(-1, keepdim=True) + (y * y).sum(-1) - 2 * x @ y.t()
return torch.exp(-gamma * d2)
""",
        lambda: [(r(3, 2), r(4, 2), 0.5)],
    ),
    Case(
        "info_nce",
        "a[N, D], b[N, D], t=0.1",
        """
an = a / a.norm(dim=-1, keepdim=True)
bn = b / b.norm(dim=-1, keepdim=True)
return -torch.log_softmax(an @ bn.t() / t, -1).diagonal().mean()
""",
        lambda: [(r(3, 4), r(3, 4), 0.5)],
    ),
    Case(
        "lowrank",
        "x[..., K], w[M, K], a[R, K], b[M, R], scale=2.0",
        "x @ w.t() + (x @ a.t()) @ b.t() * scale",
        lambda: [(r(2, 3, 4), r(5, 4), r(2, 4), r(5, 2), 2.0)],
    ),
    Case(
        "film",
        "x[N, C, H, W], gamma[N, C], beta[N, C]",
        "x * gamma[..., None, None] + beta[..., None, None]",
        lambda: [(r(2, 3, 2, 2), r(2, 3), r(2, 3))],
    ),
    Case(
        "se_gate",
        "x[N, C, H, W], w1[R, C], w2[C, R]",
        """
s = x.mean((-2, -1))
g = torch.sigmoid(torch.relu(s @ w1.t()) @ w2.t())
return x * g[..., None, None]
""",
        lambda: [(r(2, 3, 2, 2), r(2, 3), r(3, 2))],
    ),
    Case(
        "std_norm",
        "x",
        "(x - x.mean()) / x.std()",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "max_pool_like",
        "x",
        "x.amax(-1)",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "logit",
        "x",
        "torch.log(x / (1 - x))",
        lambda: [(torch.rand(3, 4, dtype=torch.double) * 0.8 + 0.1,)],
    ),
    Case(
        "poly",
        "x",
        "x ** 3 - 2 * x ** 2 + x",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "selu",
        "x",
        "1.0507 * torch.where(x > 0, x, 1.6733 * (torch.exp(x) - 1))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "unknown_fn",
        "x",
        "torch.special.i0e(x) * x",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "fft_conv",
        "x",
        "torch.fft.irfft(torch.fft.rfft(x) * 2, n=4)",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "conv_gelu",
        "x, w",
        "torch.tanh(F.conv2d(x, w, padding=1)) * 0.5",
        lambda: [(r(1, 2, 4, 4), r(3, 2, 3, 3))],
    ),
    Case(
        "conv_scaled_weight",
        "x[N, C, H, W], w[O, C, 3, 3], gain[O, 1, 1, 1]",
        "F.conv2d(x, w * gain, padding=1)",
        lambda: [(r(1, 2, 4, 4), r(3, 2, 3, 3), r(3, 1, 1, 1))],
    ),
    Case(
        "stack_sum",
        "x, y",
        "torch.stack([x, y * y], dim=0).sum(0)",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "squeeze_excite_T",
        "x, y",
        "torch.permute(x, (1, 0)) * y",
        lambda: [(r(3, 4), r(4, 3))],
    ),
    Case(
        "minmax",
        "x, y",
        "torch.maximum(x, y) - torch.minimum(x, y)",
        lambda: [(r(3, 4), r(4))],
    ),
    Case(
        "softcap",
        "x, cap=5.0",
        "cap * torch.tanh(x / cap)",
        lambda: [(r(3, 4), 5.0)],
    ),
    Case(
        "sqrt_hypot",
        "x, y",
        "torch.sqrt(x * x + y * y + 1e-3)",
        lambda: [(r(3, 4), r(3, 4)), (r(3, 4), r(4))],
    ),
    Case(
        "tversky_topk",
        "x",
        """
v, i = torch.topk(x, 2, dim=-1)
return v * 2
""",
        lambda: [(r(3, 5),)],
    ),
    Case(
        "class_weights_in_branches",
        "logits[N, C], target[N; index(C)], class_weight[C]?, smoothing: float = 0.0, ignore_index: int = -100, reduction: str = 'mean'",
        """
log_probs = F.log_softmax(logits, dim=-1)
picked = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
if class_weight is not None:
    weights = class_weight[target]
    picked = picked * weights
if smoothing > 0:
    if class_weight is not None:
        smooth = -(log_probs * class_weight).sum(-1)
    else:
        smooth = -log_probs.sum(-1)
    picked = (1 - smoothing) * picked + smoothing * smooth / logits.shape[-1]
keep = target != ignore_index
picked = torch.where(keep, picked, 0.0)
if reduction == "mean":
    if class_weight is not None:
        return picked.sum() / torch.where(keep, weights, 0.0).sum()
    return picked.sum() / keep.sum()
if reduction == "sum":
    return picked.sum()
return picked
""",
        lambda: [
            (r(4, 3), index(3, 4), weight, smoothing, 1, reduction)
            for weight in (p(3), None)
            for smoothing in (0.0, 0.2)
            for reduction in ("mean", "sum", "none")
        ],
    ),
    Case(
        "local_of_one_branch",
        "x[N, D], weight[D], scale: float = 1.0, power: int = 2",
        """
if scale > 0:
    damped = torch.exp(-scale * x * x)
y = x * weight
if power > 1:
    if scale > 0:
        y = y / damped.sum(-1, keepdim=True)
    y = y ** power
return y
""",
        lambda: [
            (r(4, 3), r(3), scale, power) for scale in (0.0, 0.5) for power in (1, 2)
        ],
    ),
    Case(
        "attention_leading",
        "q[*batch, S, D], k[*batch, T, D], v[*batch, T, E]",
        "torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ v",
        lambda: [
            (r(*leading, 3, 4), r(*leading, 5, 4), r(*leading, 5, 2))
            for leading in ((2,), (), (2, 3))
        ],
    ),
    Case(
        "norm_of_optional_sum",  # the shape is x's, or that of the sum; neither is declared
        "x, residual?, weight",
        """
        if residual is not None:
            x = x + residual
        var = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(var + 1e-6) * weight
        """,
        lambda: [
            (r(2, 3), r(2, 3), r(3)),
            (r(3), r(2, 3), r(3)),
            (r(2, 3), None, r(3)),
            (r(), None, r(3)),
            (r(), r(), r()),
        ],
    ),
)
