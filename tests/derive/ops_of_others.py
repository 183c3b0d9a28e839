"""Ops of published code and papers, as their authors write the forward; none of them was at hand when the engine was made.

In: nothing. Out: `OPS`, each with its signature, its forward and the inputs of several calls. Invariant: an op needs nothing but
torch.
"""

import torch
from torch import Tensor

from tests.derive.cases import Case, index, p, r, spd, z


def d(*shape: int) -> Tensor:
    """Distinct values that are far apart."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    return torch.randperm(count).to(torch.double).reshape(shape) / count * 4 - 2.1


def m(*shape: int) -> Tensor:
    """A mask in which each row has a True."""
    found = torch.rand(shape) > 0.4
    found[..., 0] = True
    return found


def u(*shape: int) -> Tensor:
    """Values between 0.1 and 0.9."""
    return torch.rand(shape, dtype=torch.double) * 0.8 + 0.1


def simplex(*shape: int) -> Tensor:
    """Rows that sum to 1."""
    return torch.softmax(r(*shape), -1)


ACTIVATIONS = (
    Case(
        "squareplus",
        "x, b: float = 4.0",
        "(x + torch.sqrt(x * x + b)) / 2",
        lambda: [(r(3, 4), 4.0)],
    ),
    Case(
        "snake",
        "x[B, C, T], alpha[C, 1]",
        "x + (alpha + 1e-9).reciprocal() * torch.sin(x * alpha).pow(2)",
        lambda: [(r(2, 3, 4), p(3, 1))],
    ),
    Case(
        "serf",
        "x",
        "x * torch.erf(torch.log(1 + torch.exp(x)))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "tanh_exp",
        "x",
        "x.mul(x.exp().tanh())",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "pelu",
        "x, a, b",
        "torch.where(x >= 0, a / b * x, a * (torch.exp(x / b) - 1))",
        lambda: [(r(3, 4), p(), p())],
    ),
    Case(
        "srelu",
        "x[N, C], tl[C], al[C], tr[C], ar[C]",
        """
low = tl + al * (x - tl)
high = tr + ar * (x - tr)
return torch.where(x < tl, low, torch.where(x > tr, high, x))
""",
        lambda: [(2 * r(6, 4), -p(4), r(4), p(4), r(4))],
    ),
    Case(
        "maxout",
        "x[N, C, K]",
        "x.max(dim=-1).values",
        lambda: [(d(3, 4, 2),)],
    ),
    Case(
        "reglu",
        "x[..., D]",
        """
a, b = x.chunk(2, dim=-1)
return F.relu(a) * b
""",
        lambda: [(r(3, 6),), (r(2, 3, 4),)],
    ),
    Case(
        "geglu_split",
        "x[N, D], width: int",
        """
value, gate = torch.split(x, width, dim=1)
return value * F.gelu(gate, approximate='tanh')
""",
        lambda: [(r(3, 6), 3)],
    ),
    Case(
        "swiglu_ffn",
        "x[..., D], w1[H, D], w2[D, H], w3[H, D]",
        "F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)",
        lambda: [
            (r(2, 3, 4), r(5, 4), r(4, 5), r(5, 4)),
            (r(3, 4), r(5, 4), r(4, 5), r(5, 4)),
        ],
    ),
    Case(
        "hard_mish",
        "x",
        "0.5 * x * (x + 2).clamp(min=0, max=2)",
        lambda: [(2 * r(3, 4),)],
    ),
    Case(
        "soft_exponential",
        "x, alpha: float = 0.5",
        """
if alpha == 0:
    return x
elif alpha < 0:
    return -torch.log(1 - alpha * (x + alpha)) / alpha
else:
    return (torch.exp(alpha * x) - 1) / alpha + alpha
""",
        lambda: [(p(3, 4), 0.5), (p(3, 4), -0.3), (p(3, 4), 0.0)],
    ),
    Case(
        "prelu_channels",
        "x[B, C, H, W], weight[C]",
        "torch.clamp(x, min=0) + weight[None, :, None, None] * torch.clamp(x, max=0)",
        lambda: [(r(2, 3, 4, 2), r(3))],
    ),
    Case(
        "dice_act",
        "x[N, C], alpha[C], eps: float = 1e-8",
        """
mu = x.mean(dim=0, keepdim=True)
sigma = x.std(0, unbiased=False, keepdim=True)
gate = torch.sigmoid((x - mu) / (sigma + eps))
return gate * x + (1 - gate) * alpha * x
""",
        lambda: [(r(6, 4), r(4), 1e-8)],
    ),
    Case(
        "softmax_temperature",
        "logits, temperature: float = 2.0, dim=-1",
        """
logits = logits / temperature
logits = logits - logits.max(dim=dim, keepdim=True)[0]
e = logits.exp()
return e / e.sum(dim=dim, keepdim=True)
""",
        lambda: [(r(3, 4), 2.0, -1), (r(3, 4), 0.7, 0)],
    ),
    Case(
        "quiet_softmax",
        "x[..., D]",
        """
m = x.amax(dim=-1, keepdim=True)
e = torch.exp(x - m)
return e / (torch.exp(-m) + e.sum(-1, True))
""",
        lambda: [(d(3, 4),), (d(4),)],
    ),
    Case(
        "taylor_softmax",
        "x[N, C]",
        """
t = 1 + x + 0.5 * x ** 2
return t / t.sum(dim=1, keepdim=True)
""",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "gumbel_softmax_hard",
        "logits[N, C], noise[N, C; const], tau: float = 1.0, hard: bool = False",
        """
y = ((logits + noise) / tau).softmax(-1)
hot = F.one_hot(y.argmax(-1), y.shape[-1]).to(y.dtype)
return hot - y.detach() + y if hard else y
""",
        lambda: [(r(3, 4), r(3, 4), 0.7, False), (r(3, 4), r(3, 4), 0.7, True)],
    ),
    Case(
        "sparsemax",
        "z[N, K]",
        """
zs = torch.sort(z, dim=-1, descending=True).values
k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
cs = zs.cumsum(-1)
support = (1 + k * zs > cs).to(z.dtype)
size = support.sum(-1, keepdim=True)
tau = ((zs * support).sum(-1, keepdim=True) - 1) / size
return torch.clamp(z - tau, min=0)
""",
        lambda: [(d(3, 5),)],
    ),
    Case(
        "log1p_signed",
        "x",
        "torch.sign(x) * torch.log1p(torch.abs(x))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "crelu",
        "x[N, C]",
        "torch.cat((F.relu(x), F.relu(-x)), dim=1)",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "phish",
        "x",
        "x * F.gelu(x).tanh()",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "star_relu",
        "x, scale, bias?",
        """
out = scale * F.relu(x) ** 2
if bias is not None:
    out = out + bias
return out
""",
        lambda: [(r(3, 4), p(), p()), (r(3, 4), p(), None)],
    ),
    Case(
        "rational",
        "x, a0, a1, a2, b1, b2",
        """
top = a0 + x * (a1 + x * a2)
return top / (1 + torch.abs(b1 * x + b2 * x ** 2))
""",
        lambda: [(r(3, 4), r(), r(), r(), r(), r())],
    ),
    Case(
        "elu_alpha",
        "x, alpha: float = 1.0",
        "torch.where(x > 0, x, alpha * torch.expm1(x))",
        lambda: [(r(3, 4), 1.3)],
    ),
)

NORMS = (
    Case(
        "batch_norm_eval",
        "x[N, C, H, W], mean[C; const], var[C; const, positive], weight[C]?, bias[C]?, eps: float = 1e-5",
        """
shape = (1, -1, 1, 1)
out = (x - mean.view(shape)) * torch.rsqrt(var.view(shape) + eps)
if weight is not None:
    out = out * weight.view(shape)
if bias is not None:
    out = out + bias.view(shape)
return out
""",
        lambda: [
            (r(2, 3, 4, 2), r(3), p(3), r(3), r(3), 1e-5),
            (r(2, 3, 4, 2), r(3), p(3), None, r(3), 1e-5),
            (r(2, 3, 4, 2), r(3), p(3), None, None, 1e-5),
        ],
    ),
    Case(
        "batch_norm_train",
        "x[N, C, H, W], weight[C]?, bias[C]?, eps: float = 1e-5",
        """
mean = x.mean(dim=(0, 2, 3), keepdim=True)
var = x.var(dim=(0, 2, 3), unbiased=False, keepdim=True)
out = (x - mean) / torch.sqrt(var + eps)
if weight is not None:
    out = out * weight[None, :, None, None]
if bias is not None:
    out = out + bias[None, :, None, None]
return out
""",
        lambda: [
            (r(2, 3, 4, 2), r(3), r(3), 1e-5),
            (r(2, 3, 4, 2), r(3), None, 1e-5),
            (r(2, 3, 4, 2), None, r(3), 1e-5),
        ],
    ),
    Case(
        "instance_norm",
        "x[B, C, *H] , eps: float = 1e-5".replace("*H", "H, W"),
        """
mu = x.mean((-2, -1), keepdim=True)
sigma2 = ((x - mu) ** 2).mean((-2, -1), keepdim=True)
return (x - mu) * (sigma2 + eps).rsqrt()
""",
        lambda: [(r(2, 3, 4, 2), 1e-5)],
    ),
    Case(
        "group_norm_manual",
        "x[N, C, H, W], weight[C], bias[C], groups: int, eps: float = 1e-5",
        """
N, C, H, W = x.shape
y = x.reshape(N, groups, -1)
var, mean = torch.var_mean(y, dim=-1, keepdim=True, correction=0)
y = (y - mean) * torch.rsqrt(var + eps)
return y.view(N, C, H, W) * weight.view(1, C, 1, 1) + bias.view(1, C, 1, 1)
""",
        lambda: [(r(2, 4, 3, 2), r(4), r(4), 2, 1e-5)],
    ),
    Case(
        "group_norm_call",
        "x[N, C, H, W], weight[C]?, bias[C]?, groups: int, eps: float = 1e-5",
        "F.group_norm(x, groups, weight, bias, eps)",
        lambda: [
            (r(2, 4, 3, 2), r(4), r(4), 2, 1e-5),
            (r(2, 4, 3, 2), None, None, 2, 1e-5),
        ],
    ),
    Case(
        "weight_norm",
        "v[O, I], g[O, 1]",
        "g * v / v.norm(2, dim=1, keepdim=True)",
        lambda: [(r(3, 4), r(3, 1))],
    ),
    Case(
        "weight_norm_conv",
        "v[O, I, K], g[O]",
        "v * (g / torch.linalg.vector_norm(v, dim=(1, 2)))[:, None, None]",
        lambda: [(r(3, 4, 2), r(3))],
    ),
    Case(
        "weight_standardization",
        "weight[O, I, H, W], eps: float = 1e-5",
        """
mean = weight.mean(dim=[1, 2, 3], keepdim=True)
std = weight.std(dim=[1, 2, 3], keepdim=True) + eps
return (weight - mean) / std
""",
        lambda: [(r(3, 2, 3, 2), 1e-5)],
    ),
    Case(
        "spectral_norm",
        "weight[O, I], u[O; const], v[I; const]",
        """
sigma = torch.dot(u, torch.mv(weight, v))
return weight / sigma
""",
        lambda: [(r(3, 4), r(3), r(4))],
    ),
    Case(
        "spectral_norm_power",
        "weight[O, I], u[O; const]",
        """
