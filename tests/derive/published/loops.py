"""Loops over time steps and iterations, as published code writes them.

In: nothing. Out: `LOOPS`. Invariant: each is derived, and its backward is a loop the other way round.
"""

import torch
from torch import Tensor

from tests.derive.cases import Case


def u(*shape: int) -> Tensor:
    """Values between 0.1 and 0.9."""
    return torch.rand(shape, dtype=torch.double) * 0.8 + 0.1


LOOPS = (
    Case(
        "selective_scan_loop",
        "a[B,T,D], b[B,T,D], c[B,T,D]",
        """
h = torch.zeros_like(a[:, 0])
ys = []
for t in range(a.shape[1]):
    h = a[:, t] * h + b[:, t]
    ys.append((h * c[:, t]).sum(-1))
return torch.stack(ys, 1)
""",
        lambda: [
            (u(2, 3, 3), u(2, 3, 3), u(2, 3, 3)),
            (u(2, 1, 3), u(2, 1, 3), u(2, 1, 3)),
        ],
    ),
    Case(
        "mamba_loop",
        "u[B,L,D], delta[B,L,D], A[D,N], Bm[B,L,N], C[B,L,N], Dp[D]",
        """
batch, length, dim = u.shape
deltaA = torch.exp(torch.einsum('bld,dn->bldn', delta, A))
deltaB_u = torch.einsum('bld,bln,bld->bldn', delta, Bm, u)
x = torch.zeros((batch, dim, A.shape[1]), device=u.device, dtype=u.dtype)
ys = []
for i in range(length):
    x = deltaA[:, i] * x + deltaB_u[:, i]
    y = torch.einsum('bdn,bn->bd', x, C[:, i, :])
    ys.append(y)
y = torch.stack(ys, dim=1)
return y + u * Dp
""",
        lambda: [
            (u(2, 3, 3), u(2, 3, 3), u(3, 3), u(2, 3, 3), u(2, 3, 3), u(3)),
            (u(2, 1, 3), u(2, 1, 3), u(3, 3), u(2, 1, 3), u(2, 1, 3), u(3)),
        ],
    ),
    Case(
        "gae_loop",
        "rewards[T,B], values[T,B], dones[T,B; const], gamma: float = 0.99, lam: float = 0.95",
        """
T = rewards.shape[0]
advantages = []
gae = torch.zeros_like(rewards[0])
for t in reversed(range(T)):
    gae = rewards[t] - values[t] + gamma * lam * (1 - dones[t]) * gae
    advantages.append(gae)
return torch.stack(advantages[::-1], 0)
""",
        lambda: [
            (u(3, 2), u(3, 2), u(3, 2), 0.99, 0.95),
            (u(1, 2), u(1, 2), u(1, 2), 0.99, 0.95),
        ],
    ),
    Case(
        "gae_buffer_loop",
        "rewards[T,B], values[T,B], next_values[T,B], masks[T,B; const], gamma: float = 0.99, lam: float = 0.95",
        """
advantages = torch.zeros_like(rewards)
last = torch.zeros_like(rewards[0])
for t in range(rewards.shape[0] - 1, -1, -1):
    delta = rewards[t] + gamma * next_values[t] * masks[t] - values[t]
    last = delta + gamma * lam * masks[t] * last
    advantages[t] = last
return advantages
""",
        lambda: [
            (u(3, 2), u(3, 2), u(3, 2), u(3, 2), 0.99, 0.95),
            (u(1, 2), u(1, 2), u(1, 2), u(1, 2), 0.99, 0.95),
        ],
    ),
    Case(
        "sinkhorn_loop",
        "cost[N,M], eps: float = 0.1, iters: int = 5",
        """
log_p = -cost / eps
for _ in range(iters):
    log_p = log_p - torch.logsumexp(log_p, dim=-1, keepdim=True)
    log_p = log_p - torch.logsumexp(log_p, dim=-2, keepdim=True)
return log_p.exp()
""",
        lambda: [(u(3, 4), 0.1, 5)],
    ),
    Case(
        "sinkhorn_uv_loop",
        "C[N,M], a[N], b[M], eps: float = 0.1, n_iters: int = 5",
        """
u = torch.zeros_like(a)
v = torch.zeros_like(b)
for _ in range(n_iters):
    u = eps * (torch.log(a.abs() + 1e-8) - torch.logsumexp((v[None, :] - C) / eps, dim=1))
    v = eps * (torch.log(b.abs() + 1e-8) - torch.logsumexp((u[:, None] - C) / eps, dim=0))
return torch.exp((u[:, None] + v[None, :] - C) / eps)
""",
        lambda: [(u(3, 4), u(3), u(4), 0.1, 5)],
    ),
    Case(
        "newton_schulz_loop",
        "G[N,M], steps: int = 5",
        """
a, b, c = 3.4445, -4.7750, 2.0315
X = G / (G.norm() + 1e-7)
for _ in range(steps):
    A = X @ X.T
    B = b * A + c * A @ A
    X = a * X + B @ X
return X
""",
        lambda: [(u(3, 4), 5)],
    ),
    Case(
        "rnn_loop",
        "x[B,T,I], W[I,H], U[H,H], bias[H], h0[B,H]",
        """
h = h0
out = []
for t in range(x.size(1)):
    h = torch.tanh(x[:, t] @ W + h @ U + bias)
    out.append(h)
return torch.stack(out, dim=1)
""",
        lambda: [
            (u(2, 3, 2), u(2, 2), u(2, 2), u(2), u(2, 2)),
            (u(2, 1, 2), u(2, 2), u(2, 2), u(2), u(2, 2)),
        ],
    ),
    Case(
        "gru_loop",
        "x[T,B,I], W[I,P], U[H,P], h[B,H]",
        """
outputs = []
for x_t in x:
    xr, xz, xn = (x_t @ W).chunk(3, dim=-1)
    hr, hz, hn = (h @ U).chunk(3, dim=-1)
    r = torch.sigmoid(xr + hr)
    z = torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)
    h = (1 - z) * n + z * h
    outputs.append(h)
return torch.stack(outputs)
""",
        lambda: [
            (u(3, 2, 2), u(2, 6), u(2, 6), u(2, 2)),
            (u(1, 2, 2), u(2, 6), u(2, 6), u(2, 2)),
        ],
    ),
    Case(
        "lstm_loop",
        "x[B,T,I], w_ih[Q,I], w_hh[Q,H], b[Q], h0[B,H], c0[B,H]",
        """
h, c = h0, c0
hs = []
for t in range(x.shape[1]):
    gates = F.linear(x[:, t], w_ih, b) + F.linear(h, w_hh)
    i, f, g, o = gates.chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    hs.append(h)
return torch.stack(hs, 1)
""",
        lambda: [
            (u(2, 3, 2), u(8, 2), u(8, 2), u(8), u(2, 2), u(2, 2)),
            (u(2, 1, 2), u(8, 2), u(8, 2), u(8), u(2, 2), u(2, 2)),
        ],
    ),
    Case(
        "linear_attention_loop",
        "q[B,T,K], k[B,T,K], v[B,T,V]",
        """
S = torch.zeros(q.shape[0], k.shape[-1], v.shape[-1], device=q.device, dtype=q.dtype)
o = []
for t in range(q.shape[1]):
    S = S + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
    o.append(torch.einsum('bk,bkv->bv', q[:, t], S))
return torch.stack(o, dim=1)
""",
        lambda: [
            (u(2, 3, 2), u(2, 3, 2), u(2, 3, 3)),
            (u(2, 1, 2), u(2, 1, 2), u(2, 1, 3)),
        ],
    ),
    Case(
        "delta_rule_loop",
        "q[B,H,T,K], k[B,H,T,K], v[B,H,T,V], beta[B,H,T]",
        """
b, h, l, d = q.shape
o = torch.zeros_like(v)
S = torch.zeros(b, h, d, v.shape[-1]).to(v)
for i in range(l):
    k_i = k[:, :, i]
    v_i = v[:, :, i]
    u = (v_i - (S * k_i[..., None]).sum(-2)) * beta[:, :, i][..., None]
    S = S + k_i.unsqueeze(-1) * u.unsqueeze(-2)
    o[:, :, i] = torch.einsum('bhd,bhdm->bhm', q[:, :, i], S)
return o
""",
        lambda: [
            (u(2, 2, 3, 2), u(2, 2, 3, 2), u(2, 2, 3, 3), u(2, 2, 3)),
            (u(2, 2, 1, 2), u(2, 2, 1, 2), u(2, 2, 1, 3), u(2, 2, 1)),
        ],
    ),
    Case(
        "gated_delta_loop",
        "q[B,T,K], k[B,T,K], v[B,T,V], g[B,T], beta[B,T]",
        """
B, T, K = q.shape
S = q.new_zeros(B, K, v.shape[-1])
outs = []
for t in range(T):
    S = S * g[:, t].exp()[:, None, None]
    pred = torch.einsum('bkv,bk->bv', S, k[:, t])
    delta = beta[:, t].unsqueeze(-1) * (v[:, t] - pred)
    S = S + torch.einsum('bk,bv->bkv', k[:, t], delta)
    outs.append(torch.einsum('bkv,bk->bv', S, q[:, t]))
return torch.stack(outs, dim=1)
""",
        lambda: [
            (u(2, 3, 2), u(2, 3, 2), u(2, 3, 3), u(2, 3), u(2, 3)),
            (u(2, 1, 2), u(2, 1, 2), u(2, 1, 3), u(2, 1), u(2, 1)),
        ],
    ),
    Case(
        "ema_loop",
        "x[B,T,D], alpha[D]",
        """
a = torch.sigmoid(alpha)
s = x[:, 0]
out = [s]
for t in range(1, x.shape[1]):
    s = a * x[:, t] + (1 - a) * s
    out.append(s)
return torch.stack(out, dim=1)
""",
        lambda: [(u(2, 3, 3), u(3)), (u(2, 1, 3), u(3))],
    ),
    Case(
        "ema_simple_loop",
        "x[B,T], decay: float = 0.9",
        """
state = torch.zeros_like(x[:, 0])
outs = []
for t in range(x.shape[1]):
    state = decay * state + (1 - decay) * x[:, t]
    outs.append(state)
return torch.stack(outs, dim=-1)
""",
        lambda: [(u(2, 3), 0.9), (u(2, 1), 0.9)],
    ),
    Case(
        "lif_soft_loop",
        "current[T,N], beta: float = 0.9, threshold: float = 1.0, slope: float = 5.0",
        """
mem = torch.zeros_like(current[0])
spikes = []
for t in range(current.shape[0]):
    mem = beta * mem + current[t]
    spk = torch.sigmoid(slope * (mem - threshold))
    mem = mem - spk * threshold
    spikes.append(spk)
return torch.stack(spikes)
""",
        lambda: [(u(3, 3), 0.9, 1.0, 5.0), (u(1, 3), 0.9, 1.0, 5.0)],
    ),
    Case(
        "rwkv_wkv_loop",
        "w[C], u[C], k[B,T,C], v[B,T,C]",
        """
B, T, C = k.shape
num = torch.zeros(B, C, device=k.device, dtype=k.dtype)
den = torch.zeros(B, C, device=k.device, dtype=k.dtype)
out = []
for t in range(T):
    kt, vt = k[:, t], v[:, t]
    e = torch.exp(u + kt)
    out.append((num + e * vt) / (den + e + 1e-6))
    num = torch.exp(-torch.exp(w)) * num + torch.exp(kt) * vt
    den = torch.exp(-torch.exp(w)) * den + torch.exp(kt)
return torch.stack(out, dim=1)
""",
        lambda: [
            (u(3), u(3), u(2, 3, 3), u(2, 3, 3)),
            (u(3), u(3), u(2, 1, 3), u(2, 1, 3)),
        ],
    ),
    Case(
        "gated_scan_loop",
        "x[B,T,D], gate[B,T,D], z[B,T,D]",
        """
f = torch.sigmoid(gate)
h = torch.zeros_like(x[:, 0])
hs = []
for f_t, x_t in zip(f.unbind(1), x.unbind(1)):
    h = f_t * h + (1 - f_t) * x_t
    hs.append(h)
y = torch.stack(hs, dim=1)
return y * F.silu(z)
""",
        lambda: [
            (u(2, 3, 3), u(2, 3, 3), u(2, 3, 3)),
            (u(2, 1, 3), u(2, 1, 3), u(2, 1, 3)),
        ],
    ),
    Case(
        "power_iteration_loop",
        "W[N,M], u[N], n_iter: int = 3, eps: float = 1e-12",
        """
for _ in range(n_iter):
    v = F.normalize(W.t() @ u, dim=0, eps=eps)
    u = F.normalize(W @ v, dim=0, eps=eps)
return u
""",
        lambda: [(u(3, 4), u(3), 3, 1e-12)],
    ),
    Case(
        "diffusion_steps_loop",
        "x[B,D], w[D,D], steps: int = 3, dt: float = 0.1",
        """
for _ in range(steps):
    x = x + dt * torch.tanh(x @ w)
return x
""",
        lambda: [(u(2, 3), u(3, 3), 3, 0.1)],
    ),
    Case(
        "rk4_loop",
        "y[B,D], A[D,D], n: int = 3, dt: float = 0.1",
        """
for i in range(n):
    k1 = torch.tanh(y @ A)
    k2 = torch.tanh((y + dt / 2 * k1) @ A)
    k3 = torch.tanh((y + dt / 2 * k2) @ A)
    k4 = torch.tanh((y + dt * k3) @ A)
    y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
return y
""",
        lambda: [(u(2, 3), u(3, 3), 3, 0.1)],
    ),
    Case(
        "kan_bspline_loop",
        "x[B,D], grid[D,G], spline_order: int = 3",
        """
x = x.unsqueeze(-1)
bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
for k in range(1, spline_order + 1):
    bases = (
        (x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)]) * bases[:, :, :-1]
    ) + (
        (grid[:, k + 1 :] - x) / (grid[:, k + 1 :] - grid[:, 1:(-k)]) * bases[:, :, 1:]
    )
return bases
""",
        lambda: [(u(2, 3), u(3, 8).cumsum(-1), 3)],
    ),
    Case(
        "mingru_scan_loop",
        "z[B,T,D], h_tilde[B,T,D], h0[B,D]",
        """
h = h0
out = []
for t in range(z.shape[1]):
    g = torch.sigmoid(z[:, t])
    h = (1 - g) * h + g * h_tilde[:, t]
    out.append(h)
return torch.stack(out, dim=1), h
""",
        lambda: [(u(2, 3, 3), u(2, 3, 3), u(2, 3)), (u(2, 1, 3), u(2, 1, 3), u(2, 3))],
        outputs="hidden, last",
    ),
    Case(
        "discounted_returns_loop",
        "rewards[B,T], gamma: float = 0.99",
        """
returns = torch.zeros_like(rewards)
running = torch.zeros_like(rewards[:, 0])
for t in reversed(range(rewards.size(1))):
    running = rewards[:, t] + gamma * running
    returns[:, t] = running
return returns
""",
        lambda: [(u(2, 3), 0.99), (u(2, 1), 0.99)],
    ),
    Case(
        "sum_loop_loop",
        "x[B,T,D], w[D]",
        """
total = torch.zeros_like(x[:, 0])
for t in range(x.shape[1]):
    total += torch.tanh(x[:, t] * w)
return total / x.shape[1]
""",
        lambda: [(u(2, 3, 3), u(3)), (u(2, 1, 3), u(3))],
    ),
    Case(
        "ssm_diag_loop",
        "u[B,T,D], A[D,N], Bm[D,N], C[D,N], dt[D]",
        """
dA = torch.exp(dt[:, None] * A)
dB = dt[:, None] * Bm
h = u.new_zeros(u.shape[0], u.shape[2], A.shape[1])
ys = []
for t in range(u.shape[1]):
    h = dA * h + dB * u[:, t, :, None]
    ys.append((h * C).sum(-1))
return torch.stack(ys, 1)
""",
        lambda: [
            (u(2, 3, 3), u(3, 3), u(3, 3), u(3, 3), u(3)),
            (u(2, 1, 3), u(3, 3), u(3, 3), u(3, 3), u(3)),
        ],
    ),
    Case(
        "retention_loop",
        "q[B,T,K], k[B,T,K], v[B,T,V], gamma: float = 0.9",
        """
S = torch.zeros(q.size(0), q.size(2), v.size(2), dtype=q.dtype, device=q.device)
out = []
for t in range(q.size(1)):
    S = gamma * S + k[:, t, :, None] * v[:, t, None, :]
    out.append((q[:, t, None, :] @ S).squeeze(1))
return torch.stack(out, dim=1)
""",
        lambda: [
            (u(2, 3, 2), u(2, 3, 2), u(2, 3, 3), 0.9),
            (u(2, 1, 2), u(2, 1, 2), u(2, 1, 3), 0.9),
        ],
    ),
    Case(
        "enumerate_unbind_loop",
        "x[T,B,D], w[D]",
        """
h = torch.zeros_like(x[0])
ys = []
for t, x_t in enumerate(x.unbind(0)):
    h = torch.tanh(h * w + x_t)
    ys.append(h)
return torch.stack(ys, dim=0)
""",
        lambda: [(u(3, 2, 3), u(3)), (u(1, 2, 3), u(3))],
    ),
    Case(
        "ctrnn_loop",
        "x[B,T,I], W_in[H,I], W[H,H], tau: float = 2.0, dt: float = 0.1",
        """
B, T, _ = x.shape
h = x.new_zeros(B, W.shape[0])
states = []
for t in range(T):
    dh = (-h + torch.tanh(h) @ W.T + x[:, t] @ W_in.T) / tau
    h = h + dt * dh
    states.append(h)
return torch.stack(states, dim=1)
""",
        lambda: [
            (u(2, 3, 2), u(2, 2), u(2, 2), 2.0, 0.1),
            (u(2, 1, 2), u(2, 2), u(2, 2), 2.0, 0.1),
        ],
    ),
    Case(
        "unrolled_ista_loop",
        "y[B,M], D[M,N], lam: float = 0.1, step: float = 0.1, iters: int = 4",
        """
z = torch.zeros(y.shape[0], D.shape[1], dtype=y.dtype, device=y.device)
for _ in range(iters):
    grad = (z @ D.T - y) @ D
    z = z - step * grad
    z = torch.sign(z) * F.relu(z.abs() - step * lam)
return z
""",
        lambda: [(u(2, 4), u(4, 3), 0.1, 0.1, 4)],
    ),
    Case(
        "crf_forward_loop",
        "emissions[T,B,C], transitions[C,C]",
        """
alpha = emissions[0]
for t in range(1, emissions.shape[0]):
    alpha = torch.logsumexp(alpha.unsqueeze(2) + transitions.unsqueeze(0) + emissions[t].unsqueeze(1), dim=1)
return torch.logsumexp(alpha, dim=1)
""",
        lambda: [(u(3, 2, 3), u(3, 3)), (u(1, 2, 3), u(3, 3))],
    ),
    Case(
        "masked_rnn_loop",
        "x[B,T,H], mask[B,T; const], U[H,H]",
        """
h = torch.zeros_like(x[:, 0])
out = []
for t in range(x.shape[1]):
    new = torch.tanh(x[:, t] + h @ U)
    m = mask[:, t].unsqueeze(-1)
    h = m * new + (1 - m) * h
    out.append(h.unsqueeze(1))
return torch.cat(out, dim=1)
""",
        lambda: [(u(2, 3, 2), u(2, 3), u(2, 2)), (u(2, 1, 2), u(2, 1), u(2, 2))],
    ),
    Case(
        "hgrn_loop",
        "x[B,H,T,D], g[B,H,T,D]",
        """
o = torch.zeros_like(x)
h = torch.zeros_like(x[:, :, 0])
for i in range(x.shape[2]):
    h = g[:, :, i].exp() * h + x[:, :, i]
    o[:, :, i] = h
return o
""",
        lambda: [(u(2, 2, 3, 3), u(2, 2, 3, 3)), (u(2, 2, 1, 3), u(2, 2, 1, 3))],
    ),
    Case(
        "if_first_loop",
        "x[B,T,D], w[D]",
        """
h = torch.zeros_like(x[:, 0])
ys = []
for t in range(x.shape[1]):
    if t > 0:
        h = h * w
    h = h + x[:, t]
    ys.append(h)
return torch.stack(ys, 1)
""",
        lambda: [(u(2, 3, 3), u(3)), (u(2, 1, 3), u(3))],
    ),
    Case(
        "list_scan_cat_loop",
        "a[B,T], x[B,T]",
        """
h = torch.zeros(x.shape[0], device=x.device, dtype=x.dtype)
outs = []
for t in range(x.shape[1]):
    h = a[:, t] * h + x[:, t]
    outs.append(h)
return torch.stack(outs, dim=1)
""",
        lambda: [(u(2, 3), u(2, 3)), (u(2, 1), u(2, 1))],
    ),
    Case(
        "neumann_loop",
        "v[N], H[N,N], steps: int = 4, lr: float = 0.1",
        """
p = v
acc = v
for _ in range(steps):
    p = p - lr * (H @ p)
    acc = acc + p
return lr * acc
""",
        lambda: [(u(3), u(3, 3), 4, 0.1)],
    ),
    Case(
        "prev_diff_loop",
        "x[B,T,D], w[D]",
        """
prev = torch.zeros_like(x[:, 0])
ys = []
for t in range(x.shape[1]):
    ys.append(torch.tanh(x[:, t] - prev) * w)
    prev = x[:, t]
return torch.stack(ys, 1)
""",
        lambda: [(u(2, 3, 3), u(3)), (u(2, 1, 3), u(3))],
    ),
    Case(
        "tokenshift_carry2_loop",
        "x[B,T,D], mu[D], W[D,D]",
        """
last = torch.zeros_like(x[:, 0])
state = torch.zeros_like(x[:, 0])
ys = []
for t in range(x.shape[1]):
    cur = x[:, t]
    mixed = cur * mu + last * (1 - mu)
    state = torch.tanh(mixed @ W + state)
    last = cur
    ys.append(state * cur)
return torch.stack(ys, 1)
""",
        lambda: [(u(2, 3, 3), u(3), u(3, 3)), (u(2, 1, 3), u(3), u(3, 3))],
    ),
    Case(
        "swap_carries_loop",
        "x[B,T], u[B], v[B]",
        """
a, b = u, v
for t in range(x.shape[1]):
    a, b = b * x[:, t], a + b.sin()
return a * b
""",
        lambda: [(u(2, 3), u(2), u(2)), (u(2, 1), u(2), u(2))],
    ),
    Case(
        "fibonacci_two_loop",
        "x[B,T], u[B]",
        """
p = u.exp()
q = torch.zeros_like(u)
out = []
for t in range(x.shape[1]):
    new = torch.sin(p + q * x[:, t])
    q = p
    p = new
    out.append(p)
return torch.stack(out, 1), q
""",
        lambda: [(u(2, 3), u(2)), (u(2, 1), u(2))],
        outputs="hidden, last",
    ),
    Case(
        "rwkv7_loop",
        "r[B,T,H,N], w[B,T,H,N], k[B,T,H,N], v[B,T,H,N], a[B,T,H,N], b[B,T,H,N]",
        """
B, T, H, N = r.size()
decay = torch.exp(-torch.exp(w))
out = torch.zeros((B, T, H, N), device=r.device, dtype=r.dtype)
state = torch.zeros((B, H, N, N), device=r.device, dtype=r.dtype)
for t in range(T):
    kk = k[:, t, :].view(B, H, 1, N)
    rr = r[:, t, :].view(B, H, N, 1)
    vv = v[:, t, :].view(B, H, N, 1)
    aa = a[:, t, :].view(B, H, N, 1)
    bb = b[:, t, :].view(B, H, 1, N)
    state = state * decay[:, t, :, None, :] + state @ aa @ bb + vv @ kk
    out[:, t, :] = (state @ rr).view(B, H, N)
return out
""",
        lambda: [tuple(u(2, 3, 2, 3) for _ in range(6))],
    ),
    Case(
        "rnn_loop_cat",
        "x[B,T,H], h0[B,H], w[H,H]",
        """
h = h0
out = []
for t in range(x.size(1)):
    h = torch.tanh(x[:, t, :] + h @ w)
    out.append(h.unsqueeze(1))
return torch.cat(out, dim=1)
""",
        lambda: [(u(2, 3, 3), u(2, 3), u(3, 3)), (u(2, 1, 3), u(2, 3), u(3, 3))],
    ),
    Case(
        "euler_steps",
        "y0[B,D], w[D,D], n: int = 3",
        """
ys = [y0]
for i in range(n):
    k = torch.tanh(ys[-1] @ w)
    ys.append(ys[-1] + 0.1 * k)
return torch.stack(ys, dim=1)
""",
        lambda: [(u(2, 3), u(3, 3), 3), (u(1, 2), u(2, 2), 1)],
    ),
    Case(
        "lambda_returns_list",
        "r[T,B], v[T,B], decay: float = 0.9",
        """
inputs = r[:-1] + 0.1 * v[1:]
outs = [2 * v[-1]]
for t in range(inputs.shape[0] - 1, -1, -1):
    outs.append(inputs[t] + decay * outs[-1])
return torch.stack(list(reversed(outs)), 0)
""",
        lambda: [(u(4, 3), u(4, 3), 0.9), (u(2, 1), u(2, 1), 0.5)],
    ),
    Case(
        "advantages_without_gradients",
        "rewards[T,N], values[T,N], dones[T,N], last[N], logratio[T,N]",
        """
T = rewards.shape[0]
with torch.no_grad():
    advantages = torch.zeros_like(rewards)
    lastgaelam = 0
    for t in reversed(range(T)):
        if t == T - 1:
            nextvalues = last
        else:
            nextvalues = values[t + 1]
        delta = rewards[t] + 0.9 * nextvalues * (1.0 - dones[t]) - values[t]
        advantages[t] = lastgaelam = delta + 0.8 * (1.0 - dones[t]) * lastgaelam
    returns = advantages + values
return (logratio.exp() * advantages).mean() + ((values - returns) ** 2).mean()
""",
        lambda: [
            (u(4, 3), u(4, 3), u(4, 3), u(3), u(4, 3)),
            (u(1, 2), u(1, 2), u(1, 2), u(2), u(1, 2)),
        ],
    ),
)
