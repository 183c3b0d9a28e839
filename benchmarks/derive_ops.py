"""The ops that `derive.py` measures: what a user writes, a common size, and PyTorch's own op.

In: nothing. Out: `OPS`. Invariant: `native` computes what `forward` does.
"""

from typing import NamedTuple

POLICIES = ("recompute", "balanced")


class Op(NamedTuple):
    """An op, the sizes of its inputs, and the native op where there is one."""

    name: str
    inputs: str
    forward: str
    sizes: str
    native: str | None = None


OPS = (
    Op(
        "swish",
        "x",
        "x * torch.sigmoid(x)",
        "...=512x1024",
        "F.silu(x)",
    ),
    Op(
        "mish",
        "x",
        "x * torch.tanh(F.softplus(x))",
        "...=512x1024",
        "F.mish(x)",
    ),
    Op(
        "gelu_tanh",
        "x",
        "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))",
        "...=512x1024",
        "F.gelu(x, approximate='tanh')",
    ),
    Op(
        "softmax_manual",
        "x",
        """
e = torch.exp(x - x.detach().amax(-1, keepdim=True))
return e / e.sum(-1, keepdim=True)
""",
        "...=512x1024",
        "torch.softmax(x, -1)",
    ),
    Op(
        "rms_norm",
        "x[..., D], weight[D], eps: float = 1e-6",
        """
rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
return x * rstd * weight
""",
        "...=8x64, D=1024",
        "F.rms_norm(x, weight.shape, weight, eps)",
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
        "...=8x64, D=1024",
        "F.layer_norm(x, x.shape[-1:], weight, bias, eps)",
    ),
    Op(
        "attention",
        "q[B, H, S, D], k[B, H, T, D], v[B, H, T, E], scale: float = 0.125",
        """
attn = torch.softmax(q @ k.transpose(-2, -1) * scale, dim=-1)
return attn @ v
""",
        "B=2, H=4, S=128, T=128, D=64, E=64",
        "F.scaled_dot_product_attention(q, k, v, scale=scale)",
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
        "...=2x64, K=256, H=512",
    ),
    Op(
        "huber",
        "pred[..., D], target[..., D], delta: float = 1.0",
        """
err = pred - target
a = err.abs()
return torch.where(a < delta, 0.5 * err * err, delta * (a - 0.5 * delta)).mean()
""",
        "...=512, D=1024",
        "F.huber_loss(pred, target, delta=delta)",
    ),
    Op(
        "cross_entropy",
        "logits[N, C], target[N; index(C)]",
        "-torch.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1).mean()",
        "N=512, C=1000",
        "F.cross_entropy(logits, target)",
    ),
    Op(
        "linear",
        "input[..., K], weight[M, K], bias[M]?",
        "input @ weight.t() + bias",
        "...=2x128, K=512, M=512",
        "F.linear(input, weight, bias)",
    ),
    Op(
        "kl_gauss",
        "mu, logvar",
        "-0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(-1).mean()",
        "...=512x1024",
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
        "...=512, D=1024",
        "F.cosine_similarity(x, y, dim=-1, eps=eps)",
    ),
    Op(
        "info_nce",
        "a[N, D], b[N, D], t: float = 0.1",
        """
an = a / a.norm(dim=-1, keepdim=True)
bn = b / b.norm(dim=-1, keepdim=True)
return -torch.log_softmax(an @ bn.t() / t, -1).diagonal().mean()
""",
        "N=256, D=256",
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
        "...=512, D=1024",
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
        "...=8x8, S=64, D=64",
    ),
)