v = F.normalize(weight.t().mv(u).detach(), dim=0)
w = F.normalize(torch.mv(weight, v).detach(), dim=0, eps=1e-12)
return weight / (w @ weight @ v)
""",
        lambda: [(r(3, 4), r(3))],
    ),
    Case(
        "scale_norm",
        "x[..., D], g, eps: float = 1e-5",
        "g * x / torch.norm(x, dim=-1, keepdim=True).clamp(min=eps)",
        lambda: [(r(2, 3, 4), p(), 1e-5)],
    ),
    Case(
        "gemma_rms_norm",
        "x[..., D], weight[D], eps: float = 1e-6",
        """
out = x.float().double() if False else x
out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + eps)
return out * (1.0 + weight)
""",
        lambda: [(r(2, 3, 4), r(4), 1e-6)],
    ),
    Case(
        "rms_norm_cast",
        "hidden[..., D], weight[D], eps: float = 1e-6",
        """
input_dtype = hidden.dtype
hidden = hidden.to(torch.float64)
variance = hidden.pow(2).mean(-1, keepdim=True)
hidden = hidden * torch.rsqrt(variance + eps)
return weight * hidden.to(input_dtype)
""",
        lambda: [(r(2, 3, 4), r(4), 1e-6)],
    ),
    Case(
        "adaptive_instance_norm",
        "x[B, C, H, W], style_mean[B, C], style_std[B, C], eps: float = 1e-5",
        """
size = x.size()
flat = x.view(size[0], size[1], -1)
mean = flat.mean(dim=2).view(size[0], size[1], 1, 1)
std = (flat.var(dim=2) + eps).sqrt().view(size[0], size[1], 1, 1)
normalized = (x - mean.expand(size)) / std.expand(size)
return normalized * style_std[..., None, None] + style_mean[..., None, None]
""",
        lambda: [(r(2, 3, 4, 2), r(2, 3), r(2, 3), 1e-5)],
    ),
    Case(
        "film",
        "x[B, T, D], gamma_beta[B, E]",
        """
gamma, beta = gamma_beta.unsqueeze(1).chunk(2, -1)
return x * (1 + gamma) + beta
""",
        lambda: [(r(2, 3, 4), r(2, 8))],
    ),
    Case(
        "modulate",
        "x[B, T, D], c[B, S]",
        """
shift, scale, gate = c.chunk(3, dim=1)
x = x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
return gate.unsqueeze(1) * x
""",
        lambda: [(r(2, 3, 4), r(2, 12))],
    ),
    Case(
        "pixel_norm",
        "x[B, C, H, W]",
        "x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-8)",
        lambda: [(r(2, 3, 4, 2),)],
    ),
    Case(
        "filter_response_norm",
        "x[B, C, H, W], gamma[C], beta[C], tau[C], eps: float = 1e-6",
        """
nu2 = x.pow(2).mean(dim=(2, 3), keepdim=True)
x = x * torch.rsqrt(nu2 + abs(eps))
b = [None, slice(None)]
return torch.maximum(gamma.view(1, -1, 1, 1) * x + beta.view(1, -1, 1, 1), tau.view(1, -1, 1, 1))
""".replace("b = [None, slice(None)]\n", ""),
        lambda: [(r(2, 3, 4, 2), r(3), r(3), r(3), 1e-6)],
    ),
    Case(
        "grn",
        "x[N, H, W, C], gamma[C], beta[C]",
        """
gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
nx = gx / (gx.mean(dim=-1, keepdim=True) + 1e-6)
return gamma * (x * nx) + beta + x
""",
        lambda: [(r(2, 3, 4, 5), r(5), r(5))],
    ),
    Case(
        "l2_normalize_two",
        "x[N, D], y[M, D]",
        "F.normalize(x, dim=-1) @ F.normalize(y, p=2.0, dim=-1).T",
        lambda: [(r(3, 4), r(5, 4))],
    ),
    Case(
        "whiten_zca",
        "x[N, D], w[D, D]",
        """
centered = x - x.mean(0)
cov = centered.T @ centered / (x.shape[0] - 1)
return (w @ cov * w).sum() + torch.trace(cov)
""",
        lambda: [(r(5, 3), r(3, 3))],
    ),
    Case(
        "cosine_norm_reduction",
        "x[N, C, D], dim: tuple[int, ...] = (-1,), keepdim: bool = True, eps: float = 1e-6",
        "x.mean(dim=dim, keepdim=keepdim) * x.pow(2).sum(dim, keepdim).add(eps).rsqrt()",
        lambda: [(r(2, 3, 4), (-1,), True, 1e-6), (r(2, 3, 4), (0, 2), False, 1e-6)],
    ),
)

LOSSES = (
    Case(
        "dice_loss",
        "logits[N, C, H, W], target[N, C, H, W; const], smooth: float = 1.0",
        """
probs = torch.sigmoid(logits)
dims = (0, 2, 3)
intersection = torch.sum(probs * target, dims)
cardinality = torch.sum(probs + target, dims)
dice = (2.0 * intersection + smooth) / (cardinality + smooth)
return 1 - dice.mean()
""",
        lambda: [(r(2, 3, 4, 2), u(2, 3, 4, 2), 1.0)],
    ),
    Case(
        "tversky",
        "logits[N, P], target[N, P; const], alpha: float = 0.3, beta: float = 0.7, smooth: float = 1.0",
        """
p = logits.sigmoid().flatten()
t = target.flatten()
tp = (p * t).sum()
fp = ((1 - t) * p).sum()
fn = (t * (1 - p)).sum()
return 1 - (tp + smooth) / (tp + alpha * fp + beta * fn + smooth)
""",
        lambda: [(r(3, 4), u(3, 4), 0.3, 0.7, 1.0)],
    ),
    Case(
        "sigmoid_focal_loss",
        "inputs, targets[; const], alpha: float = 0.25, gamma: float = 2.0, reduction: str = 'none'",
        """
p = torch.sigmoid(inputs)
ce_loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
p_t = p * targets + (1 - p) * (1 - targets)
loss = ce_loss * ((1 - p_t) ** gamma)
if alpha >= 0:
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    loss = alpha_t * loss
if reduction == "mean":
    loss = loss.mean()
elif reduction == "sum":
    loss = loss.sum()
return loss
""",
        lambda: [
            (r(3, 4), u(3, 4).round(), 0.25, 2.0, "none"),
            (r(3, 4), u(3, 4).round(), -1.0, 2.0, "mean"),
            (r(3, 4), u(3, 4).round(), 0.25, 2.0, "sum"),
        ],
    ),
    Case(
        "triplet_margin",
        "anchor[N, D], positive[N, D], negative[N, D], margin: float = 1.0, swap: bool = False",
        """
d_ap = (anchor - positive).pow(2).sum(1).sqrt()
d_an = (anchor - negative).pow(2).sum(1).sqrt()
if swap:
    d_pn = (positive - negative).pow(2).sum(1).sqrt()
    d_an = torch.minimum(d_an, d_pn)
return F.relu(d_ap - d_an + margin).mean()
""",
        lambda: [
            (r(3, 4), r(3, 4), r(3, 4), 3.0, False),
            (r(3, 4), r(3, 4), r(3, 4), 3.0, True),
        ],
    ),
    Case(
        "contrastive",
        "x1[N, D], x2[N, D], label[N; const], margin: float = 2.0",
        """
dist = torch.norm(x1 - x2, dim=1)
pos = label * dist.square()
neg = (1 - label) * torch.clamp(margin - dist, min=0.0).square()
return 0.5 * (pos + neg).mean()
""",
        lambda: [(r(3, 4), r(3, 4), u(3).round(), 4.0)],
    ),
    Case(
        "info_nce",
        "z1[N, D], z2[N, D], tau: float = 0.5",
        """
z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
logits = z1 @ z2.T / tau
labels = torch.arange(logits.shape[0], device=logits.device)
return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
""",
        lambda: [(r(3, 4), r(3, 4), 0.5)],
    ),
    Case(
        "nt_xent",
        "z[M, D], tau: float = 0.5",
        """
