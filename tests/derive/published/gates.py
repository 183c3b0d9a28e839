"""Activations, bases and norms of later papers, as their code writes them."""

import torch

from tests.derive.cases import Case, p, r

GATES = (
    Case(
        "clipped_gelu",
        "x[..., D], min: float = -0.5, max: float = 0.8",
        "torch.clip(F.gelu(x, approximate='tanh'), min, max)",
        lambda: [(r(3, 4), -0.5, 0.8), (r(2, 3, 4), -10.0, 10.0)],
    ),
    Case(
        "aria2",
        "x, a: float = 1.5, b: float = 2.0",
        "x * torch.pow(1 + torch.exp(-b * x), -a)",
        lambda: [(r(3, 4), 1.5, 2.0)],
    ),
    Case(
        "elish",
        "x",
        "torch.where(x >= 0, x * torch.sigmoid(x), (torch.exp(x) - 1) * x.sigmoid())",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "isrlu",
        "x[N, C], alpha[C]",
        "torch.where(x < 0, x * torch.rsqrt(1 + alpha * x.pow(2)), x)",
        lambda: [(r(3, 4), p(4))],
    ),
    Case(
        "soft_shrink_channel",
        "x[N, C, L], theta[C]",
        "torch.sign(x) * F.relu(x.abs() - F.softplus(theta)[None, :, None])",
        lambda: [(3 * r(2, 3, 4), r(3))],
    ),
    Case(
        "aglu",
        "x[..., D], lambd[1], kappa[1]",
        """
lam = torch.clamp(lambd, min=0.0001)
return torch.exp((1 / lam) * F.softplus((kappa * x) - torch.log(lam), beta=-1.0))
""",
        lambda: [(r(2, 3, 4), p(1), p(1))],
    ),
    Case(
        "dynamic_relu_b",
        "x[N, C, H, W], theta[N, K]",
        """
channels = x.shape[1]
relu_coefs = 2 * torch.sigmoid(theta).view(-1, channels, 4) - 1
lambdas = torch.tensor([1.0, 1.0, 0.5, 0.5], dtype=x.dtype, device=x.device)
init_v = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=x.dtype, device=x.device)
relu_coefs = relu_coefs * lambdas + init_v
x_perm = x.permute(2, 3, 0, 1).unsqueeze(-1)
output = x_perm * relu_coefs[:, :, :2] + relu_coefs[:, :, 2:]
return torch.max(output, dim=-1)[0].permute(2, 3, 0, 1)
""",
        lambda: [(r(2, 3, 2, 2), r(2, 12))],
    ),
    Case(
        "aptx",
        "x[N, C], alpha: float = 1.0, beta[C]?, gamma[C]?",
        "(alpha + torch.tanh(x * beta)) * (x * gamma)",
        lambda: [(r(3, 4), 1.0, p(4), r(4)), (r(3, 4), 1.0, None, None)],
    ),
    Case(
        "smooth_step",
        "x, gamma: float = 1.0",
        """
poly = -2 / gamma ** 3 * x ** 3 + 3 / (2 * gamma) * x + 0.5
return torch.where(x <= -gamma / 2, torch.zeros_like(x), torch.where(x >= gamma / 2, torch.ones_like(x), poly))
""",
        lambda: [(r(3, 4), 1.0)],
    ),
    Case(
        "entmax15",
        "logits[..., C]",
        """
x = logits - logits.max(dim=-1, keepdim=True).values
x = x / 2
x_srt = torch.sort(x, descending=True, dim=-1)[0]
rho = torch.arange(1, x.size(-1) + 1, device=x.device, dtype=x.dtype)
mean = x_srt.cumsum(-1) / rho
mean_sq = (x_srt ** 2).cumsum(-1) / rho
ss = rho * (mean_sq - mean ** 2)
delta = (1 - ss) / rho
tau = mean - torch.sqrt(torch.clamp(delta, 0))
support_size = (tau <= x_srt).sum(-1).unsqueeze(-1)
tau_star = tau.gather(-1, support_size - 1)
return torch.clamp(x - tau_star, min=0) ** 2
""",
        lambda: [(0.3 * r(3, 4),), (3 * r(3, 6),)],
    ),
    Case(
        "gumbel_sigmoid",
        "logits[N, D], uniform[N, D; const], tau: float = 0.7, hard: bool = True",
        """
noise = torch.log(uniform) - torch.log1p(-uniform)
y_soft = torch.sigmoid((logits + noise) / tau)
y_hard = (y_soft > 0.5).to(logits.dtype)
return y_hard - y_soft.detach() + y_soft if hard else y_soft
""",
        lambda: [
            (r(3, 4), 0.5 * p(3, 4), 0.7, True),
            (r(3, 4), 0.5 * p(3, 4), 0.7, False),
        ],
    ),
    Case(
        "kan_b_splines",
        "x[N, I], grid[I, G; const], coeff[O, I, K]",
        """
x = x.unsqueeze(-1)
bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
bases = (x - grid[:, :-2]) / (grid[:, 1:-1] - grid[:, :-2]) * bases[:, :, :-1] + (grid[:, 2:] - x) / (grid[:, 2:] - grid[:, 1:-1]) * bases[:, :, 1:]
bases = (x - grid[:, :-3]) / (grid[:, 2:-1] - grid[:, :-3]) * bases[:, :, :-1] + (grid[:, 3:] - x) / (grid[:, 3:] - grid[:, 1:-2]) * bases[:, :, 1:]
return F.linear(bases.contiguous().view(x.size(0), -1), coeff.view(coeff.size(0), -1))
""",
        lambda: [
            (
                r(5, 2),
                torch.linspace(-2, 2, 7, dtype=torch.double).repeat(2, 1),
                r(3, 2, 4),
            )
        ],
    ),
    Case(
        "chebyshev_kan",
        "x[N, I], coeffs[I, O, P]",
        """
degree = coeffs.shape[-1]
x = torch.tanh(x)
x = x.view(-1, x.shape[-1], 1).expand(-1, -1, degree)
x = x.acos()
x = x * torch.arange(0, degree, 1, device=x.device)
x = x.cos()
return torch.einsum('bid,iod->bo', x, coeffs)
""",
        lambda: [(r(3, 4), r(4, 2, 3))],
    ),
)

