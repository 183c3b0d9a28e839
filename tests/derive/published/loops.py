"""Loops over time steps and iterations, as published code writes them.

In: nothing. Out: `LOOPS`. Invariant: autograd differentiates each as a whole, and a note says so.
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