z = z / z.norm(dim=1, keepdim=True)
sim = torch.mm(z, z.t()) / tau
n = z.shape[0]
eye = torch.eye(n, dtype=torch.bool, device=z.device)
sim = sim.masked_fill(eye, float("-inf"))
pos = torch.roll(sim, n // 2, dims=0).diagonal()
return (torch.logsumexp(sim, dim=1) - pos).mean()
""",
        lambda: [(r(4, 3), 0.5)],
    ),
    Case(
        "clip_loss",
        "image[N, D], text[N, D], logit_scale",
        """
scale = logit_scale.exp()
image = image / image.norm(dim=-1, keepdim=True)
text = text / text.norm(dim=-1, keepdim=True)
logits = scale * image @ text.t()
lp_i = torch.diagonal(F.log_softmax(logits, dim=1))
lp_t = torch.diagonal(F.log_softmax(logits, dim=0))
return -(lp_i.mean() + lp_t.mean()) / 2
""",
        lambda: [(r(3, 4), r(3, 4), r())],
    ),
    Case(
        "siglip_loss",
        "zimg[N, D], ztxt[N, D], t, b",
        """
logits = (zimg @ ztxt.mT) * t.exp() + b
n = zimg.size(0)
labels = 2 * torch.eye(n, dtype=zimg.dtype, device=zimg.device) - 1
return -F.logsigmoid(labels * logits).sum() / n
""",
        lambda: [(r(3, 4), r(3, 4), r(), r())],
    ),
    Case(
        "wing_loss",
        "pred, target, w: float = 1.0, eps: float = 0.5",
        """
C = w - w * math.log(1 + w / eps)
diff = (pred - target).abs()
return torch.where(diff < w, w * torch.log(1 + diff / eps), diff - C).mean()
""",
        lambda: [(r(3, 4), r(3, 4), 1.0, 0.5)],
    ),
    Case(
        "charbonnier",
        "x, y, eps: float = 1e-3, reduction='mean'",
        """
loss = torch.sqrt((x - y) ** 2 + eps ** 2)
return loss.mean() if reduction == 'mean' else loss.sum() if reduction == 'sum' else loss
""",
        lambda: [
            (r(3, 4), r(3, 4), 1e-3, "mean"),
            (r(3, 4), r(4), 1e-3, "sum"),
            (r(3, 4), r(3, 1), 1e-3, "none"),
        ],
    ),
    Case(
        "quantile_loss",
        "pred[N, Q], target[N], q[Q; const]",
        """
error = target[:, None] - pred
return torch.max((q - 1) * error, q * error).sum(-1).mean()
""",
        lambda: [(r(3, 4), r(3), u(4))],
    ),
    Case(
        "poisson_nll",
        "log_rate, target[; const], full: bool = False",
        """
loss = torch.exp(log_rate) - target * log_rate
if full:
    stirling = target * torch.log(target) - target + 0.5 * torch.log(2 * math.pi * target)
    loss = loss + torch.where(target > 1, stirling, torch.zeros_like(target))
return loss.mean()
""",
        lambda: [(r(3, 4), 3 * p(3, 4), False), (r(3, 4), 3 * p(3, 4), True)],
    ),
    Case(
        "kl_gaussians",
        "mu1, logvar1, mu2, logvar2",
        """
return 0.5 * (
    -1.0 + logvar2 - logvar1
    + torch.exp(logvar1 - logvar2)
    + ((mu1 - mu2) ** 2) * torch.exp(-logvar2)
)
""",
        lambda: [(r(3, 4), r(3, 4), r(4), r(3, 1))],
    ),
    Case(
        "js_divergence",
        "p_logits[N, C], q_logits[N, C]",
        """
p, q = p_logits.softmax(-1), q_logits.softmax(-1)
m = (p + q) / 2
kl_pm = (p * (p.log() - m.log())).sum(-1)
kl_qm = (q * (q.log() - m.log())).sum(-1)
return 0.5 * (kl_pm + kl_qm).mean()
""",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "distillation",
        "student[N, C], teacher[N, C; const], T: float = 2.0, reduction: str = 'batchmean'",
        """
return F.kl_div(
    F.log_softmax(student / T, dim=1),
    F.softmax(teacher / T, dim=1),
    reduction="batchmean",
) * (T * T)
""",
        lambda: [(r(3, 4), r(3, 4), 2.0, "batchmean")],
    ),
    Case(
        "squared_hinge",
        "x[N], y[N; const]",
        "torch.mean(torch.relu(1.0 - y * x) ** 2)",
        lambda: [(r(6), torch.sign(r(6)))],
    ),
    Case(
        "multi_margin",
        "x[N, C], y[N; index(C)], margin: float = 1.0",
        """
correct = x.gather(1, y.view(-1, 1))
losses = (margin - correct + x).clamp_min(0)
losses = losses.scatter(1, y.unsqueeze(1), 0.0)
return losses.sum(1).mean() / x.size(1)
""",
        lambda: [(r(3, 4), index(4, 3), 1.0)],
    ),
    Case(
        "cosine_embedding",
        "x1[N, D], x2[N, D], y[N; const], margin: float = 0.1",
        """
cos = F.cosine_similarity(x1, x2, dim=1, eps=1e-8)
return torch.where(y == 1, 1 - cos, F.relu(cos - margin)).mean()
""",
        lambda: [(r(4, 3), r(4, 3), torch.tensor([1.0, -1, 1, -1]).double(), 0.1)],
    ),
    Case(
        "label_smoothing",
        "logits[N, C], target[N; index(C)], weight[C; const]?, eps: float = 0.1, reduction: str = 'mean'",
        """
logp = F.log_softmax(logits, dim=-1)
if weight is not None:
    logp = logp * weight.unsqueeze(0)
nll = -logp.gather(dim=-1, index=target.unsqueeze(1)).squeeze(1)
smooth = -logp.mean(dim=-1)
loss = (1 - eps) * nll + eps * smooth
if reduction == 'mean':
    return loss.mean()
elif reduction == 'sum':
    return loss.sum()
return loss
""",
        lambda: [
            (r(3, 4), index(4, 3), p(4), 0.1, "mean"),
            (r(3, 4), index(4, 3), None, 0.1, "sum"),
            (r(3, 4), index(4, 3), None, 0.1, "none"),
        ],
    ),
    Case(
        "cross_entropy_call",
        "logits[N, C], target[N; index(C)], weight[C; const]?, reduction: str = 'mean', label_smoothing: float = 0.0",
        "F.cross_entropy(logits, target, weight=weight, reduction=reduction, label_smoothing=label_smoothing)",
        lambda: [
            (r(3, 4), index(4, 3), None, "mean", 0.1),
            (r(3, 4), index(4, 3), p(4), "sum", 0.0),
        ],
    ),
    Case(
        "mse_reduction",
        "x, y, reduction: str = 'mean'",
        "F.mse_loss(x, y, reduction=reduction)",
        lambda: [(r(3, 4), r(3, 4), "mean"), (r(3, 4), r(3, 4), "none")],
    ),
    Case(
        "log_cosh",
        "pred, true",
        """
x = pred - true
return torch.mean(x + F.softplus(-2.0 * x) - math.log(2.0))
""",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "gaussian_nll",
        "mean, target, var, eps: float = 1e-6",
        """
var = var.clamp(min=eps)
return 0.5 * (torch.log(var) + (target - mean) ** 2 / var).mean()
""",
        lambda: [(r(3, 4), r(3, 4), p(3, 1), 1e-6)],
    ),
    Case(
        "mixture_density",
        "pi_logits[N, K], mu[N, K], log_sigma[N, K], y[N, 1]",
        """
log_pi = pi_logits - torch.logsumexp(pi_logits, 1, keepdim=True)
zz = (y - mu) * torch.exp(-log_sigma)
log_prob = -0.5 * zz ** 2 - log_sigma - 0.5 * math.log(2 * math.pi)
return -torch.logsumexp(log_pi + log_prob, dim=1).mean()
""",
        lambda: [(r(3, 4), r(3, 4), r(3, 4), r(3, 1))],
    ),
    Case(
        "asymmetric_loss",
        "x, y[; const], gamma_neg: float = 4.0, gamma_pos: float = 1.0, clip: float | None = 0.05, eps: float = 1e-8",
        """
xs_pos = torch.sigmoid(x)
xs_neg = 1 - xs_pos
if clip is not None and clip > 0:
    xs_neg = (xs_neg + clip).clamp(max=1)
los_pos = y * torch.log(xs_pos.clamp(min=eps))
los_neg = (1 - y) * torch.log(xs_neg.clamp(min=eps))
loss = los_pos + los_neg
pt = xs_pos * y + xs_neg * (1 - y)
one_sided_gamma = gamma_pos * y + gamma_neg * (1 - y)
loss = loss * torch.pow(1 - pt, one_sided_gamma)
return -loss.sum()
""",
        lambda: [
            (r(3, 4), u(3, 4).round(), 4.0, 1.0, 0.05, 1e-8),
            (r(3, 4), u(3, 4).round(), 4.0, 1.0, None, 1e-8),
        ],
    ),
    Case(
        "arcface",
        "x[N, D], w[C, D], target[N; index(C)], s: float = 8.0, m: float = 0.3",
        """
cosine = F.linear(F.normalize(x), F.normalize(w)).clamp(-1 + 1e-7, 1 - 1e-7)
theta = torch.acos(cosine)
hot = F.one_hot(target, num_classes=w.shape[0]).to(x.dtype)
return s * torch.cos(theta + m * hot)
""",
        lambda: [(r(3, 4), r(5, 4), index(5, 3), 8.0, 0.3)],
    ),
    Case(
        "center_loss",
        "x[N, D], centers[C, D], labels[N; index(C)]",
        "(x - centers[labels]).pow(2).sum() / 2.0 / x.shape[0]",
        lambda: [(r(3, 4), r(5, 4), index(5, 3))],
    ),
    Case(
        "barlow_twins",
        "z1[N, D], z2[N, D], lambd: float = 0.005",
        """
z1 = (z1 - z1.mean(0)) / z1.std(0)
z2 = (z2 - z2.mean(0)) / z2.std(0)
c = z1.T @ z2
c = c / z1.shape[0]
on_diag = (torch.diagonal(c) - 1).pow(2).sum()
off_diag = c.pow(2).sum() - torch.diagonal(c).pow(2).sum()
return on_diag + lambd * off_diag
""",
        lambda: [(r(5, 3), r(5, 3), 0.005)],
    ),
    Case(
        "vicreg_terms",
        "x[N, D], y[N, D]",
        """
repr_loss = F.mse_loss(x, y)
x = x - x.mean(dim=0)
std_x = torch.sqrt(x.var(dim=0) + 0.0001)
std_loss = torch.mean(F.relu(1 - std_x))
cov_x = (x.T @ x) / (len(x) - 1)
off = cov_x.pow(2).sum() - cov_x.diagonal().pow(2).sum()
return repr_loss, std_loss, off / x.shape[1]
""",
        lambda: [(0.5 * r(5, 3), r(5, 3))],
        "repr_loss, std_loss, cov_loss",
    ),
    Case(
        "dpo",
        "pi_w[N], pi_l[N], ref_w[N; const], ref_l[N; const], beta: float = 0.1",
        """
logits = (pi_w - pi_l) - (ref_w - ref_l)
loss = -F.logsigmoid(beta * logits)
return loss.mean(), (beta * (pi_w - ref_w)).detach()
""",
        lambda: [(r(4), r(4), r(4), r(4), 0.1)],
        "loss, reward[N; const]",
    ),
    Case(
        "ppo_clip",
        "logp[N], old_logp[N; const], adv[N; const], clip: float = 0.2, ent_coef: float = 0.01",
        """
ratio = torch.exp(logp - old_logp)
surr1 = ratio * adv
surr2 = torch.clamp(ratio, 1.0 - clip, 1.0 + clip) * adv
return -torch.min(surr1, surr2).mean() - ent_coef * -(logp.exp() * logp).sum()
""",
        lambda: [(r(6), r(6), r(6), 0.2, 0.01)],
    ),
    Case(
        "masked_mae",
        "pred[B, T], target[B, T], mask[B, T; bool]",
        """
diff = torch.abs(pred - target) * mask
return diff.sum() / mask.sum().clamp(min=1)
""",
        lambda: [(r(3, 4), r(3, 4), m(3, 4))],
    ),
    Case(
        "masked_select_mean",
        "pred[N], target[N], mask[N; bool]",
        "((pred[mask] - target[mask]) ** 2).mean()",
        lambda: [(r(6), r(6), m(6))],
    ),
    Case(
        "iou_loss",
        "pred[N, 4], target[N, 4]",
        """
lt = torch.max(pred[:, :2], target[:, :2])
rb = torch.min(pred[:, 2:], target[:, 2:])
wh = (rb - lt).clamp(min=0)
inter = wh[:, 0] * wh[:, 1]
area_p = (pred[:, 2] - pred[:, 0]) * (pred[:, 3] - pred[:, 1])
area_t = (target[:, 2] - target[:, 0]) * (target[:, 3] - target[:, 1])
return -torch.log((inter / (area_p + area_t - inter)).clamp(min=1e-6)).mean()
""",
        lambda: [
            (
                torch.cat([u(3, 2), 1.5 + u(3, 2)], 1),
                torch.cat([u(3, 2), 1.5 + u(3, 2)], 1),
            )
        ],
    ),
    Case(
        "giou",
        "boxes1[N, 4], boxes2[N, 4], eps: float = 1e-7",
        """
x1, y1, x2, y2 = boxes1.unbind(dim=-1)
x1g, y1g, x2g, y2g = boxes2.unbind(dim=-1)
xkis1 = torch.max(x1, x1g)
ykis1 = torch.max(y1, y1g)
xkis2 = torch.min(x2, x2g)
ykis2 = torch.min(y2, y2g)
inter = (xkis2 - xkis1).clamp(min=0) * (ykis2 - ykis1).clamp(min=0)
union = (x2 - x1) * (y2 - y1) + (x2g - x1g) * (y2g - y1g) - inter
iou = inter / (union + eps)
area_c = (torch.max(x2, x2g) - torch.min(x1, x1g)) * (torch.max(y2, y2g) - torch.min(y1, y1g))
return 1 - iou + (area_c - union) / (area_c + eps)
""",
        lambda: [
            (
                torch.cat([u(3, 2), 1.5 + u(3, 2)], 1),
                torch.cat([u(3, 2), 1.5 + u(3, 2)], 1),
                1e-7,
            )
        ],
    ),
    Case(
        "tv_loss",
        "x[B, C, H, W]",
        """
dh = (x[:, :, 1:, :] - x[:, :, :-1, :]).abs().mean()
dw = (x[..., 1:] - x[..., :-1]).abs().mean()
return dh + dw
""",
        lambda: [(r(2, 3, 4, 5),)],
    ),
    Case(
        "gram_style_loss",
        "x[B, C, H, W], target[B, C, C; const]",
        """
b, c, h, w = x.size()
f = x.view(b, c, h * w)
gram = torch.bmm(f, f.transpose(1, 2)) / (c * h * w)
return F.mse_loss(gram, target, reduction='sum')
""",
        lambda: [(r(2, 3, 4, 2), r(2, 3, 3))],
    ),
    Case(
        "huber_manual",
        "x, y, delta: float = 1.0",
        """
err = torch.abs(x - y)
quadratic = torch.clamp(err, max=delta)
return (0.5 * quadratic ** 2 + delta * (err - quadratic)).mean()
""",
        lambda: [(2 * r(3, 4), r(3, 4), 1.0)],
    ),
    Case(
        "poly1_ce",
        "logits[N, C], labels[N; index(C)], eps: float = 2.0",
        """
pt = torch.sum(F.one_hot(labels, logits.shape[-1]) * torch.softmax(logits, -1), -1)
ce = F.cross_entropy(logits, labels, reduction='none')
return (ce + eps * (1 - pt)).mean()
""",
        lambda: [(r(3, 4), index(4, 3), 2.0)],
    ),
    Case(
        "entropy_bonus",
        "logits[..., C]",
        "-torch.special.xlogy(logits.softmax(-1), logits.softmax(-1)).sum(-1)",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "binary_entropy",
        "p[; unit]",
        "-(torch.xlogy(p, p) + torch.special.xlog1py(1 - p, -p))",
        lambda: [(u(3, 4),)],
    ),
    Case(
        "wasserstein_1d",
        "x[N], y[N]",
        "(x.sort().values - y.sort()[0]).abs().mean()",
        lambda: [(d(5), d(5) + 0.3)],
    ),
    Case(
        "listmle",
        "scores[N, K], order[N, K; index(K)]",
        """
s = torch.gather(scores, 1, order)
lse = torch.logcumsumexp(s.flip(-1), dim=-1).flip(-1)
return (lse - s).sum(-1).mean()
""",
        lambda: [(r(3, 4), torch.stack([torch.randperm(4) for _ in range(3)]))],
    ),
    Case(
        "ohem",
        "losses[N], k: int",
        """
top, _ = torch.topk(losses, k)
return top.mean()
""",
        lambda: [(d(6), 3)],
    ),
    Case(
        "supcon",
        "feat[N, D], same[N, N; const], tau: float = 0.5",
        """
logits = feat @ feat.T / tau
logits = logits - logits.max(dim=1, keepdim=True)[0].detach()
mask = 1 - torch.eye(feat.shape[0], dtype=feat.dtype, device=feat.device)
exp_logits = torch.exp(logits) * mask
log_prob = logits - torch.log(exp_logits.sum(1, keepdim=True))
pos = same * mask
return -((pos * log_prob).sum(1) / pos.sum(1).clamp(min=1)).mean()
""",
        lambda: [(r(4, 3), u(4, 4).round(), 0.5)],
    ),
)

ATTENTION = (
    Case(
        "causal_attention",
        "q[B, H, T, D], k[B, H, T, D], v[B, H, T, D]",
        """
T, D = q.shape[-2:]
att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(D))
mask = torch.tril(torch.ones(T, T, device=q.device)).view(1, 1, T, T)
att = att.masked_fill(mask == 0, float('-inf'))
return F.softmax(att, dim=-1) @ v
""",
        lambda: [(r(2, 3, 4, 5), r(2, 3, 4, 5), r(2, 3, 4, 5))],
    ),
    Case(
        "alibi_attention",
        "q[B, H, T, D], k[B, H, T, D], v[B, H, T, D], slopes[H; const]",
        """
