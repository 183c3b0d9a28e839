"""Scans, prefix products and chunked recurrences as libraries write them."""

from tests.derive.cases import Case, p, r, z
from tests.derive.ops_of_others import u

SCANS = (
    Case(
        "exclusive_transmittance",
        "sigma[R, S], delta[R, S; const]",
        """
tau = sigma * delta
acc = torch.cumsum(tau, dim=-1)
trans = torch.exp(-(acc - tau))
alpha = 1.0 - torch.exp(-tau)
weights = alpha * trans
return weights, weights.sum(-1)
""",
        lambda: [(p(2, 4), p(2, 4))],
        "weights, opacity",
    ),
    Case(
        "heinsen_log_scan",
        "log_coeffs[B, T, D], log_values[B, T, D]",
        """
a_star = F.pad(torch.cumsum(log_coeffs, dim=1), (0, 0, 1, 0))[:, 1:]
log_h0_plus_b_star = torch.logcumsumexp(log_values - a_star, dim=1)
log_h = a_star + log_h0_plus_b_star
return torch.exp(log_h)
""",
        lambda: [(-p(2, 3, 4), r(2, 3, 4))],
    ),
    Case(
        "cumprod_alpha_compositing",
        "rgb[N, S, 3], alpha[N, S; unit]",
        """
ones = torch.ones_like(alpha[:, :1])
T = torch.cumprod(torch.cat([ones, 1.0 - alpha + 1e-10], dim=-1), dim=-1)[:, :-1]
w = alpha * T
color = torch.sum(w[..., None] * rgb, dim=-2)
return color
""",
        lambda: [(r(2, 4, 3), u(2, 4))],
    ),
    Case(
        "cummax_envelope",
        "x[N, T]",
        """
peak = torch.cummax(x, dim=-1).values
drawdown = (peak - x) / (peak.abs() + 1.0)
return drawdown.amax(dim=-1)
""",
        lambda: [(r(3, 5),)],
    ),
    Case(
        "gla_chunk",
        "q[B, C, K], k[B, C, K], v[B, C, V], g[B, C, K], scale: float = 0.5",
        """
g_cum = g.cumsum(dim=1)
g_last = g_cum[:, -1:, :]
q_dec = q * scale * g_cum.exp()
k_inv = k * (-g_cum).exp()
attn = (q_dec @ k_inv.transpose(1, 2)).tril()
o = attn @ v
state = (k * (g_last - g_cum).exp()).transpose(1, 2) @ v
return o, state
""",
        lambda: [(r(2, 3, 4), r(2, 3, 4), r(2, 3, 5), -p(2, 3, 4), 0.5)],
        "o, state",
    ),
    Case(
        "retention_chunkwise",
        "q[B, H, C, D], k[B, H, C, D], v[B, H, C, E], state[B, H, D, E], gamma: float = 0.9",
        """
idx = torch.arange(q.shape[2], device=q.device)
diff = (idx[:, None] - idx[None, :]).to(q.dtype)
decay = torch.where(diff >= 0, gamma ** diff.clamp(min=0), 0.0)
inner = (q @ k.transpose(-1, -2) * decay) @ v
inner_decay = gamma ** (idx + 1).to(q.dtype)
cross = (q @ state) * inner_decay[:, None]
chunk_decay = gamma ** (q.shape[2] - 1 - idx).to(q.dtype)
new_state = gamma ** q.shape[2] * state + (k * chunk_decay[:, None]).transpose(-1, -2) @ v
return inner + cross, new_state
""",
        lambda: [(r(1, 2, 3, 4), r(1, 2, 3, 4), r(1, 2, 3, 5), r(1, 2, 4, 5), 0.9)],
        "out, new_state",
    ),
    Case(
        "ssd_minimal_block",
        "x[B, L, H, P], A[B, L, H], Bm[B, L, H, N], C[B, L, H, N]",
        """
A = A.transpose(1, 2)
A_cumsum = torch.cumsum(A, dim=-1)
seg = A_cumsum[..., :, None] - A_cumsum[..., None, :]
mask = torch.tril(torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=torch.bool), diagonal=0)
Lmat = torch.exp(seg.masked_fill(~mask, -torch.inf))
Y = torch.einsum("blhn,bshn,bhls,bshp->blhp", C, Bm, Lmat, x)
decay_states = torch.exp(A_cumsum[..., -1:] - A_cumsum)
states = torch.einsum("blhn,bhl,blhp->bhpn", Bm, decay_states, x)
return Y, states
""",
        lambda: [(r(1, 3, 2, 4), -p(1, 3, 2), r(1, 3, 2, 5), r(1, 3, 2, 5))],
        "Y, states",
    ),
    Case(
        "selective_discretize",
        "delta[B, L, D], A[D, N], Bmat[B, L, N], u[B, L, D]",
        """
deltaA = torch.exp(torch.einsum('bld,dn->bldn', delta, A))
deltaB_u = torch.einsum('bld,bln,bld->bldn', delta, Bmat, u)
return deltaA, deltaB_u
""",
        lambda: [(p(2, 3, 4), -p(4, 5), r(2, 3, 5), r(2, 3, 4))],
        "deltaA, deltaB_u",
    ),
    Case(
        "lru_parallel_powers",
        "nu_log[N], theta_log[N], Bu[L, N; complex], gamma_log[N]",
        """
Lambda = torch.exp(torch.complex(-torch.exp(nu_log), torch.exp(theta_log)))
x = Bu * torch.exp(gamma_log)
t = torch.arange(Bu.shape[0], device=Bu.device)
powers = Lambda ** t[:, None]
h = torch.cumsum(x / powers, dim=0) * powers
return h.real
""",
        lambda: [(r(4) * 0.3, r(4) * 0.3, z(3, 4), r(4) * 0.3)],
    ),
    Case(
        "discounted_cumsum_flip",
        "x[B, T], gamma: float = 0.9",
        """
T = x.size(1)
w = gamma ** torch.arange(T, dtype=x.dtype, device=x.device)
rev = (x * w).flip(1).cumsum(1).flip(1)
return rev / w
""",
        lambda: [(r(2, 4), 0.9)],
    ),
    Case(
        "linear_attention_cumsum",
        "q[B, N, D], k[B, N, D], v[B, N, E], eps: float = 1e-6",
        """
q = F.elu(q) + 1
k = F.elu(k) + 1
kv = torch.einsum('bnd,bne->bnde', k, v).cumsum(dim=1)
z = 1 / (torch.einsum('bnd,bnd->bn', q, k.cumsum(dim=1)) + eps)
return torch.einsum('bnd,bnde,bn->bne', q, kv, z)
""",
        lambda: [(r(2, 3, 4), r(2, 3, 4), r(2, 3, 5), 1e-6)],
    ),
)
