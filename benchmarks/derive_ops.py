"""The ops that `derive.py` measures: what a user writes, inputs of a common size, and PyTorch's own op.

In: nothing. Out: `OPS`. Invariant: inputs are single precision, the same in every run; `native` computes what `forward` does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Args = tuple[Any, ...]
POLICIES = ("recompute", "balanced")


class Op(NamedTuple):
    """An op, the arguments to call it with, and the native op where there is one."""

    name: str
    inputs: str
    forward: str
    arguments: Callable[[], Args]
    native: Callable[..., Tensor] | None = None


def normal(*shape: int) -> Tensor:
    """Normal values."""
    return torch.randn(*shape)


def below(bound: int, *shape: int) -> Tensor:
    """Integers from 0."""
    return torch.randint(0, bound, shape)


def _attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, eps)


def _huber(pred: Tensor, target: Tensor, delta: float) -> Tensor:
    return F.huber_loss(pred, target, delta=delta)


def _cosine(x: Tensor, y: Tensor, eps: float) -> Tensor:
    return F.cosine_similarity(x, y, dim=-1, eps=eps)


OPS = (
    Op(
        "swish",
        "x",
        "x * torch.sigmoid(x)",
        lambda: (normal(512, 1024),),
        F.silu,
    ),
    Op(
        "mish",
        "x",
        "x * torch.tanh(F.softplus(x))",
        lambda: (normal(512, 1024),),
        F.mish,
    ),
    Op(
        "gelu_tanh",
        "x",
        "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))",
        lambda: (normal(512, 1024),),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    Op(
        "softmax_manual",
        "x",
        """
e = torch.exp(x - x.detach().amax(-1, keepdim=True))
return e / e.sum(-1, keepdim=True)
""",
        lambda: (normal(512, 1024),),
        lambda x: torch.softmax(x, -1),
    ),
    Op(
        "rms_norm",
        "x[..., D], weight[D], eps: float = 1e-6",
        """
rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
return x * rstd * weight
""",
        lambda: (normal(8, 64, 1024), normal(1024), 1e-6),
        _rms_norm,
    ),
    Op(
        "layer_norm",
        "x[..., D], weight[D]?, bias[D]?, eps: float = 1e-5",
        """
mean = x.mean(-1, keepdim=True)
xc = x - mean
rstd = torch.rsqrt((xc * xc).mean(-1, keepdim=True) + eps)
xhat = xc * rstd
y = xhat * weight
return y + bias
""",
        lambda: (normal(8, 64, 1024), normal(1024), normal(1024), 1e-5),
        _layer_norm,
    ),
    Op(
        "attention",
        "q[B, H, S, D], k[B, H, T, D], v[B, H, T, E], scale: float = 1.0",
        """
attn = torch.softmax(q @ k.transpose(-2, -1) * scale, dim=-1)
return attn @ v
""",
        lambda: (
            normal(2, 4, 128, 64),
            normal(2, 4, 128, 64),
            normal(2, 4, 128, 64),
            0.125,
        ),
        _attention,
    ),
    Op(
        "swiglu",
        "x[..., K], w1[H, K], w2[H, K], w3[K, H]",
        """
g = x @ w1.t()
u = x @ w2.t()
h = F.silu(g) * u
return h @ w3.t()
""",
        lambda: (
            normal(2, 64, 256),
            normal(512, 256),
            normal(512, 256),
            normal(256, 512),
        ),
    ),
    Op(
        "huber",
        "pred[..., D], target[..., D], delta: float = 1.0",
        """
err = pred - target
a = err.abs()
return torch.where(a < delta, 0.5 * err * err, delta * (a - 0.5 * delta)).mean()
""",
        lambda: (normal(512, 1024), normal(512, 1024), 1.0),
        _huber,
    ),
    Op(
        "cross_entropy",
        "logits[N, C], target[N; index(C)]",
        "-torch.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1).mean()",
        lambda: (normal(512, 1000), below(1000, 512)),
        F.cross_entropy,
    ),
    Op(
        "linear",
        "input[..., K], weight[M, K], bias[M]?",
        "input @ weight.t() + bias",
        lambda: (normal(2, 128, 512), normal(512, 512), normal(512)),
        F.linear,
    ),
    Op(
        "kl_gauss",
        "mu, logvar",
        "-0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(-1).mean()",
        lambda: (normal(512, 1024), normal(512, 1024)),
    ),
    Op(
        "cosine_similarity",
        "x[..., D], y[..., D], eps: float = 1e-8",
        """
dot = (x * y).sum(-1)
nx = x.norm(dim=-1)
ny = y.norm(dim=-1)
return dot / (nx * ny).clamp(min=eps)
""",
        lambda: (normal(512, 1024), normal(512, 1024), 1e-8),
        _cosine,
    ),
    Op(
        "info_nce",
        "a[N, D], b[N, D], t: float = 0.1",
        """
an = a / a.norm(dim=-1, keepdim=True)
bn = b / b.norm(dim=-1, keepdim=True)
return -torch.log_softmax(an @ bn.t() / t, -1).diagonal().mean()
""",
        lambda: (normal(256, 256), normal(256, 256), 0.1),
    ),
    Op(
        "focal",
        "logits[..., D], target[..., D; int], gamma: float = 2.0",
        """
p = torch.sigmoid(logits)
pt = torch.where(target > 0, p, 1 - p)
logpt = torch.where(target > 0, F.logsigmoid(logits), F.logsigmoid(-logits))
return -((1 - pt) ** gamma * logpt).mean()
""",
        lambda: (normal(512, 1024), below(2, 512, 1024), 2.0),
    ),
    Op(
        "rotary",
        "x[..., S, D], cos[S, D; const], sin[S, D; const]",
        """
d = x.shape[-1] // 2
x1 = x[..., :d]
x2 = x[..., d:]
rot = torch.cat([-x2, x1], dim=-1)
return x * cos + rot * sin
""",
        lambda: (normal(8, 8, 64, 64), normal(64, 64), normal(64, 64)),
    ),
)