t = q.size(-2)
pos = torch.arange(t, device=q.device)
bias = -slopes[:, None, None] * (pos[:, None] - pos[None, :]).abs()
scores = torch.einsum('bhid,bhjd->bhij', q, k) / q.size(-1) ** 0.5 + bias
return torch.einsum('bhij,bhjd->bhid', scores.softmax(dim=-1), v)
""",
        lambda: [(r(2, 3, 4, 5), r(2, 3, 4, 5), r(2, 3, 4, 5), p(3))],
    ),
    Case(
        "relative_position_bias",
        "q[B, H, N, D], k[B, H, N, D], v[B, H, N, D], table[L, H], index[N, N; index(L)]",
        """
n = q.shape[2]
attn = q @ k.transpose(-2, -1)
bias = table[index.view(-1)].view(n, n, -1)
bias = bias.permute(2, 0, 1).contiguous()
attn = attn + bias.unsqueeze(0)
return attn.softmax(dim=-1) @ v
""",
        lambda: [
            (r(2, 3, 4, 5), r(2, 3, 4, 5), r(2, 3, 4, 5), r(7, 3), index(7, 4, 4))
        ],
    ),
    Case(
        "relative_key_embedding",
        "q[B, T, D], k[B, T, D], rel[T, T, D]",
        "torch.einsum('btd,bsd->bts', q, k) + torch.einsum('btd,tsd->bts', q, rel)",
        lambda: [(r(2, 3, 4), r(2, 3, 4), r(3, 3, 4))],
    ),
    Case(
        "sliding_window",
        "q[B, T, D], k[B, T, D], v[B, T, D], window: int = 2",
        """
scores = q @ k.mT * q.shape[-1] ** -0.5
i = torch.arange(q.shape[1], device=q.device)
near = (i[:, None] - i[None, :] >= 0) & (i[:, None] - i[None, :] < window)
scores = torch.where(near, scores, float("-inf"))
return torch.softmax(scores, -1) @ v
""",
        lambda: [(r(2, 5, 3), r(2, 5, 3), r(2, 5, 3), 2)],
    ),
    Case(
        "linear_attention",
        "q[B, H, T, D], k[B, H, T, D], v[B, H, T, E], eps: float = 1e-6",
        """
q = F.elu(q) + 1
k = F.elu(k) + 1
kv = torch.einsum("bhtd,bhte->bhde", k, v)
z = 1 / (torch.einsum("bhtd,bhd->bht", q, k.sum(dim=2)) + eps)
return torch.einsum("bhtd,bhde,bht->bhte", q, kv, z)
""",
        lambda: [(r(2, 3, 4, 5), r(2, 3, 4, 5), r(2, 3, 4, 2), 1e-6)],
    ),
    Case(
        "causal_linear_attention",
        "q[B, T, D], k[B, T, D], v[B, T, E]",
        """
kv = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=1)
den = (q * k.cumsum(1)).sum(-1, keepdim=True) + 4
return (q.unsqueeze(-2) @ kv).squeeze(-2) / den
""",
        lambda: [(u(2, 4, 3), u(2, 4, 3), r(2, 4, 2))],
    ),
    Case(
        "gqa_repeat_interleave",
        "q[B, H, T, D], k[B, G, T, D], v[B, G, T, D]",
        """
n_rep = q.shape[1] // k.shape[1]
k = k.repeat_interleave(n_rep, dim=1)
v = v.repeat_interleave(n_rep, dim=1)
p = torch.softmax(torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.shape[-1]), dim=-1)
return torch.matmul(p, v)
""",
        lambda: [(r(2, 4, 3, 5), r(2, 2, 3, 5), r(2, 2, 3, 5))],
    ),
    Case(
        "gqa_expand",
        "q[B, H, T, D], k[B, G, T, D], v[B, G, T, D], n_rep: int",
        """
b, g, t, d = k.shape
k = k[:, :, None, :, :].expand(b, g, n_rep, t, d).reshape(b, g * n_rep, t, d)
v = v[:, :, None, :, :].expand(b, g, n_rep, t, d).reshape(b, g * n_rep, t, d)
return F.softmax(q @ k.mT, dim=-1) @ v
""",
        lambda: [(r(2, 4, 3, 5), r(2, 2, 3, 5), r(2, 2, 3, 5), 2)],
    ),
    Case(
        "softcap_attention",
        "q[B, H, T, D], k[B, H, S, D], v[B, H, S, D], mask[T, S; const]?, cap: float = 5.0, scale: float | None = None",
        """
scale = q.shape[-1] ** -0.5 if scale is None else scale
s = torch.matmul(q * scale, k.transpose(-1, -2))
s = cap * torch.tanh(s / cap)
if mask is not None:
    s = s + mask
return torch.matmul(s.softmax(-1), v)
""",
        lambda: [
            (r(2, 3, 4, 5), r(2, 3, 6, 5), r(2, 3, 6, 5), r(4, 6), 5.0, None),
            (r(2, 3, 4, 5), r(2, 3, 6, 5), r(2, 3, 6, 5), None, 5.0, 0.3),
        ],
    ),
    Case(
        "attention_sinks",
        "q[B, H, T, D], k[B, H, S, D], v[B, H, S, D], sinks[H]",
        """
b, h, t, _ = q.shape
qk = torch.einsum("bhtd,bhsd->bhts", q, k)
s = sinks.reshape(1, -1, 1, 1).expand(b, -1, t, 1)
qk = torch.cat([qk, s], dim=-1)
w = torch.softmax(qk, dim=-1)[..., :-1]
return w @ v
""",
        lambda: [(r(2, 3, 4, 5), r(2, 3, 6, 5), r(2, 3, 6, 5), r(3))],
    ),
    Case(
        "sdpa_call",
        "q[B, H, T, D], k[B, H, T, D], v[B, H, T, D]",
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        lambda: [(r(2, 3, 4, 5), r(2, 3, 4, 5), r(2, 3, 4, 5))],
    ),
    Case(
        "sdpa_mask",
        "q[B, H, T, D], k[B, H, S, D], v[B, H, S, D], attn_mask[T, S; const]?, scale: float | None = None",
        "F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=scale)",
        lambda: [
            (r(2, 3, 4, 5), r(2, 3, 6, 5), r(2, 3, 6, 5), r(4, 6), None),
            (r(2, 3, 4, 5), r(2, 3, 6, 5), r(2, 3, 6, 5), None, 0.3),
        ],
    ),
    Case(
        "packed_qkv",
        "x[B, T, C], w_qkv[E, C], w_out[C, C], heads: int",
        """
B, T, C = x.size()
q, k, v = F.linear(x, w_qkv).split(C, dim=2)
q = q.view(B, T, heads, C // heads).transpose(1, 2)
k = k.view(B, T, heads, C // heads).transpose(1, 2)
v = v.view(B, T, heads, C // heads).transpose(1, 2)
y = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)), dim=-1) @ v
y = y.transpose(1, 2).contiguous().view(B, T, C)
return F.linear(y, w_out)
""",
        lambda: [(r(2, 3, 4), r(12, 4), r(4, 4), 2)],
    ),
    Case(
        "qkv_permute",
        "x[B, N, C], qkv_weight[E, C], qkv_bias[E]?, heads: int",
        """
