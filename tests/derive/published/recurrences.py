"""Recurrences and scans as libraries of models write them."""

from tests.derive.cases import Case, p, r

RECURRENCES = (
    Case(
        "mamba_scan",
        "u[B, L, D], delta[B, L, D], A[D, N], Bm[B, L, N], Cm[B, L, N], Dp[D]",
        """
delta = F.softplus(delta)
deltaA = torch.exp(torch.einsum('bld,dn->bldn', delta, A))
deltaB_u = torch.einsum('bld,bln,bld->bldn', delta, Bm, u)
x = torch.zeros((u.shape[0], u.shape[2], A.shape[1]), device=u.device, dtype=u.dtype)
x = deltaA[:, 0] * x + deltaB_u[:, 0]
y0 = torch.einsum('bdn,bn->bd', x, Cm[:, 0, :])
x = deltaA[:, 1] * x + deltaB_u[:, 1]
y1 = torch.einsum('bdn,bn->bd', x, Cm[:, 1, :])
x = deltaA[:, 2] * x + deltaB_u[:, 2]
y2 = torch.einsum('bdn,bn->bd', x, Cm[:, 2, :])
y = torch.stack([y0, y1, y2], dim=1)
return y + u * Dp
""",
        lambda: [
            (r(2, 3, 4), r(2, 3, 4), -p(4, 2), r(2, 3, 2), r(2, 3, 2), r(4)),
        ],
    ),
    Case(
        "mamba_step",
        "x[B, D], h[B, D, N], dt[B, D], A_log[D, N], Bv[B, N], Cv[B, N], D_skip[D], z[B, D]",
        """
A = -torch.exp(A_log)
dt = F.softplus(dt)
dA = torch.exp(torch.einsum('bd,dn->bdn', dt, A))
dB = torch.einsum('bd,bn->bdn', dt, Bv)
new_state = h * dA + x.unsqueeze(-1) * dB
y = torch.einsum('bdn,bn->bd', new_state.to(x.dtype), Cv)
y = y + D_skip.to(x.dtype) * x
y = y * F.silu(z)
return y, new_state
""",
        lambda: [
            (
                *(r(2, 3), r(2, 3, 4), r(2, 3), r(3, 4)),
                *(r(2, 4), r(2, 4), r(3), r(2, 3)),
            )
        ],
        "y, new_state",
    ),
    Case(
        "retnet_parallel",
        "q[B, H, S, D], k[B, H, S, D], v[B, H, S, E], gamma[H; const]",
        """
n = torch.arange(q.size(-2), device=q.device).unsqueeze(1)
m = torch.arange(q.size(-2), device=q.device).unsqueeze(0)
D = (gamma[:, None, None] ** (n - m)) * (n >= m).to(q.dtype)
D = D / D.sum(dim=-1, keepdim=True).sqrt()
qk = q @ k.transpose(-1, -2) * D
qk = qk / qk.detach().abs().sum(dim=-1, keepdim=True).clamp(min=1, max=5e4)
output = torch.matmul(qk, v)
return output.transpose(1, 2)
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 5), p(2))],
    ),
    Case(
        "rwkv_wkv_step",
        "k[B, C], v[B, C], w[C], u[C], aa[B, C], bb[B, C], pp[B, C]",
        """
ww = u + k
p = torch.maximum(pp, ww)
e1 = torch.exp(pp - p)
e2 = torch.exp(ww - p)
a = e1 * aa + e2 * v
b = e1 * bb + e2
ww = pp - torch.exp(w)
p = torch.maximum(ww, k)
e1 = torch.exp(ww - p)
e2 = torch.exp(k - p)
return a / b, e1 * aa + e2 * v, e1 * bb + e2
""",
        lambda: [(r(2, 3), r(2, 3), r(3), r(3), r(2, 3), p(2, 3), r(2, 3))],
        "wkv, new_aa, new_bb",
    ),
    Case(
        "s4d_kernel",
        "log_dt[H], C_real[H, N], C_imag[H, N], log_A_real[H, N], A_imag[H, N], L: int = 5",
        """
dt = torch.exp(log_dt)
C = torch.complex(C_real, C_imag)
A = -torch.exp(log_A_real) + 1j * A_imag
dtA = A * dt.unsqueeze(-1)
K = dtA.unsqueeze(-1) * torch.arange(L, device=A.device)
C = C * (torch.exp(dtA) - 1.) / A
return 2 * torch.einsum('hn, hnl -> hl', C, torch.exp(K)).real
""",
        lambda: [(r(2), r(2, 3), r(2, 3), r(2, 3), r(2, 3), 5)],
    ),
    Case(
        "hyena_fftconv",
        "u[B, H, L], k[H, L], D[H]",
        """
seqlen = u.shape[-1]
fft_size = 2 * seqlen
k_f = torch.fft.rfft(k, n=fft_size) / fft_size
u_f = torch.fft.rfft(u.to(dtype=k.dtype), n=fft_size)
y = torch.fft.irfft(u_f * k_f, n=fft_size, norm='forward')[..., :seqlen]
out = y + u * D.unsqueeze(-1)
return out.to(dtype=u.dtype)
""",
        lambda: [(r(2, 3, 4), r(3, 4), r(3))],
    ),
    Case(
        "min_gru_log",
        "k[B, T, D], pre_h[B, T, D]",
        """
log_z = -F.softplus(-k)
log_coeffs = -F.softplus(k)
log_tilde_h = torch.where(pre_h >= 0, (F.relu(pre_h) + 0.5).log(), -F.softplus(-pre_h))
a_star = F.pad(torch.cumsum(log_coeffs, dim=1), (0, 0, 1, 0))[:, 1:]
log_h0_plus_b_star = torch.logcumsumexp(log_z + log_tilde_h - a_star, dim=1)
log_h = a_star + log_h0_plus_b_star
return torch.exp(log_h)
""",
        lambda: [(r(2, 3, 4), r(2, 3, 4))],
    ),
    Case(
        "gru_cell",
        "x[N, I], h[N, H], w_ih[G, I], w_hh[G, H], b_ih[G]?, b_hh[G]?",
        """
gi = F.linear(x, w_ih, b_ih)
gh = F.linear(h, w_hh, b_hh)
i_r, i_i, i_n = gi.chunk(3, 1)
h_r, h_i, h_n = gh.chunk(3, 1)
resetgate = torch.sigmoid(i_r + h_r)
inputgate = torch.sigmoid(i_i + h_i)
newgate = torch.tanh(i_n + resetgate * h_n)
return newgate + inputgate * (h - newgate)
""",
        lambda: [
            (r(2, 3), r(2, 4), r(12, 3), r(12, 4), r(12), r(12)),
            (r(2, 3), r(2, 4), r(12, 3), r(12, 4), None, None),
        ],
    ),
    Case(
        "delta_rule_step",
        "q[B, H, D], k[B, H, D], v[B, H, E], beta[B, H], S[B, H, D, E]",
        """
k = F.normalize(k, p=2, dim=-1)
v_old = (S * k[..., None]).sum(-2)
delta = (v - v_old) * beta[..., None]
S = S + k.unsqueeze(-1) * delta.unsqueeze(-2)
o = torch.einsum('bhd,bhde->bhe', q, S)
return o, S
""",
        lambda: [(r(2, 3, 4), r(2, 3, 4), r(2, 3, 5), p(2, 3), r(2, 3, 4, 5))],
        "o, state",
    ),
    Case(
        "ema_unrolled",
        "x[B, T], alpha: float = 0.3",
        """
h0 = x[:, 0]
h1 = alpha * x[:, 1] + (1 - alpha) * h0
h2 = alpha * x[:, 2] + (1 - alpha) * h1
h3 = alpha * x[:, 3] + (1 - alpha) * h2
return torch.stack([h0, h1, h2, h3], dim=1)
""",
        lambda: [(r(3, 4), 0.3)],
    ),
    Case(
        "gae",
        "rewards[T], values[T], next_values[T], not_done[T; const], gamma: float = 0.99, lam: float = 0.95",
        """
deltas = rewards + gamma * next_values * not_done - values
T = rewards.shape[0]
steps = torch.arange(T, device=rewards.device)
gap = steps[None, :] - steps[:, None]
decay = torch.where(gap >= 0, (gamma * lam) ** gap.clamp(min=0).to(deltas.dtype), 0.0)
return decay @ deltas
""",
        lambda: [(r(4), r(4), r(4), p(4), 0.99, 0.95)],
    ),
    Case(
        "hgrn_gate",
        "x[B, T, D], lower_bound[D]",
        """
i, f = x, F.sigmoid(x)
lb = lower_bound.softmax(0).cumsum(0) - lower_bound.softmax(0)[0]
f = lb + (1 - lb) * f
return F.silu(i) * (1 - f) + torch.flip(f, dims=[1]) * f
""",
        lambda: [(r(2, 3, 4), r(4))],
    ),
)
