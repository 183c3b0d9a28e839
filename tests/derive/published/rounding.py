"""Rounding that passes gradients straight through, as libraries write it."""

from tests.derive.cases import Case, p, r

ROUNDING = (
    Case(
        "lsq_plus",
        "x, s[1], beta[1], qn: int = -8, qp: int = 7",
        """
g = 1.0 / math.sqrt(x.numel() * qp)
s_scale = s * g + (s - s * g).detach()
b_scale = beta * g + (beta - beta * g).detach()
xq = torch.clamp((x - b_scale) / s_scale, qn, qp)
xr = (xq.round() - xq).detach() + xq
return xr * s_scale + b_scale
""",
        lambda: [(r(3, 4), p(1), r(1), -8, 7)],
    ),
    Case(
        "pact_dorefa_act",
        "x[N, C], alpha, k: int = 4",
        """
n = 2 ** k - 1
y = 0.5 * (x.abs() - (x - alpha).abs() + alpha)
q = y * n / alpha
q = q + (q.round() - q).detach()
return q * alpha / n
""",
        lambda: [(r(3, 4), p(), 4)],
    ),
    Case(
        "log2_quant",
        "w, bits: int = 4",
        """
e = torch.log2(w.abs().clamp(min=1e-6))
scale = e.max().detach().ceil()
q = torch.clamp(torch.round(scale - e), 0, 2 ** (bits - 1) - 1)
wq = torch.sign(w) * torch.pow(2.0, scale - q)
return w + (wq - w).detach()
""",
        lambda: [(r(3, 4), 4)],
    ),
    Case(
        "ttq_ternary",
        "w[O, I], wp, wn, t: float = 0.1",
        """
delta = t * w.abs().max().detach()
pos = (w > delta).to(w.dtype)
neg = (w < -delta).to(w.dtype)
return w + (pos - neg - w).detach() + pos * (wp - 1) - neg * (wn - 1)
""",
        lambda: [(r(3, 4), p(), p(), 0.1)],
    ),
    Case(
        "binary_connect_xnor",
        "x[N, K], w[M, K]",
        """
alpha = w.abs().mean(dim=1, keepdim=True)
wb = torch.sign(w).detach() - torch.clamp(w, -1.0, 1.0).detach() + torch.clamp(w, -1.0, 1.0)
xb = torch.sign(x).detach() - x.clamp(-1, 1).detach() + x.clamp(-1, 1)
return F.linear(xb, wb * alpha)
""",
        lambda: [(r(2, 4), r(3, 4))],
    ),
    Case(
        "gumbel_vq",
        "z[N, D], codebook[K, D], g[N, K; const], tau: float = 1.0",
        """
logits = -torch.cdist(z, codebook).pow(2)
y_soft = ((logits + g) / tau).softmax(-1)
ind = y_soft.argmax(-1, keepdim=True)
y_hard = torch.zeros_like(logits).scatter_(-1, ind, 1.0)
y = y_hard - y_soft.detach() + y_soft
avg = y_soft.mean(0)
perplexity = torch.exp(-torch.sum(avg * torch.log(avg + 1e-10)))
return y @ codebook, perplexity
""",
        lambda: [(r(3, 4), r(5, 4), r(3, 5), 1.0)],
        "quantized, perplexity",
    ),
    Case(
        "rvq_stage",
        "x[N, D], codebook[K, D], beta: float = 0.25",
        """
d = x.pow(2).sum(1, keepdim=True) - 2 * x @ codebook.t() + codebook.pow(2).sum(1)
idx = d.argmin(dim=1)
q = F.embedding(idx, codebook)
loss = F.mse_loss(q, x.detach()) + beta * F.mse_loss(x, q.detach())
quant = x + (q - x).detach()
return quant, loss, x - q.detach()
""",
        lambda: [(r(3, 4), r(5, 4), 0.25)],
        "quant, loss, residual",
    ),
    Case(
        "learned_lookup_quant",
        "w[N], levels[K], tau: float = 0.1",
        """
dist = (w.unsqueeze(-1) - levels).abs()
soft = torch.softmax(-dist / tau, dim=-1)
hard = F.one_hot(dist.argmin(-1), levels.shape[0]).to(w.dtype)
assign = soft + (hard - soft).detach()
return assign @ levels
""",
        lambda: [(r(4), r(3), 0.1)],
    ),
    Case(
        "smooth_quant_linear",
        "x[N, K], w[M, K], alpha: float = 0.5",
        """
act_max = x.abs().amax(0).detach()
w_max = w.abs().amax(0).detach()
s = (act_max.pow(alpha) / w_max.pow(1 - alpha)).clamp(min=1e-5)
xs = x / s
ws = w * s
step = ws.abs().amax(dim=1, keepdim=True) / 127
wq = ws + ((ws / step).round().mul(step) - ws).detach()
return xs @ wq.t()
""",
        lambda: [(r(2, 4), r(3, 4), 0.5)],
    ),
    Case(
        "fake_quant_affine",
        "x, scale, zero_point, qmin: int = 0, qmax: int = 255",
        """
inv = 1.0 / scale
t = x * inv + zero_point
q = torch.clamp(t + (torch.round(t) - t).detach(), qmin, qmax)
return (q - zero_point) * scale
""",
        lambda: [(r(3, 4), p(), p(), 0, 255)],
    ),
)