B, N, C = x.shape
qkv = F.linear(x, qkv_weight, qkv_bias).reshape(B, N, 3, heads, C // heads).permute(2, 0, 3, 1, 4)
q, k, v = qkv.unbind(0)
attn = (q * (C // heads) ** -0.5) @ k.transpose(-2, -1)
return (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, N, C)
""",
        lambda: [
            (r(2, 3, 4), r(12, 4), r(12), 2),
            (r(2, 3, 4), r(12, 4), None, 2),
        ],
    ),
    Case(
        "rotary_interleaved",
        "x[B, T, H, D], cos[T, E; const], sin[T, E; const]",
        """
x1, x2 = x[..., ::2], x[..., 1::2]
c, s = cos[None, :, None, :], sin[None, :, None, :]
return torch.stack((x1 * c - x2 * s, x1 * s + x2 * c), dim=-1).flatten(-2)
""",
        lambda: [(r(2, 3, 2, 4), r(3, 2), r(3, 2))],
    ),
    Case(
        "rotary_complex",
        "x[B, T, H, D], freqs[T, E; complex]",
        """
x_ = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
y = x_ * freqs.view(1, freqs.shape[0], 1, freqs.shape[1])
return torch.view_as_real(y).flatten(3)
""",
        lambda: [(r(2, 3, 2, 4), z(3, 2))],
    ),
    Case(
        "rotary_neox",
        "x[..., T, D], cos[T, D; const], sin[T, D; const]",
        """
half = x.shape[-1] // 2
rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
return (x * cos) + (rotated * sin)
""",
        lambda: [(r(2, 3, 4), r(3, 4), r(3, 4)), (r(2, 2, 3, 4), r(3, 4), r(3, 4))],
    ),
    Case(
        "talking_heads",
        "scores[B, H, T, S], pre[H, G], post[G, K], v[B, K, S, D]",
        """
s = torch.einsum('b h i j, h g -> b g i j', scores, pre).softmax(dim=-1)
s = torch.einsum('b g i j, g k -> b k i j', s, post)
return torch.einsum('bkij,bkjd->bkid', s, v)
""",
        lambda: [(r(2, 3, 4, 5), r(3, 2), r(2, 6), r(2, 6, 5, 3))],
    ),
    Case(
        "key_padding",
        "q[B, T, D], k[B, S, D], v[B, S, D], padding[B, S; bool]",
        """
scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5
scores = scores.masked_fill(~padding.unsqueeze(1), -1e4)
attn = F.softmax(scores, dim=-1)
return torch.bmm(attn, v), attn
""",
        lambda: [(r(2, 3, 4), r(2, 5, 4), r(2, 5, 4), m(2, 5))],
        "output, attn",
    ),
    Case(
        "additive_attention",
        "query[B, D], keys[B, T, D], wq[A, D], wk[A, D], va[A]",
        """
scores = torch.tanh((query @ wq.T)[:, None] + keys @ wk.T) @ va
weights = torch.softmax(scores, 1)
return (weights[..., None] * keys).sum(1)
""",
        lambda: [(r(2, 3), r(2, 4, 3), r(5, 3), r(5, 3), r(5))],
    ),
    Case(
        "moe_top2",
        "x[N, D], gate[D, E], experts[E, D, H]",
        """
probs = torch.softmax(x @ gate, dim=-1)
weights, idx = probs.topk(2, dim=-1)
weights = weights / weights.sum(dim=-1, keepdim=True)
picked = experts[idx]
return torch.einsum('nd,nkdh,nk->nh', x, picked, weights)
""",
        lambda: [(r(3, 4), r(4, 5), r(5, 4, 2))],
    ),
    Case(
        "retention_decay",
        "q[B, T, D], k[B, T, D], v[B, T, D], gamma: float = 0.9",
        """
n = torch.arange(q.shape[1], dtype=q.dtype, device=q.device)
decay = torch.tril(gamma ** (n[:, None] - n[None, :]))
return (q @ k.mT * decay) @ v
""",
        lambda: [(r(2, 4, 3), r(2, 4, 3), r(2, 4, 3), 0.9)],
    ),
    Case(
        "attention_dropout",
        "q[B, T, D], k[B, T, D], v[B, T, D], p: float = 0.3",
        """
attn = torch.softmax(q @ k.mT, -1)
keep = torch.rand_like(attn) > p
return (attn * keep / (1 - p)) @ v
""",
        lambda: [(r(2, 4, 3), r(2, 4, 3), r(2, 4, 3), 0.3)],
    ),
)

GEOMETRY = (
    Case(
        "quaternion_rotate",
        "q[..., 4], v[..., 3]",
        """
w, u = q[..., :1], q[..., 1:]
t = 2 * torch.cross(u, v, dim=-1)
return v + w * t + torch.cross(u, t, dim=-1)
""",
        lambda: [(r(3, 4), r(3, 3)), (r(2, 3, 4), r(2, 3, 3))],
    ),
    Case(
        "quaternion_multiply",
        "a[..., 4], b[..., 4]",
        """
aw, ax, ay, az = torch.unbind(a, -1)
bw, bx, by, bz = torch.unbind(b, -1)
ow = aw * bw - ax * bx - ay * by - az * bz
ox = aw * bx + ax * bw + ay * bz - az * by
oy = aw * by - ax * bz + ay * bw + az * bx
oz = aw * bz + ax * by - ay * bx + az * bw
return torch.stack((ow, ox, oy, oz), -1)
""",
        lambda: [(r(3, 4), r(3, 4)), (r(2, 3, 4), r(2, 3, 4))],
    ),
    Case(
        "quaternion_to_matrix",
        "quaternions[..., 4]",
        """
r, i, j, k = torch.unbind(quaternions, -1)
two_s = 2.0 / (quaternions * quaternions).sum(-1)
o = torch.stack(
    (
        1 - two_s * (j * j + k * k),
        two_s * (i * j - k * r),
        two_s * (i * k + j * r),
        two_s * (i * j + k * r),
        1 - two_s * (i * i + k * k),
        two_s * (j * k - i * r),
        two_s * (i * k - j * r),
        two_s * (j * k + i * r),
        1 - two_s * (i * i + j * j),
    ),
    -1,
)
return o.reshape(quaternions.shape[:-1] + (3, 3))
""",
        lambda: [(r(3, 4),), (r(2, 3, 4),)],
    ),
    Case(
        "rodrigues",
        "rvec[N, 3], eps: float = 1e-8",
        """
theta = torch.sqrt((rvec ** 2).sum(-1, keepdim=True) + eps)
axis = rvec / theta
zero = torch.zeros_like(theta)
x, y, z = axis[:, 0:1], axis[:, 1:2], axis[:, 2:3]
K = torch.cat([zero, -z, y, z, zero, -x, -y, x, zero], dim=1).view(-1, 3, 3)
ident = torch.eye(3, dtype=rvec.dtype, device=rvec.device)[None]
s, c = torch.sin(theta)[..., None], torch.cos(theta)[..., None]
return ident + s * K + (1 - c) * (K @ K)
""",
        lambda: [(r(4, 3), 1e-8)],
    ),
    Case(
        "rotation_6d",
        "d6[..., 6]",
        """
a1, a2 = d6[..., :3], d6[..., 3:]
b1 = F.normalize(a1, dim=-1)
b2 = a2 - (b1 * a2).sum(-1, keepdim=True) * b1
b2 = F.normalize(b2, dim=-1)
b3 = torch.cross(b1, b2, dim=-1)
return torch.stack((b1, b2, b3), dim=-2)
""",
        lambda: [(r(3, 6),), (r(2, 3, 6),)],
    ),
    Case(
        "pinhole",
        "points[N, 3], K[3, 3], R[3, 3], t[3]",
        """
cam = points @ R.T + t
uvw = cam @ K.T
return uvw[:, :2] / uvw[:, 2:]
""",
        lambda: [(r(4, 3), r(3, 3), r(3, 3), r(3))],
    ),
    Case(
        "pinhole_intrinsics",
        "xyz[..., 3], fx, fy, cx, cy",
        """
x, y, z = xyz.split(1, dim=-1)
u = fx * x / z + cx
v = fy * y / z + cy
return torch.cat([u, v], dim=-1)
""",
        lambda: [(p(4, 3), p(), p(), r(), r()), (p(2, 4, 3), p(), p(), r(), r())],
    ),
    Case(
        "point_to_plane",
        "src[N, 3], dst[N, 3], normals[N, 3], R[3, 3], t[3], weight[N]?",
        """
moved = torch.einsum('ij,nj->ni', R, src) + t
res = ((moved - dst) * normals).sum(dim=1)
if weight is not None:
    res = res * weight
return (res ** 2).mean()
""",
        lambda: [
            (r(4, 3), r(4, 3), r(4, 3), r(3, 3), r(3), p(4)),
            (r(4, 3), r(4, 3), r(4, 3), r(3, 3), r(3), None),
        ],
    ),
    Case(
        "chamfer",
        "a[N, D], b[M, D]",
        """
d = ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)
return d.min(dim=1)[0].mean() + d.min(dim=0).values.mean()
""",
        lambda: [(r(4, 3), r(5, 3))],
    ),
    Case(
        "chamfer_cdist",
        "a[B, N, D], b[B, M, D]",
        """
dist = torch.cdist(a, b, p=2)
return torch.amin(dist, 2).mean(1) + torch.amin(dist, 1).mean(1)
""",
        lambda: [(r(2, 4, 3), r(2, 5, 3))],
    ),
    Case(
        "pairwise_sqdist",
        "x[N, D], y[M, D]",
        """
xx = x.pow(2).sum(1, keepdim=True)
yy = y.pow(2).sum(1).unsqueeze(0)
return (xx + yy - 2.0 * torch.mm(x, y.t())).clamp(min=0.0)
""",
        lambda: [(r(4, 3), r(5, 3))],
    ),
    Case(
        "rbf_kernel",
        "x[N, D], y[M, D], lengthscale[D], variance",
        """
x, y = x / lengthscale, y / lengthscale
sq = (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(dim=-1)
return variance * torch.exp(-0.5 * sq)
""",
        lambda: [(r(4, 3), r(5, 3), p(3), p())],
    ),
    Case(
        "matern32",
        "x1[N, D], x2[M, D], ls: float = 0.7",
        """
d = torch.sqrt(((x1[:, None] - x2[None]) ** 2).sum(-1) + 1e-12) / ls
root3 = math.sqrt(3)
return (1 + root3 * d) * torch.exp(-root3 * d)
""",
        lambda: [(r(4, 3), r(5, 3), 0.7)],
    ),
    Case(
        "spherical_harmonics_2",
        "dirs[..., 3], coef[..., 9]",
        """
x, y, z = dirs[..., 0:1], dirs[..., 1:2], dirs[..., 2:3]
result = 0.28209479177387814 * coef[..., 0:1]
result = result - 0.4886025119029199 * y * coef[..., 1:2] + 0.4886025119029199 * z * coef[..., 2:3] - 0.4886025119029199 * x * coef[..., 3:4]
xx, yy, zz = x * x, y * y, z * z
xy, yz, xz = x * y, y * z, x * z
result = (
    result
    + 1.0925484305920792 * xy * coef[..., 4:5]
    - 1.0925484305920792 * yz * coef[..., 5:6]
    + 0.31539156525252005 * (2.0 * zz - xx - yy) * coef[..., 6:7]
    - 1.0925484305920792 * xz * coef[..., 7:8]
    + 0.5462742152960396 * (xx - yy) * coef[..., 8:9]
)
return result
""",
        lambda: [(r(4, 3), r(4, 9)), (r(2, 3, 3), r(2, 3, 9))],
    ),
    Case(
        "euler_zyx",
        "angles[N, 3]",
        """
c, s = angles.cos(), angles.sin()
cz, cy, cx = c.T
sz, sy, sx = s.T
row0 = torch.stack([cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx], 1)
row1 = torch.stack([sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx], 1)
row2 = torch.stack([-sy, cy * sx, cy * cx], 1)
return torch.stack([row0, row1, row2], 1)
""".replace(
            "cz, cy, cx = c.T\nsz, sy, sx = s.T",
            "cz, cy, cx = c.unbind(1)\nsz, sy, sx = s.unbind(1)",
        ),
        lambda: [(r(4, 3),)],
    ),
    Case(
        "volume_rendering",
        "sigma[R, S], rgb[R, S, 3], delta[R, S; const]",
        """
alpha = 1 - torch.exp(-F.relu(sigma) * delta)
ones = torch.ones((alpha.shape[0], 1), dtype=alpha.dtype, device=alpha.device)
trans = torch.cumprod(torch.cat([ones, 1 - alpha + 1e-10], -1), -1)[:, :-1]
weights = alpha * trans
return torch.sum(weights[..., None] * rgb, -2), weights.sum(-1)
""",
        lambda: [(p(3, 4), r(3, 4, 3), u(3, 4))],
        "color, acc",
    ),
    Case(
        "ray_sphere",
        "o[N, 3], d[N, 3], radius: float = 1.0",
        """
b = (o * d).sum(-1)
c = o.square().sum(-1) - radius ** 2
disc = b * b - c
hit = disc > 0
root = torch.sqrt(torch.where(hit, disc, torch.ones_like(disc)))
return torch.where(hit, -b - root, torch.zeros_like(b))
""",
        lambda: [(r(6, 3), r(6, 3), 1.0)],
    ),
    Case(
        "spherical_to_cartesian",
        "r, theta, phi",
        """
st = theta.sin()
return torch.stack(torch.broadcast_tensors(r * st * phi.cos(), r * st * phi.sin(), r * theta.cos()), dim=-1)
""",
        lambda: [(p(3, 4), r(3, 4), r(4))],
    ),
    Case(
        "angle_between",
        "u[..., D], v[..., D]",
        """
dot = (u * v).sum(-1)
nu, nv = torch.linalg.norm(u, dim=-1), torch.linalg.vector_norm(v, dim=-1)
return torch.arccos(torch.clip(dot / (nu * nv), -0.999, 0.999))
""",
        lambda: [(r(4, 3), r(4, 3)), (r(2, 4, 3), r(2, 4, 3))],
    ),
    Case(
        "triangle_area_normal",
        "verts[V, 3], faces[T, 3; index(V)]",
        """
v0, v1, v2 = verts[faces[:, 0]], verts[faces[:, 1]], verts[faces[:, 2]]
n = torch.linalg.cross(v1 - v0, v2 - v0)
area = n.norm(dim=1) / 2
return area, n / (2 * area[:, None])
""",
        lambda: [(r(5, 3), torch.tensor([[0, 1, 2], [1, 2, 3], [2, 3, 4]]))],
        "area, normal",
    ),
    Case(
        "umbrella_laplacian",
        "verts[V, 3], edges[E, 2; index(V)]",
        """
i, j = edges.unbind(1)
total = torch.zeros_like(verts).index_add(0, i, verts[j])
degree = torch.bincount(i, minlength=verts.shape[0]).clamp(min=1).unsqueeze(1)
return total / degree - verts
""",
        lambda: [(r(5, 3), torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4], [0, 2]]))],
    ),
    Case(
        "homogeneous_transform",
        "T[B, 4, 4], pts[B, N, 3]",
        """
ones = torch.ones_like(pts[..., :1])
h = torch.cat((pts, ones), -1)
out = torch.bmm(h, T.transpose(-1, -2))
return out[..., :3] / out[..., -1:]
""",
        lambda: [(r(2, 4, 4), r(2, 5, 3))],
    ),
    Case(
        "bilinear_weights",
        "img[H, W], xy[N, 2]",
        """
x, y = xy[:, 0], xy[:, 1]
x0, y0 = x.floor(), y.floor()
wx, wy = x - x0, y - y0
xi, yi = x0.long(), y0.long()
top = img[yi, xi] * (1 - wx) + img[yi, xi + 1] * wx
bottom = img[yi + 1, xi] * (1 - wx) + img[yi + 1, xi + 1] * wx
return top * (1 - wy) + bottom * wy
""",
        lambda: [(r(4, 5), 2.5 * u(6, 2))],
    ),
    Case(
        "kabsch_cov",
        "a[N, 3], b[N, 3], w[N, 1]",
        """
w = w / w.sum()
ca, cb = (w * a).sum(0, keepdim=True), (w * b).sum(0, keepdim=True)
H = (a - ca).transpose(0, 1) @ (w * (b - cb))
return torch.linalg.det(H), H
""",
        lambda: [(r(4, 3), r(4, 3), p(4, 1))],
        "det, H",
    ),
    Case(
        "sdf_box",
        "p[..., 3], b[3]",
        """
q = p.abs() - b
outside = torch.linalg.norm(torch.clamp(q, min=0.0) + 1e-6, dim=-1)
inside = torch.clamp(torch.amax(q, dim=-1), max=0.0)
return outside + inside
""",
        lambda: [(2 * r(4, 3), u(3))],
    ),
    Case(
        "smooth_min",
        "a, b, k: float = 0.5",
        """
h = torch.clamp(0.5 + 0.5 * (b - a) / k, 0.0, 1.0)
return torch.lerp(b, a, h) - k * h * (1 - h)
""",
        lambda: [(r(3, 4), r(3, 4), 0.5)],
    ),
)

SCANS = (
    Case(
        "ema_by_powers",
        "x[B, T], decay: float = 0.9",
        """
t = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device)
w = decay ** (t[:, None] - t[None, :])
w = torch.tril(w) * (1 - decay)
return x @ w.T
""",
        lambda: [(r(2, 5), 0.9)],
    ),
    Case(
        "discounted_returns",
        "rewards[B, T], gamma: float = 0.9",
        """
t = rewards.size(1)
g = torch.pow(gamma, torch.arange(t, dtype=rewards.dtype, device=rewards.device))
return torch.flip(torch.cumsum(torch.flip(rewards * g, [1]), 1), (1,)) / g
""",
        lambda: [(r(2, 5), 0.9)],
    ),
    Case(
        "selective_scan_log",
        "log_a[B, T, D], b[B, T, D]",
        """
a_star = torch.cumsum(log_a, dim=1)
log_h = a_star + torch.logcumsumexp(b - a_star, dim=1)
return log_h.exp()
""",
        lambda: [(-p(2, 4, 3), r(2, 4, 3))],
    ),
    Case(
        "cumprod_survival",
        "hazard[N, T]",
        """
surv = torch.cumprod(1 - hazard, dim=1)
shifted = F.pad(surv[:, :-1], (1, 0), value=1.0)
return hazard * shifted
""",
        lambda: [(u(3, 4),)],
    ),
    Case(
        "cox_partial",
        "risk[N], event[N; const]",
        """
log_cum = torch.logcumsumexp(risk.flip(0), 0).flip(0)
return -((risk - log_cum) * event).sum() / event.sum()
""",
        lambda: [(r(5), torch.tensor([1.0, 0, 1, 1, 0]).double())],
    ),
    Case(
        "running_max",
        "x[B, T]",
        "torch.cummax(x, dim=-1).values - x.cummin(-1)[0]",
        lambda: [(d(3, 5),)],
    ),
    Case(
        "segsum",
        "x[..., T]",
        """
cs = torch.cumsum(x, dim=-1)
seg = cs[..., :, None] - cs[..., None, :]
mask = torch.tril(torch.ones(x.size(-1), x.size(-1), device=x.device, dtype=torch.bool), diagonal=0)
return seg.masked_fill(~mask, -torch.inf).exp()
""",
        lambda: [(r(2, 4),), (r(4),)],
    ),
    Case(
        "finite_difference",
        "x[B, T]",
        "torch.diff(x, n=1, dim=-1).pow(2).mean(dim=-1)",
        lambda: [(r(2, 5),)],
    ),
    Case(
        "causal_conv1d_taps",
        "x[B, T, C], w[K, C]",
        """
pad = F.pad(x, (0, 0, 2, 0))
t = x.shape[1]
return pad[:, 0:t] * w[0] + pad[:, 1:t + 1] * w[1] + pad[:, 2:t + 2] * w[2]
""",
        lambda: [(r(2, 4, 3), r(3, 3))],
    ),
    Case(
        "token_shift",
        "x[B, T, C], mu[C]",
        """
prev = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
return x * mu + prev * (1 - mu)
""",
        lambda: [(r(2, 4, 3), r(3))],
    ),
    Case(
        "depthwise_conv",
        "x[B, C, T], weight[C, 1, K], bias[C]?",
        "F.conv1d(x, weight, bias, padding=1, groups=weight.shape[0])",
        lambda: [(r(2, 3, 5), r(3, 1, 3), r(3)), (r(2, 3, 5), r(3, 1, 3), None)],
    ),
    Case(
        "fft_mixer",
        "x[B, T, C]",
        "torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real",
        lambda: [(r(2, 4, 3),)],
    ),
    Case(
        "fft_conv",
        "x[B, T], k[T]",
        """
n = 2 * x.shape[-1]
y = torch.fft.irfft(torch.fft.rfft(x, n=n) * torch.fft.rfft(k, n=n), n=n)
return y[..., : x.shape[-1]]
""",
        lambda: [(r(2, 4), r(4))],
    ),
)

GATHERS = (
    Case(
        "segment_mean",
        "x[N, D], seg[N; int], count: int",
        """
out = torch.zeros(count, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, seg, x)
n = torch.bincount(seg, minlength=count).to(x.dtype).clamp(min=1)
return out / n[:, None]
""",
        lambda: [(r(6, 3), index(4, 6), 4)],
    ),
    Case(
        "scatter_mean",
        "src[N, D], idx[N; int], size: int",
        """
index = idx.unsqueeze(-1).expand_as(src)
out = src.new_zeros(size, src.size(1)).scatter_add(0, index, src)
cnt = torch.zeros_like(out).scatter_add(0, index, torch.ones_like(src))
return out / cnt.clamp(min=1)
""",
        lambda: [(r(6, 3), index(4, 6), 4)],
    ),
    Case(
        "scatter_softmax",
        "src[N], idx[N; int], groups: int",
        """
top = src.detach().new_full((groups,), -1e9).scatter_reduce(0, idx, src.detach(), reduce="amax")
e = (src - top[idx]).exp()
total = torch.zeros(groups, dtype=src.dtype, device=src.device).scatter_add(0, idx, e)
return e / total[idx]
""",
        lambda: [(r(6), index(3, 6), 3)],
    ),
    Case(
        "gcn_layer",
        "x[N, D], w[D, H], adj[N, N; const], bias[H]?",
        """
deg = adj.sum(-1).clamp(min=1e-6).pow(-0.5)
a_hat = deg[:, None] * adj * deg[None, :]
out = a_hat @ (x @ w)
return torch.relu(out if bias is None else out + bias)
""",
        lambda: [
            (r(4, 3), r(3, 5), u(4, 4).round(), r(5)),
            (r(4, 3), r(3, 5), u(4, 4).round(), None),
        ],
    ),
    Case(
        "gat_edge_scores",
        "h[N, D], edges[2, E; index(N)], a[W]",
        """
src, dst = edges[0], edges[1]
cat = torch.cat([h[src], h[dst]], dim=1)
return F.leaky_relu(cat.matmul(a), negative_slope=0.2)
""",
        lambda: [(r(4, 3), index(4, 2, 5), r(6))],
    ),
    Case(
        "embedding_bag_mean",
        "weight[V, D], tokens[B, T; index(V)], mask[B, T; bool]",
        """
e = F.embedding(tokens, weight)
keep = mask.unsqueeze(-1).to(e.dtype)
return (e * keep).sum(1) / keep.sum(1)
""",
        lambda: [(r(5, 3), index(5, 2, 4), m(2, 4))],
    ),
    Case(
        "vq_straight_through",
        "z[N, D], codebook[K, D]",
        """
d = z.pow(2).sum(1, keepdim=True) - 2 * z @ codebook.t() + codebook.pow(2).sum(1)
idx = d.argmin(dim=1)
zq = codebook[idx]
loss = F.mse_loss(zq.detach(), z) + 0.25 * F.mse_loss(zq, z.detach())
return z + (zq - z).detach(), loss, idx
""",
        lambda: [(r(4, 3), r(5, 3))],
        "quantized, loss, idx[N; int]",
    ),
    Case(
        "take_last",
        "x[B, T, D], lengths[B; int]",
        """
rows = torch.arange(x.shape[0], device=x.device)
return x[rows, lengths - 1]
""",
        lambda: [(r(3, 4, 2), torch.tensor([1, 4, 2]))],
    ),
    Case(
        "pointer_mix",
        "vocab[B, V], attn[B, T], ids[B, T; index(V)], gate[B, 1]",
        "(gate.sigmoid() * vocab).scatter_add(1, ids, (1 - gate.sigmoid()) * attn)",
        lambda: [(r(2, 5), r(2, 3), index(5, 2, 3), r(2, 1))],
    ),
    Case(
        "unfold_windows",
        "x[B, T], size: int = 3",
        "x.unfold(1, 3, 1).mean(-1)",
        lambda: [(r(2, 5), 3)],
    ),
    Case(
        "take_along",
        "x[B, T], order[B, K; index(T)]",
        "torch.take_along_dim(x, order, dim=1) * 2",
        lambda: [(r(2, 5), index(5, 2, 3))],
    ),
    Case(
        "index_fill",
        "x[N, D], rows[K; index(N)]",
        "x.index_fill(0, rows, 0.5).index_select(1, rows)",
        lambda: [(r(4, 4), torch.tensor([0, 2]))],
    ),
    Case(
        "nms_soft_scores",
        "scores[N], iou[N, N], sigma: float = 0.5",
        """
order = scores.argsort(descending=True)
s = scores[order]
decay = torch.exp(-iou[order][:, order].triu(diagonal=1) ** 2 / sigma)
return s * decay.prod(dim=0)
""",
        lambda: [(d(4), u(4, 4), 0.5)],
    ),
)

QUANTISATION = (
    Case(
        "fake_quant",
        "x, scale[; const], zero_point[; const], qmin: int = -8, qmax: int = 7",
        """
q = x / scale + zero_point
q = torch.clamp(q + (torch.round(q) - q).detach(), qmin, qmax)
return (q - zero_point) * scale
""",
        lambda: [(r(3, 4), 0.3 * p(), torch.zeros(()).double(), -8, 7)],
    ),
    Case(
        "lsq",
        "x, s, qn: int = -4, qp: int = 3",
        """
g = 1.0 / math.sqrt(x.numel() * qp)
s = (s - s * g).detach() + s * g
v = (x / s).clamp(qn, qp)
v = (v.round() - v).detach() + v
return v * s
""",
        lambda: [(r(3, 4), 0.4 * p(), -4, 3)],
    ),
    Case(
        "binary_ste",
        "x",
        """
clipped = torch.clamp(x, -1, 1)
return clipped + (torch.sign(x) - clipped).detach()
""",
        lambda: [(2 * r(3, 4),)],
    ),
    Case(
        "absmean_ternary",
        "w[O, I], eps: float = 1e-5",
        """
scale = 1.0 / w.abs().mean().clamp(min=eps)
q = (w * scale).round().clamp(-1, 1) / scale
return w + (q - w).detach()
""",
        lambda: [(r(3, 4), 1e-5)],
    ),
    Case(
        "surrogate_spike",
        "v, threshold: float = 1.0, beta: float = 4.0",
        """
soft = torch.sigmoid(beta * (v - threshold))
hard = (v >= threshold).to(v.dtype)
return hard.detach() + soft - soft.detach()
""",
        lambda: [(r(3, 4), 1.0, 4.0)],
    ),
    Case(
        "lif_step",
        "v, i, tau: float = 2.0, v_th: float = 1.0, alpha: float = 2.0",
        """
v = v + (i - v) / tau
x = v - v_th
soft = torch.atan(math.pi / 2 * alpha * x) / math.pi + 0.5
spike = soft + ((x > 0).double() - soft).detach()
v = v * (1 - spike.detach())
return spike, v
""",
        lambda: [(r(3, 4), r(3, 4), 2.0, 1.0, 2.0)],
        "spike, v_next",
    ),
    Case(
        "gradient_reversal_scale",
        "x, lam: float = 0.5",
        "(1 + lam) * x.detach() - lam * x",
        lambda: [(r(3, 4), 0.5)],
    ),
    Case(
        "pact",
        "x, alpha, bits: int = 4",
        """
y = 0.5 * (x.abs() - (x - alpha).abs() + alpha)
scale = (2 ** bits - 1) / alpha
q = torch.round(y * scale) / scale
return y + (q - y).detach()
""",
        lambda: [(r(3, 4), p(), 4)],
    ),
)

SYNTAX = (
    Case(
        "scalars_on_the_left",
        "x, n: int = 3",
        "2 ** x + 1 - n * x / 4 + 1 / (3 + x * x) - (-x) + n ** 2 * x + 7 // 2",
        lambda: [(r(3, 4), 3)],
    ),
    Case(
        "keywords_in_odd_order",
        "x[B, T, D]",
        "torch.sum(keepdim=True, dim=1, input=x) * torch.softmax(dim=-1, input=x)",
        lambda: [(r(2, 3, 4),)],
    ),
    Case(
        "functions_of_methods",
        "x, y",
        "torch.add(x, y, alpha=2).sub(y, alpha=3).mul(torch.neg(y)).div(torch.square(y) + 2).pow(2)",
        lambda: [(r(3, 4), r(4))],
    ),
    Case(
        "steps_and_ends",
        "x[B, T, D]",
        "x[::2, 1:-1, ::3].sum() + x[-1, ..., -2:].mean() + x[:, [0, 2]].prod(dim=1).sum() + x[0, 0, 0]",
        lambda: [(r(3, 4, 5),)],
    ),
    Case(
        "none_and_dots",
        "x[..., D], y[D]",
        "(x[..., None, :] * y[None, :, None])[..., 0, :].sum(dim=-1, keepdim=True) + x[..., :1]",
        lambda: [(r(3, 4), r(4)), (r(2, 3, 4), r(4))],
    ),
    Case(
        "reused_names",
        "x, y",
        """
x = x * y
y = x + y
x = torch.tanh(x) * y
x, y = y, x
return x * y - x
""",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "augmented",
        "x, y",
        """
h = x * y
h += x
h *= 2
h = h - y
h /= 3
return h
""",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "optional_everywhere",
        "x[N, D], weight[D]?, bias[D]?, scale?, residual[N, D]?",
        """
y = x if weight is None else x * weight
y = y + bias if bias is not None else y
y = y * scale if scale is not None else 2 * y
return y + residual
""",
        lambda: [
            (r(3, 4), r(4), r(4), r(), r(3, 4)),
            (r(3, 4), None, r(4), None, r(3, 4)),
            (r(3, 4), None, None, r(), None),
            (r(3, 4), None, None, None, None),
        ],
    ),
    Case(
        "both_or_none",
        "x[N, D], a[D]?, b[D]?",
        """
if a is not None and b is not None:
    out = x * a + b
elif a is not None:
    out = x * a
else:
    out = torch.sin(x)
return out
""",
        lambda: [
            (r(3, 4), r(4), r(4)),
            (r(3, 4), r(4), None),
            (r(3, 4), None, r(4)),
            (r(3, 4), None, None),
        ],
    ),
    Case(
        "elif_on_strings",
        "x, mode: str = 'exp', order: int = 2",
        """
if mode == 'exp':
    y = x.exp()
elif mode in ('sin', 'sine'):
    y = torch.sin(x)
elif order > 1 and not mode == 'linear':
    y = x ** order
else:
    y = x
return y.sum()
""",
        lambda: [
            (r(3, 4), "exp", 2),
            (r(3, 4), "sine", 2),
            (r(3, 4), "z", 3),
            (r(3, 4), "linear", 3),
        ],
    ),
    Case(
        "flag_and_dim",
        "x[N, D], dim: int = -1, keepdim: bool = False, squared: bool = False",
        """
n = (x * x).sum(dim=dim, keepdim=keepdim)
return n if squared else torch.sqrt(n)
""",
        lambda: [
            (r(3, 4), -1, False, False),
            (r(3, 4), 0, True, True),
            (r(3, 4), 0, True, False),
        ],
    ),
    Case(
        "einsum_kinds",
        "a[I, J], b[J, K], c[I], s[K, K]",
        """
one = torch.einsum('ij,jk,i->ik', a, b, c)
two = torch.einsum('ij->i', a) + torch.einsum('i,i->i', c, c)
tr = torch.einsum('kk->k', s)
return one @ tr + two + torch.einsum('ij,ij->', a, a)
""",
        lambda: [(r(2, 3), r(3, 4), r(2), r(4, 4))],
    ),
    Case(
        "einsum_dots",
        "x[..., N, D], w[D, E], y[M]",
        "torch.einsum('...nd,de->...ne', x, w).sum((-2, -1))[..., None] * torch.einsum('m->m', y)",
        lambda: [(r(2, 3, 4), r(4, 5), r(2)), (r(3, 4), r(4, 5), r(2))],
    ),
    Case(
        "einsum_implicit",
        "a[I, J], b[J, K]",
        "torch.einsum('ij,jk', a, b) + torch.einsum('ba', a.T @ a)[0, 0]",
        lambda: [(r(2, 3), r(3, 4))],
    ),
    Case(
        "zero_dim_mix",
        "x, s, k[; int]",
        "x * s + k * s.exp() - (x > 0) * s + torch.where(x > s, k, 1) * x",
        lambda: [(r(3, 4), r(), torch.tensor(3))],
    ),
    Case(
        "bool_arithmetic",
        "x[N, D], mask[N, D; bool], lengths[N; int]",
        """
pos = torch.arange(x.shape[1], device=x.device)
valid = (pos < lengths[:, None]) & ~mask
total = (x * valid).sum(1)
return total / valid.sum(1).clamp(min=1) + mask.float().mean()
""",
        lambda: [(r(3, 4), m(3, 4), torch.tensor([1, 4, 2]))],
    ),
    Case(
        "complex_mix",
        "z[N; complex], x[N]",
        """
w = z * torch.exp(1j * x) + 2
return w.real * z.abs() + torch.angle(w) + (w * w.conj()).real
""",
        lambda: [(z(4), r(4))],
    ),
    Case(
        "complex_out",
        "z[N, M; complex], w[M; complex]",
        "(z @ w) / (1 + z.abs().sum(-1)) + torch.polar(z.real[:, 0].exp(), z.imag[:, 0])",
        lambda: [(z(3, 4), z(4))],
    ),
    Case(
        "linalg_mix",
        "a[N, M], b[N, K]",
        """
m = a @ a.mT + 3 * torch.eye(a.shape[0], dtype=a.dtype, device=a.device)
L = torch.linalg.cholesky(m)
x = torch.linalg.solve_triangular(L, b, upper=False)
return x.square().sum() + torch.linalg.slogdet(m)[1] + torch.logdet(m) + torch.linalg.inv(m).trace()
""",
        lambda: [(r(3, 3), r(3, 2))],
    ),
    Case(
        "mvn_logprob",
        "x[..., D], mu[D], L[D, D]",
        """
diff = (x - mu).unsqueeze(-1)
sol = torch.linalg.solve_triangular(L.tril(), diff, upper=False).squeeze(-1)
logdet = L.diagonal().abs().log().sum()
return -0.5 * (sol ** 2).sum(-1) - logdet - 0.5 * x.shape[-1] * math.log(2 * math.pi)
""",
        lambda: [(r(4, 3), r(3), spd(3, 3)), (r(2, 4, 3), r(3), spd(3, 3))],
    ),
    Case(
        "special_functions",
        "x[; positive]",
        "torch.special.gammaln(x) + torch.digamma(x) + torch.special.erfcx(x) + torch.special.i0e(x) + torch.special.log_ndtr(-x)",
        lambda: [(p(3, 4),)],
    ),
    Case(
        "linspace_basis",
        "r[N], count: int = 5, cutoff: float = 3.0",
        """
centers = torch.linspace(0, cutoff, count, dtype=r.dtype, device=r.device)
width = cutoff / count
rbf = torch.exp(-((r.unsqueeze(-1) - centers) / width) ** 2)
envelope = 0.5 * (torch.cos(r * math.pi / cutoff) + 1.0) * (r < cutoff)
return rbf * envelope.unsqueeze(-1)
""",
        lambda: [(2 * p(4), 5, 3.0)],
    ),
    Case(
        "fourier_features",
        "x[..., D], B[M, D; const]",
        """
proj = 2 * torch.pi * x @ B.t()
return torch.cat([proj.sin(), proj.cos()], dim=-1)
""",
        lambda: [(r(3, 2), r(4, 2)), (r(2, 3, 2), r(4, 2))],
    ),
    Case(
        "sinusoidal_time",
        "t[N], dim: int = 6, max_period: float = 100.0",
        """
half = dim // 2
freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=t.dtype, device=t.device) / half)
args = t[:, None] * freqs[None]
return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
""",
        lambda: [(p(4), 6, 100.0)],
    ),
    Case(
        "lora",
        "x[..., I], w[O, I], a[R, I], b[O, R], bias[O]?, scaling: float = 2.0",
        "F.linear(x, w, bias) + scaling * (x @ a.T @ b.T)",
        lambda: [
            (r(2, 3, 4), r(5, 4), r(2, 4), r(5, 2), r(5), 2.0),
            (r(3, 4), r(5, 4), r(2, 4), r(5, 2), None, 2.0),
        ],
    ),
    Case(
        "lstm_cell",
        "x[B, I], h[B, H], c[B, H], w_ih[G, I], w_hh[G, H], b_ih[G]?, b_hh[G]?",
        """
