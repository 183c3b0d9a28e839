"""Spikes with surrogate gradients as libraries write them."""

from tests.derive.cases import Case, p, r
from tests.derive.ops_of_others import u

SPIKES = (
    Case(
        "lif_step_soft_reset",
        "x[B, N], v[B, N], s[B, N], beta[N], thr: float = 1.0, slope: float = 25.0",
        """
b = beta.clamp(0, 1)
mem = b * v + x - s.detach() * thr
u = mem - thr
sig = torch.sigmoid(slope * u)
spk = ((u > 0).to(u.dtype) - sig).detach() + sig
return spk, mem
""",
        lambda: [(r(2, 3), r(2, 3), (r(2, 3) > 0).double(), u(3), 1.0, 4.0)],
        "spk, mem",
    ),
    Case(
        "scale_grad_detach",
        "x, scale: float = 0.1",
        "x * scale + x.detach() * (1 - scale)",
        lambda: [(r(3, 4), 0.1)],
    ),
    Case(
        "alif_step",
        "x[B, N], v[B, N], a[B, N], z[B, N; const], alpha: float = 0.9, rho: float = 0.95, beta: float = 0.2",
        """
a_new = rho * a + z
A = 1.0 + beta * a_new
v_new = alpha * v + x - z * A
h = (v_new - A) / A
pseudo = 0.3 * torch.relu(1 - h.abs()).detach() * h
zed = (h > 0).to(h.dtype)
z_new = zed.detach() + pseudo - pseudo.detach()
return z_new, v_new, a_new
""",
        lambda: [(r(2, 3), r(2, 3), p(2, 3), (r(2, 3) > 0).double(), 0.9, 0.95, 0.2)],
        "z_new, v_new, a_new",
    ),
)
