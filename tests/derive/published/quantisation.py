"""Quantisation and surrogate gradients as libraries write them."""

import torch

from tests.derive.cases import Case, index, p, r

QUANTISATION = (
    Case(
        "dorefa_weight",
        "x, k: int = 2",
        """
weight = torch.tanh(x)
max_w = torch.max(torch.abs(weight)).detach()
weight = weight / 2 / max_w + 0.5
n = float(2 ** k - 1)
weight_q = weight + (torch.round(weight * n) / n - weight).detach()
return 2 * weight_q - 1
""",
        lambda: [(r(3, 4), 2)],
    ),
    Case(
        "fake_quant_channel",
        "w[O, I], bits: int = 4",
        """
qmax = 2 ** (bits - 1) - 1
scale = w.abs().amax(dim=1, keepdim=True).clamp(min=1e-5) / qmax
q = torch.clamp(torch.round(w / scale), -qmax - 1, qmax)
dq = q * scale
return w + (dq - w).detach()
""",
        lambda: [(r(3, 4), 4)],
    ),
    Case(
        "nf4_dequant",
        "codes[N, B; index(16)], absmax[N], table[16; const]",
        "(table[codes] * absmax[:, None]).flatten()",
        lambda: [(index(16, 3, 4), p(3), r(16))],
    ),
    Case(
        "bitnet_linear",
        "x[..., K], w[M, K], eps: float = 1e-5",
        """
x_norm = F.layer_norm(x, (x.shape[-1],))
scale_x = 127.0 / x_norm.abs().max(dim=-1, keepdim=True).values.clamp_(min=eps)
x_q = (x_norm * scale_x).round().clamp_(-128, 127) / scale_x
x_quant = x_norm + (x_q - x_norm).detach()
scale_w = 1.0 / w.abs().mean().clamp_(min=eps)
w_q = (w * scale_w).round().clamp_(-1, 1) / scale_w
w_quant = w + (w_q - w).detach()
return F.linear(x_quant, w_quant)
""",
        lambda: [(r(2, 3, 4), r(5, 4), 1e-5)],
    ),
    Case(
        "fsq",
        "z[..., D], levels[D; const], eps: float = 1e-3",
        """
half_l = (levels - 1) * (1 + eps) / 2
offset = torch.where(levels % 2 == 0, 0.5, 0.0)
shift = (offset / half_l).atanh()
bounded = (z + shift).tanh() * half_l - offset
zhat = bounded.round()
quantized = bounded + (zhat - bounded).detach()
half_width = levels // 2
return quantized / half_width
""",
        lambda: [(r(3, 2), torch.tensor([8.0, 5.0], dtype=torch.double), 1e-3)],
    ),
    Case(
        "lookup_free_quant",
        "x[..., D], entropy_weight: float = 0.1",
        """
quantized = torch.where(x > 0, 1.0, -1.0).to(x.dtype)
quantized = x + (quantized - x).detach()
prob = torch.sigmoid(4 * x)
per_sample_entropy = (-prob * torch.log(prob.clamp(min=1e-5)) - (1 - prob) * torch.log((1 - prob).clamp(min=1e-5))).sum(-1).mean()
return quantized, entropy_weight * per_sample_entropy
""",
        lambda: [(r(3, 4), 0.1)],
        "quantized, aux",
    ),
    Case(
        "atan_surrogate",
        "v, threshold: float = 1.0, alpha: float = 2.0",
        """
x = v - threshold
spike = (x >= 0).to(x.dtype)
soft = torch.atan(math.pi / 2 * alpha * x) / math.pi + 0.5
return spike.detach() + soft - soft.detach()
""",
        lambda: [(r(3, 4), 1.0, 2.0)],
    ),
    Case(
        "superspike_adlif",
        "v[N, H], w[N, H], current[N, H], decay[H], rec[H, H]?, theta: float = 1.0",
        """
d = torch.sigmoid(decay)
v = d * v + (1 - d) * (current - w)
if rec is not None:
    v = v + v.gt(theta).to(v.dtype) @ rec
u = v - theta
fast = u / (10.0 * u.abs() + 1.0)
spike = torch.heaviside(u, torch.zeros_like(u)).detach() + fast - fast.detach()
return spike, v * (1 - spike.detach()), 0.9 * w + 0.1 * spike
""",
        lambda: [
            (r(2, 3), r(2, 3), r(2, 3), r(3), r(3, 3), 1.0),
            (r(2, 3), r(2, 3), r(2, 3), r(3), None, 1.0),
        ],
        "spike, v_next, w_next",
    ),
    Case(
        "soft_round",
        "x, alpha: float = 3.0",
        """
m = torch.floor(x) + 0.5
r = x - m
z = math.tanh(alpha / 2.0) * 2.0
y = torch.tanh(alpha * r) / z
return m + y
""",
        lambda: [(r(3, 4), 3.0)],
    ),
    Case(
        "concrete_gate",
        "loc[D], u[N, D; unit, const], beta: float = 0.66, gamma: float = -0.1, zeta: float = 1.1, training: bool = True",
        """
if training:
    s = torch.sigmoid((torch.log(u) - torch.log(1 - u) + loc) / beta)
    s = s * (zeta - gamma) + gamma
    penalty = torch.sigmoid(loc - beta * math.log(-gamma / zeta)).mean()
else:
    s = torch.sigmoid(loc) * (zeta - gamma) + gamma
    penalty = torch.zeros_like(loc).sum()
return s.clamp(min=0, max=1), penalty
""",
        lambda: [
            (r(4), torch.rand(3, 4, dtype=torch.double) * 0.8 + 0.1, 0.66, -0.1, 1.1, t)
            for t in (True, False)
        ],
        "s, penalty",
    ),
)
