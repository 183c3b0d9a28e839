"""Ops of papers of 2023 to 2026: losses, norms, attention, state spaces, routers, diffusion, geometry."""

import torch

from tests.derive.cases import Case, index, p, r

RECENT = (
    Case(
        "siglip",
        "img[N, D], txt[N, D], scale[1], bias[1]",
        """
img = F.normalize(img, dim=-1)
txt = F.normalize(txt, dim=-1)
logits = img @ txt.T * scale.exp() + bias
labels = 2 * torch.eye(logits.shape[0], device=logits.device, dtype=logits.dtype) - 1
return -F.logsigmoid(labels * logits).sum() / img.shape[0]
""",
        lambda: [(r(3, 4), r(3, 4), r(1), r(1))],
    ),
    Case(
        "simpo",
        "lc[B], lr[B], nc[B; const, positive], nr[B; const, positive], beta: float = 2.0, gamma: float = 0.5",
        """
logits = lc / nc - lr / nr - gamma / beta
return -F.logsigmoid(beta * logits).mean()
""",
        lambda: [(r(4), r(4), p(4), p(4), 2.0, 0.5)],
    ),
    Case(
        "ppo_value",
        "v[B], old[B; const], ret[B; const], clip: float = 0.2",
        """
vc = old + torch.clamp(v - old, -clip, clip)
l1 = (v - ret).pow(2)
l2 = (vc - ret).pow(2)
return 0.5 * torch.max(l1, l2).mean()
""",
        lambda: [(r(5), r(5), r(5), 0.2)],
    ),
    Case(
        "gae_loss",
        "r[T; const], v[T], gamma: float = 0.99, lam: float = 0.95",
        """
with torch.no_grad():
    nv = torch.cat([v[1:], v.new_zeros(1)])
    delta = r + gamma * nv - v
    w = (gamma * lam) ** torch.arange(len(delta), device=v.device, dtype=v.dtype)
    adv = torch.flip(torch.cumsum(torch.flip(delta * w, [0]), 0), [0]) / w
    ret = adv + v
return F.smooth_l1_loss(v, ret)
""",
        lambda: [(r(5), r(5), 0.99, 0.95)],
    ),
    Case(
        "c51_loss",
        "logits[B, A, N], a[B; index(A)], target[B, N; const, simplex]",
        """
lp = F.log_softmax(logits, dim=-1)
lp = lp[torch.arange(logits.shape[0]), a]
return -(target * lp).sum(-1).mean()
""",
        lambda: [(r(3, 2, 4), index(2, 3), r(3, 4).softmax(-1))],
    ),
    Case(
        "quantile_huber",
        "q[B, N], t[B, M; const], kappa: float = 1.0",
        """
n = q.shape[1]
tau = (torch.arange(n, device=q.device, dtype=q.dtype) + 0.5) / n
u = t.unsqueeze(1) - q.unsqueeze(2)
huber = torch.where(u.abs() <= kappa, 0.5 * u.pow(2), kappa * (u.abs() - 0.5 * kappa))
return ((tau[None, :, None] - (u.detach() < 0).to(q.dtype)).abs() * huber / kappa).sum(1).mean()
""",
        lambda: [(r(3, 4), r(3, 5), 1.0)],
    ),
    Case(
        "dyt",
        "x[B, T, D], alpha[1], weight[D], bias[D]",
        "return torch.tanh(alpha * x) * weight + bias",
        lambda: [(r(2, 3, 4), r(1), r(4), r(4))],
    ),
    Case(
        "adaln_zero",
        "x[B, T, D], c[B, D], w[E, D], b[E]",
        """
shift, scale, gate = F.linear(F.silu(c), w, b).chunk(3, dim=1)
h = F.layer_norm(x, (x.shape[-1],), eps=1e-6)
return x + gate.unsqueeze(1) * (h * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1))
""",
        lambda: [(r(2, 3, 4), r(2, 4), r(12, 4), r(12))],
    ),
    Case(
        "diff_attn",
        "q[B, H, T, D], k[B, H, T, D], v[B, H, T, E], lam[1]",
        """
q1, q2 = q.chunk(2, dim=-1)
k1, k2 = k.chunk(2, dim=-1)
s = 1 / math.sqrt(q1.shape[-1])
a1 = torch.softmax(q1 @ k1.transpose(-1, -2) * s, dim=-1)
a2 = torch.softmax(q2 @ k2.transpose(-1, -2) * s, dim=-1)
return (a1 - lam * a2) @ v
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 5), r(1))],
    ),
    Case(
        "alibi_attn",
        "q[B, H, T, D], k[B, H, T, D], v[B, H, T, D], slopes[H; const]",
        """
T = q.shape[2]
pos = torch.arange(T, device=q.device)
bias = (pos[None, :] - pos[:, None]).to(q.dtype) * slopes[:, None, None]
causal = torch.triu(torch.full((T, T), float('-inf'), dtype=q.dtype, device=q.device), diagonal=1)
scores = torch.einsum('bhqd,bhkd->bhqk', q, k) / q.shape[-1] ** 0.5 + bias + causal
return torch.einsum('bhqk,bhkd->bhqd', scores.softmax(-1), v)
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4), r(2))],
    ),
    Case(
        "mla_latent",
        "c[B, T, L], wk[H, D, L], wv[H, D, L], q[B, T, H, D]",
        """
k = torch.einsum('btl,hdl->bthd', c, wk)
v = torch.einsum('btl,hdl->bthd', c, wv)
s = torch.einsum('bthd,bshd->bhts', q, k) * q.shape[-1] ** -0.5
m = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).tril()
s = s.masked_fill(~m, float('-inf')).softmax(-1)
return torch.einsum('bhts,bshd->bthd', s, v)
""",
        lambda: [(r(2, 3, 4), r(2, 5, 4), r(2, 5, 4), r(2, 3, 2, 5))],
    ),
    Case(
        "mamba2_segsum",
        "x[B, T]",
        """
T = x.size(-1)
x_cumsum = torch.cumsum(x, dim=-1)
x_segsum = x_cumsum[..., :, None] - x_cumsum[..., None, :]
mask = torch.tril(torch.ones(T, T, device=x.device, dtype=bool), diagonal=0)
return x_segsum.masked_fill(~mask, -torch.inf).exp()
""",
        lambda: [(r(2, 4),)],
    ),
    Case(
        "rwkv_shift",
        "x[B, T, C], mix[C], wk[C, C], wr[C, C]",
        """
xx = F.pad(x, (0, 0, 1, -1))
k = x * mix + xx * (1 - mix)
r = torch.sigmoid(x @ wr)
k = torch.square(torch.relu(k @ wk))
return r * k
""",
        lambda: [(r(2, 3, 4), r(4), r(4, 4), r(4, 4))],
    ),
    Case(
        "moe_router_topk",
        "x[N, D], w[E, D], k: int = 2",
        """
logits = F.linear(x, w)
weights = F.softmax(logits, dim=1)
weights, selected = torch.topk(weights, k, dim=-1)
weights = weights / weights.sum(dim=-1, keepdim=True)
return weights
""",
        lambda: [(r(4, 3), r(5, 3), 2)],
    ),
    Case(
        "soft_moe",
        "x[B, T, D], phi[D, E, S], w[E, D, D]",
        """
logits = torch.einsum('btd,des->btes', x, phi)
dispatch = F.softmax(logits, dim=1)
combine = F.softmax(logits.flatten(2), dim=-1).view_as(logits)
slots = torch.einsum('btd,btes->besd', x, dispatch)
out = torch.einsum('besd,edf->besf', slots, w)
return torch.einsum('besd,btes->btd', out, combine)
""",
        lambda: [(r(2, 3, 4), r(4, 2, 3), r(2, 4, 4))],
    ),
    Case(
        "ddpm_loss",
        "pred[B, C, H, W], noise[B, C, H, W; const], snr[B; const, positive], gamma: float = 5.0",
        """
w = torch.stack([snr, gamma * torch.ones_like(snr)], dim=1).min(dim=1)[0] / snr
loss = F.mse_loss(pred, noise, reduction='none')
loss = loss.mean(dim=list(range(1, len(loss.shape)))) * w
return loss.mean()
""",
        lambda: [(r(3, 2, 2, 2), r(3, 2, 2, 2), p(3) * 4, 5.0)],
    ),
    Case(
        "cfg_rescale",
        "c[B, C, H, W], u[B, C, H, W], s: float = 7.5, phi: float = 0.7",
        """
out = u + s * (c - u)
std_text = c.std(dim=list(range(1, c.ndim)), keepdim=True)
std_cfg = out.std(dim=list(range(1, out.ndim)), keepdim=True)
rescaled = out * (std_text / std_cfg)
return phi * rescaled + (1 - phi) * out
""",
        lambda: [(r(2, 2, 2, 3), r(2, 2, 2, 3), 7.5, 0.7)],
    ),
    Case(
        "timestep_embedding",
        "t[B], dim: int = 4, max_period: int = 10000",
        """
half = dim // 2
freqs = torch.exp(-math.log(max_period) * torch.arange(start=0, end=half, dtype=t.dtype, device=t.device) / half)
args = t[:, None] * freqs[None]
embedding = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
if dim % 2:
    embedding = torch.cat([embedding, torch.zeros_like(embedding[:, :1])], dim=-1)
return embedding
""",
        lambda: [(r(3), 4, 10000), (r(3), 5, 10000)],
    ),
    Case(
        "quat_to_rot",
        "q[N, 4]",
        """
r, i, j, k = torch.unbind(q, -1)
two_s = 2.0 / (q * q).sum(-1)
o = torch.stack((1 - two_s * (j * j + k * k), two_s * (i * j - k * r), two_s * (i * k + j * r), two_s * (i * j + k * r), 1 - two_s * (i * i + k * k), two_s * (j * k - i * r), two_s * (i * k - j * r), two_s * (j * k + i * r), 1 - two_s * (i * i + j * j)), -1)
return o.reshape(q.shape[:-1] + (3, 3))
""",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "rot6d",
        "d6[N, 6]",
        """
a1, a2 = d6[..., :3], d6[..., 3:]
b1 = F.normalize(a1, dim=-1)
b2 = a2 - (b1 * a2).sum(-1, keepdim=True) * b1
b2 = F.normalize(b2, dim=-1)
b3 = torch.cross(b1, b2, dim=-1)
return torch.stack((b1, b2, b3), dim=-2)
""",
        lambda: [(r(3, 6),)],
    ),
    Case(
        "axis_angle_exp",
        "w[N, 3]",
        """
theta = w.norm(dim=-1, keepdim=True).clamp(min=1e-8)
k = w / theta
x, y, z = k.unbind(-1)
o = torch.zeros_like(x)
K = torch.stack([o, -z, y, z, o, -x, -y, x, o], dim=-1).view(-1, 3, 3)
I = torch.eye(3, dtype=w.dtype, device=w.device)[None]
s = theta.sin()[..., None]
c = theta.cos()[..., None]
return I + s * K + (1 - c) * (K @ K)
""",
        lambda: [(r(3, 3),)],
    ),
    Case(
        "nerf_render",
        "rgb[R, S, 3], sigma[R, S], z[R, S; const]",
        """
dists = torch.cat([z[..., 1:] - z[..., :-1], torch.full_like(z[..., :1], 1e10)], -1)
alpha = 1. - torch.exp(-F.relu(sigma) * dists)
T = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1. - alpha + 1e-10], -1), -1)[:, :-1]
weights = alpha * T
return torch.sum(weights[..., None] * rgb, -2)
""",
        lambda: [(r(2, 4, 3), r(2, 4), torch.arange(8.0).double().view(2, 4))],
    ),
    Case(
        "gs_covariance",
        "scale[N, 3], q[N, 4]",
        """
q = F.normalize(q)
w, x, y, z = q[:, 0], q[:, 1], q[:, 2], q[:, 3]
R = torch.zeros((q.shape[0], 3, 3), dtype=q.dtype, device=q.device)
R[:, 0, 0] = 1 - 2 * (y * y + z * z)
R[:, 0, 1] = 2 * (x * y - w * z)
R[:, 0, 2] = 2 * (x * z + w * y)
R[:, 1, 0] = 2 * (x * y + w * z)
R[:, 1, 1] = 1 - 2 * (x * x + z * z)
R[:, 1, 2] = 2 * (y * z - w * x)
R[:, 2, 0] = 2 * (x * z - w * y)
R[:, 2, 1] = 2 * (y * z + w * x)
R[:, 2, 2] = 1 - 2 * (x * x + y * y)
M = R @ torch.diag_embed(torch.exp(scale))
return M @ M.transpose(1, 2)
""",
        lambda: [(r(3, 3), r(3, 4))],
    ),
    Case(
        "vq_ema_free",
        "x[N, D], codebook[K, D], beta: float = 0.25",
        """
d = x.pow(2).sum(1, keepdim=True) - 2 * x @ codebook.t() + codebook.pow(2).sum(1)
with torch.no_grad():
    idx = d.argmin(dim=1)
    onehot = torch.zeros(idx.shape[0], codebook.shape[0], dtype=x.dtype, device=x.device)
    onehot.scatter_(1, idx.unsqueeze(1), 1)
q = onehot @ codebook
loss = F.mse_loss(q.detach(), x) * beta + F.mse_loss(q, x.detach())
q = x + (q - x).detach()
return q.sum() + loss
""",
        lambda: [(r(4, 3), r(5, 3), 0.25)],
    ),
    Case(
        "swiglu_mlp",
        "x[B, D], w12[E, D], w3[D, H], b12[E]?",
        """
x12 = F.linear(x, w12, b12)
x1, x2 = x12.chunk(2, dim=-1)
return F.linear(F.silu(x1) * x2, w3)
""",
        lambda: [(r(3, 4), r(6, 4), r(4, 3), r(6)), (r(3, 4), r(6, 4), r(4, 3), None)],
    ),
)
