"""Lookups, scatters and messages over edges as libraries write them."""

import torch

from tests.derive.cases import Case, index, p, r
from tests.derive.ops_of_others import u

SCATTERS = (
    Case(
        "hash_grid_lookup",
        "x[N, 3; unit], table[T, F], resolution: int = 4",
        """
pos = x * resolution
base = pos.floor().detach()
frac = pos - base
c = base.long()
h0 = (c[:, 0] * 1 ^ c[:, 1] * 2654435761 ^ c[:, 2] * 805459861) % table.shape[0]
h1 = ((c[:, 0] + 1) * 1 ^ c[:, 1] * 2654435761 ^ c[:, 2] * 805459861) % table.shape[0]
f0 = table[h0]
f1 = table[h1]
return f0 * (1 - frac[:, :1]) + f1 * frac[:, :1]
""",
        lambda: [(u(4, 3), r(7, 2), 4)],
    ),
    Case(
        "trilinear_voxel",
        "grid[C, D, H, W], coords[N, 3]",
        """
c = coords.clamp(0, 1)
x = c[:, 0] * (grid.shape[3] - 1)
y = c[:, 1] * (grid.shape[2] - 1)
zc = c[:, 2] * (grid.shape[1] - 1)
x0 = x.detach().floor().long().clamp(max=grid.shape[3] - 2)
y0 = y.detach().floor().long().clamp(max=grid.shape[2] - 2)
z0 = zc.detach().floor().long().clamp(max=grid.shape[1] - 2)
xd = x - x0
yd = y - y0
zd = zc - z0
c00 = grid[:, z0, y0, x0] * (1 - xd) + grid[:, z0, y0, x0 + 1] * xd
c01 = grid[:, z0 + 1, y0, x0] * (1 - xd) + grid[:, z0 + 1, y0, x0 + 1] * xd
c10 = grid[:, z0, y0 + 1, x0] * (1 - xd) + grid[:, z0, y0 + 1, x0 + 1] * xd
c11 = grid[:, z0 + 1, y0 + 1, x0] * (1 - xd) + grid[:, z0 + 1, y0 + 1, x0 + 1] * xd
c0 = c00 * (1 - yd) + c10 * yd
c1 = c01 * (1 - yd) + c11 * yd
return (c0 * (1 - zd) + c1 * zd).t()
""",
        lambda: [(r(2, 3, 4, 5), u(4, 3))],
    ),
    Case(
        "bilinear_sample_manual",
        "img[B, C, H, W], px[B, N], py[B, N]",
        """
B, C, H, W = img.shape
x0 = torch.floor(px).long().clamp(0, W - 2)
y0 = torch.floor(py).long().clamp(0, H - 2)
wx = (px - x0).unsqueeze(1)
wy = (py - y0).unsqueeze(1)
flat = img.reshape(B, C, H * W)
i00 = (y0 * W + x0).unsqueeze(1).expand(-1, C, -1)
v00 = flat.gather(2, i00)
v01 = flat.gather(2, i00 + 1)
v10 = flat.gather(2, i00 + W)
v11 = flat.gather(2, i00 + W + 1)
return v00 * (1 - wx) * (1 - wy) + v01 * wx * (1 - wy) + v10 * (1 - wx) * wy + v11 * wx * wy
""",
        lambda: [(r(2, 3, 4, 5), p(2, 3) * 2, p(2, 3))],
    ),
    Case(
        "gnn_mean_aggregate",
        "x[N, D], src[E; index(N)], dst[E; index(N)], w_self[O, D], w_nbr[O, D]",
        """
msg = x[src]
agg = torch.zeros_like(x).index_add_(0, dst, msg)
deg = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device).index_add_(0, dst, torch.ones_like(dst, dtype=x.dtype))
agg = agg / deg.clamp(min=1).unsqueeze(-1)
return x @ w_self.t() + agg @ w_nbr.t()
""",
        lambda: [
            (
                r(4, 3),
                torch.tensor([0, 1, 2, 2, 3, 0]),
                torch.tensor([1, 0, 1, 3, 2, 2]),
                r(2, 3),
                r(2, 3),
            )
        ],
    ),
    Case(
        "edge_attention_softmax",
        "h[N, H, D], a_src[H, D], a_dst[H, D], src[E; index(N)], dst[E; index(N)]",
        """
e_src = (h * a_src).sum(-1)
e_dst = (h * a_dst).sum(-1)
e = F.leaky_relu(e_src[src] + e_dst[dst], 0.2)
idx = dst.unsqueeze(-1).expand_as(e)
mx = torch.full((h.shape[0], h.shape[1]), float("-inf"), dtype=e.dtype, device=e.device).scatter_reduce(0, idx, e.detach(), reduce="amax")
ex = torch.exp(e - mx[dst])
den = torch.zeros(h.shape[0], h.shape[1], dtype=e.dtype, device=e.device).scatter_add(0, idx, ex)
alpha = ex / (den[dst] + 1e-16)
out = torch.zeros_like(h).index_add(0, dst, alpha.unsqueeze(-1) * h[src])
return out, alpha
""",
        lambda: [
            (
                r(4, 2, 3),
                r(2, 3),
                r(2, 3),
                torch.tensor([0, 1, 2, 2, 3, 0]),
                torch.tensor([1, 0, 1, 3, 2, 2]),
            )
        ],
        "out, alpha",
    ),
    Case(
        "scatter_reduce_mean_pool",
        "x[N, D], batch[N; index(2)], num_graphs: int = 2",
        """
index = batch.view(-1, 1).expand(-1, x.size(1))
out = x.new_zeros(num_graphs, x.size(1))
return out.scatter_reduce(0, index, x, reduce='mean', include_self=False)
""",
        lambda: [(r(4, 3), torch.tensor([0, 1, 1, 0]), 2)],
    ),
    Case(
        "scatter_amax_pool",
        "x[N, D], batch[N; index(2)], num_graphs: int = 2",
        """
index = batch[:, None].expand_as(x)
out = torch.full((num_graphs, x.size(1)), -1e9, dtype=x.dtype, device=x.device)
return out.scatter_reduce(0, index, x, 'amax')
""",
        lambda: [(r(4, 3), torch.tensor([0, 1, 1, 0]), 2)],
    ),
    Case(
        "segment_logsumexp",
        "x[N], seg[N; index(3)], K: int = 3",
        """
m = torch.full((K,), -1e30, dtype=x.dtype, device=x.device).scatter_reduce(0, seg, x.detach(), reduce='amax', include_self=True)
s = torch.zeros(K, dtype=x.dtype, device=x.device).scatter_add_(0, seg, torch.exp(x - m[seg]))
return torch.log(s + 1e-12) + m
""",
        lambda: [(r(5), torch.tensor([0, 1, 2, 1, 0]), 3)],
    ),
    Case(
        "moe_token_choice",
        "x[T, D], gate[E, D], w1[E, H, D], w2[E, D, H], k: int = 2",
        """
logits = x @ gate.t()
probs = F.softmax(logits, dim=-1)
topv, topi = torch.topk(probs, k, dim=-1)
topv = topv / topv.sum(dim=-1, keepdim=True)
weights = torch.zeros_like(probs).scatter(-1, topi, topv)
h = F.silu(torch.einsum('td,ehd->teh', x, w1))
y = torch.einsum('teh,edh->ted', h, w2)
out = (weights.unsqueeze(-1) * y).sum(1)
f = (weights > 0).to(probs.dtype).mean(0)
aux = gate.shape[0] * (f * probs.mean(0)).sum()
return out, aux
""",
        lambda: [(r(4, 3), r(3, 3), r(3, 5, 3), r(3, 3, 5), 2)],
        "out, aux",
    ),
    Case(
        "expert_choice_routing",
        "x[T, D], wg[D, E], capacity: int = 2",
        """
scores = torch.softmax(x @ wg, dim=-1)
G, I = torch.topk(scores.t(), capacity, dim=-1)
xin = x[I]
out = torch.zeros_like(x)
out = out.index_add(0, I.reshape(-1), (G.unsqueeze(-1) * xin).reshape(-1, x.shape[-1]))
return out
""",
        lambda: [(r(4, 3), r(3, 2), 2)],
    ),
    Case(
        "pointer_network_scores",
        "enc[B, T, H], dec[B, H], w1[H, H], w2[H, H], v[H], chosen[B; index(T)]",
        """
scores = torch.tanh(enc @ w1.t() + (dec @ w2.t()).unsqueeze(1)) @ v
mask = F.one_hot(chosen, enc.size(1)).bool()
log_p = F.log_softmax(scores.masked_fill(mask, float('-inf')), dim=-1)
next_in = enc[torch.arange(enc.size(0), device=enc.device), chosen]
return log_p.exp(), next_in
""",
        lambda: [(r(2, 3, 4), r(2, 4), r(4, 4), r(4, 4), r(4), torch.tensor([0, 2]))],
        "prob, next_in",
    ),
    Case(
        "sampled_softmax_loss",
        "h[N, D], weight[V, D], bias[V], target[N; index(V)], neg[K; index(V)], log_q[V; const]",
        """
true_logit = (h * weight[target]).sum(-1) + bias[target] - log_q[target]
neg_logit = h @ weight[neg].t() + bias[neg] - log_q[neg]
hit = target[:, None] == neg[None, :]
neg_logit = neg_logit.masked_fill(hit, -1e5)
logits = torch.cat([true_logit.unsqueeze(1), neg_logit], dim=1)
return F.cross_entropy(logits, torch.zeros_like(target))
""",
        lambda: [(r(3, 4), r(5, 4), r(5), index(5, 3), index(5, 2), r(5))],
    ),
    Case(
        "transe_margin",
        "ent[V, D], rel[R, D], h[N; index(V)], t[N; index(V)], rr[N; index(R)], tn[N; index(V)], margin: float = 1.0",
        """
e_h = F.normalize(F.embedding(h, ent), dim=-1)
e_t = F.normalize(F.embedding(t, ent), dim=-1)
e_n = F.normalize(F.embedding(tn, ent), dim=-1)
e_r = F.embedding(rr, rel)
pos = (e_h + e_r - e_t).norm(p=2, dim=-1)
neg = (e_h + e_r - e_n).norm(p=2, dim=-1)
return F.relu(margin + pos - neg).mean()
""",
        lambda: [
            (r(5, 4), r(3, 4), index(5, 3), index(5, 3), index(3, 3), index(5, 3), 1.0)
        ],
    ),
    Case(
        "crf_sequence_score",
        "emissions[T, B, K], tags[T, B; index(K)], trans[K, K], start[K]",
        """
ar = torch.arange(tags.shape[1], device=tags.device)
emit = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(0)
tr = trans[tags[:-1], tags[1:]].sum(0)
return start[tags[0]] + tr + emit
""",
        lambda: [(r(3, 2, 4), index(4, 3, 2), r(4, 4), r(4))],
    ),
    Case(
        "knn_interpolate",
        "feat[M, C], pos_x[M, 3], pos_y[N, 3], k: int = 3",
        """
d2 = (pos_y[:, None, :] - pos_x[None, :, :]).pow(2).sum(-1)
dist, idx = torch.topk(d2, k, dim=-1, largest=False)
w = 1.0 / dist.clamp(min=1e-8)
w = w / w.sum(-1, keepdim=True)
return (feat[idx] * w.unsqueeze(-1)).sum(dim=1)
""",
        lambda: [(r(5, 2), r(5, 3), r(4, 3), 3)],
    ),
    Case(
        "take_along_rank",
        "scores[N, K], rel[N, K; const]",
        """
order = torch.argsort(rel, dim=-1, descending=True)
s = torch.take_along_dim(scores, order, dim=-1)
rev = torch.flip(s, dims=[-1])
lse = torch.logcumsumexp(rev, dim=-1).flip(-1)
return (lse - s).sum(-1).mean()
""",
        lambda: [(r(3, 4), p(3, 4))],
    ),
    Case(
        "relative_shift_gather",
        "bd[B, H, S, R], pos[S, T; index(R)]",
        """
idx = pos.expand(bd.shape[0], bd.shape[1], -1, -1)
return torch.gather(bd, -1, idx)
""",
        lambda: [(r(2, 2, 3, 5), index(5, 3, 4))],
    ),
)