gates = F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)
i, f, g, o = gates.chunk(4, 1)
c_next = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
return torch.sigmoid(o) * torch.tanh(c_next), c_next
""",
        lambda: [
            (r(2, 3), r(2, 4), r(2, 4), r(16, 3), r(16, 4), r(16), r(16)),
            (r(2, 3), r(2, 4), r(2, 4), r(16, 3), r(16, 4), None, None),
        ],
        "h_next, c_next",
    ),
    Case(
        "squeeze_excite",
        "x[B, C, H, W], w1[R, C], w2[C, R]",
        """
s = x.mean(dim=(-1, -2))
s = torch.sigmoid(torch.relu(s @ w1.t()) @ w2.t())
return x * s.view(s.size(0), s.size(1), 1, 1)
""",
        lambda: [(r(2, 3, 4, 2), r(2, 3), r(3, 2))],
    ),
    Case(
        "patchify",
        "img[B, C, H, W], p: int = 2",
        """
B, C, H, W = img.shape
h, w = H // p, W // p
x = img.reshape(B, C, h, p, w, p)
x = torch.einsum('nchpwq->nhwpqc', x)
return x.reshape(B, h * w, p * p * C)
""",
        lambda: [(r(2, 3, 4, 2), 2)],
    ),
    Case(
        "pixel_shuffle_manual",
        "x[B, C, H, W], r: int = 2",
        """
