"""Gathers and segments as libraries write them."""

import torch

from tests.derive.cases import Case, index, r

GATHERS = (
    Case(
        "selective_log_softmax",
        "logits[B, T, V], index[B, T; index(V)]",
        """
selected_logits = torch.gather(logits, dim=-1, index=index.unsqueeze(-1)).squeeze(-1)
logsumexp_values = torch.logsumexp(logits, dim=-1)
return selected_logits - logsumexp_values
""",
        lambda: [(r(2, 3, 4), index(4, 2, 3))],
    ),
    Case(
        "shifted_lm_loss",
        "logits[B, T, V], labels[B, T; index(V)], ignore_index: int = -100",
        """
shift_logits = logits[..., :-1, :].contiguous()
shift_labels = labels[..., 1:].contiguous()
return F.cross_entropy(shift_logits.view(-1, logits.size(-1)), shift_labels.view(-1), ignore_index=ignore_index)
""",
        lambda: [(r(2, 3, 4), index(4, 2, 3), -100)],
    ),
    Case(
        "fairseq_label_smoothed_nll",
        "lprobs[N, V], target[N; index(V)], epsilon: float = 0.1, ignore_index: int = 0",
        """
target = target.unsqueeze(-1)
nll_loss = -lprobs.gather(dim=-1, index=target)
smooth_loss = -lprobs.sum(dim=-1, keepdim=True)
pad_mask = target.eq(ignore_index)
nll_loss = nll_loss.masked_fill(pad_mask, 0.0)
smooth_loss = smooth_loss.masked_fill(pad_mask, 0.0)
nll_loss = nll_loss.sum()
smooth_loss = smooth_loss.sum()
eps_i = epsilon / (lprobs.size(-1) - 1)
loss = (1.0 - epsilon - eps_i) * nll_loss + eps_i * smooth_loss
return loss, nll_loss
""",
        lambda: [(r(4, 5), torch.tensor([0, 1, 4, 2]), 0.1, 0)],
        "loss, nll_loss",
    ),
    Case(
        "mean_pooling",
        "token_embeddings[B, T, D], attention_mask[B, T; int]",
        """
input_mask_expanded = attention_mask.unsqueeze(-1).expand(token_embeddings.size()).to(token_embeddings.dtype)
sum_embeddings = torch.sum(token_embeddings * input_mask_expanded, 1)
sum_mask = torch.clamp(input_mask_expanded.sum(1), min=1e-9)
return sum_embeddings / sum_mask
""",
        lambda: [(r(2, 3, 4), torch.tensor([[1, 1, 0], [1, 0, 0]]))],
    ),
    Case(
        "topk_gating",
        "x[T, D], wg[E, D], k: int = 2",
        """
logits = F.linear(x, wg)
top_k_logits, indices = logits.topk(k, dim=-1)
zeros = torch.full_like(logits, float('-inf'))
sparse_logits = zeros.scatter(-1, indices, top_k_logits)
return F.softmax(sparse_logits, dim=-1), indices
""",
        lambda: [(r(3, 4), r(5, 4), 2)],
        "gates, indices[T, K; int]",
    ),
    Case(
        "global_add_pool",
        "x[N, D], batch[N; index(3)], size: int = 3",
        """
index = batch.view(-1, 1).expand_as(x)
out = x.new_zeros(size, x.size(1)).scatter_add(0, index, x)
count = torch.zeros(size, dtype=x.dtype, device=x.device).scatter_add(0, batch, torch.ones_like(x[:, 0]))
return out / count.clamp(min=1).unsqueeze(-1)
""",
        lambda: [(r(5, 4), index(3, 5), 3)],
    ),
    Case(
        "gcn_propagate",
        "x[N, K], weight[K, O], src[E; index(N)], dst[E; index(N)], bias[O]?",
        """
x = torch.mm(x, weight)
deg = torch.zeros(x.size(0), dtype=x.dtype, device=x.device).index_add(0, dst, torch.ones(dst.size(0), dtype=x.dtype, device=x.device))
deg_inv_sqrt = deg.pow(-0.5)
deg_inv_sqrt = deg_inv_sqrt.masked_fill(deg_inv_sqrt == float('inf'), 0)
norm = deg_inv_sqrt[src] * deg_inv_sqrt[dst]
out = torch.zeros_like(x).index_add(0, dst, norm.view(-1, 1) * x.index_select(0, src))
if bias is not None:
    out = out + bias
return out
""",
        lambda: [
            (r(4, 3), r(3, 2), index(4, 6), index(4, 6), r(2)),
            (r(4, 3), r(3, 2), index(4, 6), index(4, 6), None),
        ],
    ),
    Case(
        "token_merge",
        "metric[B, N, C], x[B, N, D]",
        """
metric = metric / metric.norm(dim=-1, keepdim=True)
a, b = metric[..., ::2, :], metric[..., 1::2, :]
scores = a @ b.transpose(-1, -2)
node_max, node_idx = scores.max(dim=-1)
n, t1, c = x[..., ::2, :].shape
dst = x[..., 1::2, :].gather(dim=-2, index=node_idx.unsqueeze(-1).expand(n, t1, c))
return (x[..., ::2, :] + dst) * node_max.unsqueeze(-1)
""",
        lambda: [(r(2, 4, 3), r(2, 4, 5))],
    ),
    Case(
        "batched_index_points",
        "points[B, N, C], idx[B, S; index(N)]",
        """
B = points.shape[0]
batch_indices = torch.arange(B, dtype=torch.long, device=points.device).view(B, 1).repeat(1, idx.shape[1])
return points[batch_indices, idx, :]
""",
        lambda: [(r(2, 4, 3), index(4, 2, 3))],
    ),
    Case(
        "sort_gather_cvar",
        "losses[N], weights[N], alpha: float = 0.5",
        """
order = torch.argsort(losses, descending=True)
sorted_losses = torch.take_along_dim(losses, order)
w = F.softmax(weights, dim=0)[order]
n = math.ceil(alpha * losses.size(0))
return (sorted_losses[:n] * w[:n]).sum() / w[:n].sum()
""",
        lambda: [(r(5), r(5), 0.5)],
    ),
    Case(
        "interp1d",
        "x[N], xp[M; const], fp[M], lo[N; index(M)], hi[N; index(M)]",
        """
x0, x1 = xp[lo], xp[hi]
y0, y1 = fp[lo], fp[hi]
t = (x - x0) / (x1 - x0 + 1e-3)
return torch.lerp(y0, y1, t)
""",
        lambda: [(r(4), r(3), r(3), index(3, 4), index(3, 4))],
    ),
    Case(
        "vq_commitment",
        "z[B, T, D], codebook[K, D], beta: float = 0.25",
        """
flat = z.reshape(-1, z.shape[-1])
dist = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ codebook.t() + codebook.pow(2).sum(1)
indices = dist.argmin(1)
z_q = F.embedding(indices, codebook).view(z.shape)
loss = beta * torch.mean((z_q.detach() - z) ** 2) + torch.mean((z_q - z.detach()) ** 2)
z_q = z + (z_q - z).detach()
return z_q, loss, indices
""",
        lambda: [(r(2, 3, 4), r(5, 4), 0.25)],
        "z_q, loss, indices[N; int]",
    ),
)
