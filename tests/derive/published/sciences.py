"""Ops of graphs, physics and finance as their libraries write them: unpacked edges, checks of arguments, masks that are made anew."""

from tests.derive.cases import Case, index, p, r
from tests.derive.ops_of_others import u

SCIENCES = (
    Case(
        "black_scholes_price",
        "spot[N; positive], strike[N; positive], t[N; positive], rate[N], sigma[N; positive], kind: str = 'call'",
        """
assert spot.shape == strike.shape, f'{spot.shape} and {strike.shape}'
root = sigma * t.sqrt()
d1 = (torch.log(spot / strike) + (rate + 0.5 * sigma ** 2) * t) / root
d2 = d1 - root
discounted = strike * torch.exp(-rate * t)
if kind == 'call':
    price = spot * torch.special.ndtr(d1) - discounted * torch.special.ndtr(d2)
elif kind == 'put':
    price = discounted * torch.special.ndtr(-d2) - spot * torch.special.ndtr(-d1)
else:
    raise ValueError(f'unknown option: {kind}')
return price
""",
        lambda: [(p(3), p(3), p(3), r(3), p(3), kind) for kind in ("call", "put")],
    ),
    Case(
        "lennard_jones_pairs",
        "pos[N, 3], sigma[N; positive], well[N; positive], cutoff: float = 3.0",
        """
i, j = torch.triu_indices(pos.shape[0], pos.shape[0], offset=1)
d = (pos[i] - pos[j]).norm(dim=-1) + 0.5
ratio6 = ((sigma[i] + sigma[j]) / 2 / d) ** 6
pair = 4 * (well[i] * well[j]).sqrt() * (ratio6 ** 2 - ratio6)
x = (d / cutoff).clamp(max=1)
return (pair * (1 - x ** 3 * (10 - 15 * x + 6 * x ** 2))).sum()
""",
        lambda: [(r(4, 3), p(4), p(4), 3.0)],
    ),
    Case(
        "equivariant_coordinates",
        "h[N, D], x[N, 3], edges[2, E; index(N)], w[K, 1], tanh: bool = False",
        """
row, col = edges
diff = x[row] - x[col]
radial = (diff ** 2).sum(1, keepdim=True)
diff = diff / ((radial + 1e-8).sqrt() + 1)
out = torch.cat([h[row], h[col], radial], dim=1) @ w
if tanh:
    out = torch.tanh(out)
count = x.new_zeros(x.size(0)).index_add(0, row, torch.ones_like(row).to(x.dtype))
moved = torch.zeros_like(x).index_add(0, row, diff * out)
return x + moved / count.clamp(min=1).unsqueeze(-1)
""",
        lambda: [
            (r(4, 2), r(4, 3), index(4, 2, 6), r(5, 1), tanh) for tanh in (True, False)
        ],
    ),
    Case(
        "masked_cut_pool",
        "x[B, N, D], adj[B, N, N; positive], s[B, N, K], mask[B, N; bool]?, temp: float = 1.0",
        """
count, k = x.size(1), s.size(-1)
s = torch.softmax(s / temp if temp != 1.0 else s, dim=-1)
if mask is not None:
    mask = mask.view(-1, count, 1).to(x.dtype)
    x, s = x * mask, s * mask
out = s.transpose(1, 2) @ x
coarse = s.transpose(1, 2) @ adj @ s
degree = torch.diag_embed(torch.einsum('ijk->ij', adj))
cut = torch.einsum('ijj->i', coarse) / torch.einsum('ijj->i', s.mT @ degree @ s)
coarse = coarse * (1 - torch.eye(k).type_as(coarse))
return out, coarse, -cut.mean()
""",
        lambda: [
            (r(2, 4, 3), p(2, 4, 4), r(2, 4, 2), mask, temp)
            for mask in (None, u(2, 4) > 0.3)
            for temp in (1.0, 0.7)
        ],
        "out, coarse, loss",
    ),
    Case(
        "sliding_mean_variance",
        "x[B, T, D], window: int = 3, norm_vars: bool = False",
        """
if window % 2 == 0:
    raise ValueError('the window must be odd')
padded = F.pad(x.transpose(1, 2), (window // 2, window // 2))
windows = padded.unfold(-1, window, 1)
out = x - windows.mean(-1).transpose(1, 2)
if norm_vars:
    variance = windows.var(-1, unbiased=False).transpose(1, 2)
    out = out / torch.sqrt(variance + 1e-8)
return out
""",
        lambda: [(r(2, 5, 3), 3, norm_vars) for norm_vars in (True, False)],
    ),
    Case(
        "stabilized_gates",
        "q[B, S, D], k[B, S, D], v[B, S, D], i[B, S, 1], f[B, S, 1], rowwise: bool = True",
        """
B, S, D = q.shape
log_f = F.logsigmoid(f).cumsum(-2)
causal = torch.tril(torch.ones((S, S), dtype=torch.bool, device=q.device))
log_d = torch.where(causal, log_f - log_f.transpose(-2, -1), -float('inf'))
log_d = log_d + i.transpose(-2, -1)
if rowwise:
    top, _ = torch.max(log_d, dim=-1, keepdim=True)
else:
    top = torch.max(log_d.view(B, -1), dim=-1, keepdim=True)[0].unsqueeze(-1)
c = q @ (k / math.sqrt(D)).transpose(-2, -1) * torch.exp(log_d - top)
norm = torch.maximum(c.sum(dim=-1, keepdim=True).abs(), torch.exp(-top))
return c / (norm + 1e-6) @ v
""",
        lambda: [
            (r(2, 3, 4), r(2, 3, 4), r(2, 3, 4), r(2, 3, 1), r(2, 3, 1), rowwise)
            for rowwise in (True, False)
        ],
    ),
)