b, c, h, w = x.shape
x = x.view(b, c // (r ** 2), r, r, h, w)
return x.permute(0, 1, 4, 2, 5, 3).reshape(b, -1, h * r, w * r)
""",
        lambda: [(r(2, 4, 3, 2).contiguous(), 2)],
    ),
    Case(
        "bilinear_pool_signed",
        "x[B, N, D], y[B, N, E]",
        """
z = torch.einsum('bnd,bne->bde', x, y).flatten(start_dim=1)
z = z.sign() * (z.abs() + 1e-5).sqrt()
return F.normalize(z, p=2, dim=-1)
""",
        lambda: [(r(2, 3, 4), r(2, 3, 5))],
    ),
    Case(
        "gem_pool",
        "x[B, C, H, W], p, eps: float = 1e-6",
        "x.clamp(min=eps).pow(p).mean((-2, -1)).pow(1.0 / p)",
        lambda: [(p(2, 3, 4, 2), 2 * p(1), 1e-6)],
    ),
    Case(
        "drop_path",
        "x[B, T, D], drop: float = 0.2",
        """
shape = (x.shape[0],) + (1,) * (x.ndim - 1)
mask = x.new_empty(shape).bernoulli_(1 - drop)
return x * mask / (1 - drop)
""",
        lambda: [(r(4, 3, 2), 0.2)],
    ),
    Case(
        "functional_dropout_eval",
        "x, p: float = 0.5",
        "F.dropout(x * 2, p, training=False) + x",
        lambda: [(r(3, 4), 0.5)],
    ),
    Case(
        "tile_repeat",
        "x[N, D], y[D]",
        "x.repeat(1, 2) * torch.tile(y, (2,)) + torch.cat([y, y]).repeat(x.shape[0], 1)",
        lambda: [(r(3, 4), r(4))],
    ),
    Case(
        "dtype_arguments",
        "x[N, D], w[D; const]",
        "F.softmax(x, dim=-1, dtype=torch.float64) * x.sum(dim=1, keepdim=True, dtype=torch.float64) + torch.mean(w, dtype=x.dtype)",
        lambda: [(r(3, 4), r(4))],
    ),
    Case(
        "stacked_outputs",
        "x[N, D]",
        """
mean = x.mean(0)
centered = x - mean
var, ids = centered.square().mean(0).sort(descending=True)
return mean, var, ids
""",
        lambda: [(d(4, 3),)],
        "mean, var, ids[D; int]",
    ),
    Case(
        "meshgrid_outer",
        "a[N], b[M]",
        """
A, B = torch.meshgrid(a, b, indexing='ij')
return torch.outer(a, b) + torch.ger(a, b) * A + B * a[:, None]
""",
        lambda: [(r(3), r(4))],
    ),
    Case(
        "avg_max_pool",
        "x[B, C, H, W]",
        "F.avg_pool2d(x, 2) + F.max_pool2d(x, kernel_size=2, stride=2) + F.adaptive_avg_pool2d(x, 1)",
        lambda: [(d(2, 3, 4, 4),)],
    ),
    Case(
        "interpolated",
        "x[B, C, H, W]",
        "F.interpolate(x, scale_factor=2, mode='nearest').mean((2, 3))",
        lambda: [(r(2, 3, 4, 2),)],
    ),
    Case(
        "unflatten_heads",
        "x[B, T, D], heads: int",
        "x.unflatten(-1, (heads, -1)).swapaxes(1, 2).movedim(-1, 0).sum(dim=0)",
        lambda: [(r(2, 3, 4), 2)],
    ),
    Case(
        "chained_where",
        "x",
        """
small = x.abs() < 1e-3
safe = torch.where(small, torch.ones_like(x), x)
return torch.where(small, 1 - x ** 2 / 6, torch.sin(safe) / safe)
""",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "stable_logit_diff",
        "a, b",
        "torch.logaddexp(a, b) - torch.logaddexp2(a, b) * math.log(2) + torch.hypot(a, b) + torch.atan2(a, b) + torch.fmax(a, b) - torch.copysign(a, b)",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "sums_of_lists",
        "x[N, D], y[N, D]",
        """
parts = [x, y, x * y]
h = torch.cat(parts, dim=-1)
s = torch.stack(parts).sum(0)
return h.sum(-1) + s.mean(-1)
""",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "split_sizes",
        "x[N, D], a: int, b: int",
        """
p, q, rest = torch.split(x, [a, b, x.shape[-1] - a - b], dim=-1)
return torch.cat([q * 2, p.sin()], -1).sum(-1) + rest.prod(-1)
""",
        lambda: [(r(3, 6), 2, 3)],
    ),
    Case(
        "assert_free_numel",
        "x[..., D]",
        "x.sum() / x.numel() + x.norm() / math.sqrt(x.nelement()) + x.square().sum() / x[..., 0].numel()",
        lambda: [(r(3, 4),), (r(2, 3, 4),)],
    ),
    Case(
        "dims_tuple_attribute",
        "x[A, B, C], dims: tuple[int, ...] = (0, 2), keepdim: bool = False",
        "x.sum(dims, keepdim=keepdim) + torch.amax(x, dims, keepdim) - torch.logsumexp(x, dim=dims, keepdim=keepdim)",
        lambda: [(d(2, 3, 4), (0, 2), False), (d(2, 3, 4), (1,), True)],
    ),
    Case(
        "ntk_scalar_math",
        "x, depth: int = 3, act: str = 'relu'",
        """
gain = math.sqrt(2.0) if act == 'relu' else 1.0
k = gain / max(depth, 1) ** 0.5
return k * (F.relu(x) if act == 'relu' else torch.tanh(x)) * min(1.0, 2 * k)
""",
        lambda: [(r(3, 4), 3, "relu"), (r(3, 4), 3, "tanh")],
    ),
)

OPS: tuple[Case, ...] = (
    *(*ACTIVATIONS, *NORMS, *LOSSES, *ATTENTION, *GEOMETRY),
    *(*SCANS, *GATHERS, *QUANTISATION, *SYNTAX),
)

# Their gradients are deliberately not their derivatives.
SURROGATES = frozenset(
    {"gumbel_softmax_hard", "spectral_norm_power", "vq_straight_through", "fake_quant"}
    | {"lsq", "binary_ste", "absmean_ternary", "surrogate_spike", "lif_step", "pact"}
    | {"gradient_reversal_scale", "supcon", "attention_dropout", "drop_path"}
)

# PyTorch itself has no second derivative of their forward.
ONCE = frozenset({"gumbel_vq", "chamfer_cdist", "sdpa_call", "sdpa_mask"})