LATER_NORMS = (
    Case(
        "dynamic_tanh",
        "x[..., D], alpha[1], weight[D], bias[D]?",
        "torch.tanh(alpha * x) * weight + bias",
        lambda: [(r(2, 3, 4), p(1), r(4), r(4)), (r(3, 4), p(1), r(4), None)],
    ),
    Case(
        "ada_ln_zero",
        "x[B, S, D], h[B, S, D], c[B, E], weight[K, E], bias[K]?, eps: float = 1e-6",
        """
shift, scale, gate = F.linear(F.silu(c), weight, bias).chunk(3, dim=1)
modulated = F.layer_norm(h, (h.shape[-1],), eps=eps) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
return x + gate.unsqueeze(1) * modulated
""",
        lambda: [
            (r(2, 3, 4), r(2, 3, 4), r(2, 5), r(12, 5), r(12), 1e-6),
            (r(2, 3, 4), r(2, 3, 4), r(2, 5), r(12, 5), None, 1e-6),
        ],
    ),
    Case(
        "batch_norm_with_stats",
        "x[N, C, H, W], weight[C]?, bias[C]?, eps: float = 1e-5",
        """
var, mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=False)
invstd = torch.rsqrt(var + eps)
y = (x - mean[None, :, None, None]) * invstd.view(1, -1, 1, 1)
if weight is not None:
    y = y * weight.view(1, -1, 1, 1)
if bias is not None:
    y = y + bias.view(1, -1, 1, 1)
return y, mean, invstd
""",
        lambda: [
            (r(2, 3, 2, 2), r(3), r(3), 1e-5),
            (r(2, 3, 2, 2), None, r(3), 1e-5),
        ],
        "y, mean, invstd",
    ),
    Case(
        "rms_norm_gated_grouped",
        "x[..., D], z[..., D]?, weight[D], groups: int = 2, eps: float = 1e-5",
        """
x = x * F.silu(z) if z is not None else x
x_group = x.unflatten(-1, (groups, -1))
rstd = 1 / torch.sqrt(x_group.square().mean(dim=-1, keepdim=True) + eps)
return (x_group * rstd).flatten(-2) * weight
""",
        lambda: [
            (r(2, 3, 4), r(2, 3, 4), r(4), 2, 1e-5),
            (r(3, 4), None, r(4), 2, 1e-5),
        ],
    ),
    Case(
        "masked_channel_norm",
        "x[B, T, C], mask[B, T; bool], gamma[C], beta[C], eps: float = 1e-5",
        """
m = mask.unsqueeze(-1).to(x.dtype)
count = m.sum(dim=(0, 1)).clamp_min(1.0)
mean = (x * m).sum(dim=(0, 1)) / count
var = (((x - mean) * m) ** 2).sum(dim=(0, 1)) / count
return ((x - mean) / (var + eps).sqrt() * gamma + beta) * m
""",
        lambda: [
            (
                r(2, 3, 4),
                torch.tensor([[True, True, False], [True, False, True]]),
                r(4),
                r(4),
                1e-5,
            )
        ],
    ),
    Case(
        "local_response_norm",
        "x[N, C, L], size: int = 3, alpha: float = 0.1, beta: float = 0.75, k: float = 1.0",
        """
div = F.pad(x.pow(2), (0, 0, size // 2, (size - 1) // 2)).unfold(1, size, 1).mean(-1)
return x / div.mul(alpha).add(k).pow(beta)
""",
        lambda: [(r(2, 4, 3), 3, 0.1, 0.75, 1.0)],
    ),
    Case(
        "muon_newton_schulz",
        "G[N, M], eps: float = 1e-7",
        """
a, b, c = 3.4445, -4.7750, 2.0315
X = G / (G.norm() + eps)
A = X @ X.mT
B = b * A + c * A @ A
X = a * X + B @ X
A = X @ X.mT
B = torch.addmm(A, A, A, beta=b, alpha=c)
return torch.addmm(X, B, X, beta=a)
""",
        lambda: [(r(2, 3), 1e-7)],
    ),
    Case(
        "modulate_demodulate",
        "weight[O, I, K, K], style[N, I], demodulate: bool = True",
        """
w = weight.unsqueeze(0) * style.reshape(style.shape[0], 1, -1, 1, 1)
if demodulate:
    dcoefs = (w.square().sum(dim=[2, 3, 4]) + 1e-8).rsqrt()
    w = w * dcoefs.reshape(style.shape[0], -1, 1, 1, 1)
return w
""",
        lambda: [(r(3, 2, 2, 2), r(4, 2), True), (r(3, 2, 2, 2), r(4, 2), False)],
    ),
    Case(
        "minibatch_stddev",
        "x[N, C, H, W], group: int = 2",
        """
y = x.reshape(group, -1, *x.shape[1:])
y = y - y.mean(dim=0)
y = y.square().mean(dim=0)
y = (y + 1e-8).sqrt()
y = y.mean(dim=[1, 2, 3], keepdim=True)
y = y.repeat(group, 1, x.shape[2], x.shape[3])
return torch.cat([x, y], dim=1)
""",
        lambda: [(r(4, 3, 2, 2), 2)],
    ),
    Case(
        "ngpt_residual",
        "x[..., D], h[..., D], alpha[D], alpha_init: float = 0.05, alpha_scale: float = 0.03",
        """
lr = torch.abs(alpha * (alpha_init / alpha_scale))
a = x / x.norm(p=2, dim=-1, keepdim=True)
b = h / h.norm(p=2, dim=-1, keepdim=True)
res = a + lr * (b - a)
return res / res.norm(p=2, dim=-1, keepdim=True)
""",
        lambda: [(r(2, 3, 4), r(2, 3, 4), r(4), 0.05, 0.03)],
    ),
)
