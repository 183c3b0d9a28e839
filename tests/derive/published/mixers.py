"""Attention of later papers, as their code writes it."""

import torch

from tests.derive.cases import Case, index, r

MIXERS = (
    Case(
        "external_attention",
        "x[B, N, D], mk[S, D], mv[D, S]",
        """
attn = x @ mk.t()
attn = F.softmax(attn, dim=1)
attn = attn / (1e-9 + attn.sum(dim=2, keepdim=True))
return attn @ mv.t()
""",
        lambda: [(r(2, 3, 4), r(5, 4), r(4, 5))],
    ),
    Case(
        "efficient_attention",
        "q[B, H, N, D], k[B, H, N, D], v[B, H, N, E], mask[B, N; bool]?",
        """
if mask is not None:
    k = k.masked_fill(~mask[:, None, :, None], torch.finfo(k.dtype).min)
q = q.softmax(dim=-1) * q.shape[-1] ** -0.5
k = k.softmax(dim=-2)
context = torch.einsum('bhnd,bhne->bhde', k, v)
return torch.einsum('bhnd,bhde->bhne', q, context)
""",
        lambda: [
            (
                r(2, 2, 3, 4),
                r(2, 2, 3, 4),
                r(2, 2, 3, 2),
                torch.tensor([[True, True, False], [True, False, True]]),
            ),
            (r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 2), None),
        ],
    ),
    Case(
        "aft_full",
        "q[B, T, D], k[B, T, D], v[B, T, D], w_bias[T, T]",
        """
exp_bias = torch.exp(w_bias - torch.max(w_bias, dim=1, keepdim=True).values.detach())
exp_k = torch.exp(k - k.amax(dim=1, keepdim=True).detach())
num = torch.einsum('ts,bsd->btd', exp_bias, exp_k * v)
den = torch.einsum('ts,bsd->btd', exp_bias, exp_k)
return torch.sigmoid(q) * (num / den)
""",
        lambda: [(r(2, 3, 4), r(2, 3, 4), r(2, 3, 4), r(3, 3))],
    ),
    Case(
        "deberta_disentangled",
        "query[B, S, D], key[B, S, D], pos_key[P, D], pos_query[P, D], c2p_pos[S, S; index(P)], p2c_pos[S, S; index(P)], scale_factor: int = 3",
        """
scale = math.sqrt(query.size(-1) * scale_factor)
scores = torch.bmm(query, key.transpose(-1, -2) / scale)
c2p_att = torch.matmul(query, pos_key.t())
c2p_att = torch.gather(c2p_att, dim=-1, index=c2p_pos.unsqueeze(0).expand(query.size(0), -1, -1))
p2c_att = torch.matmul(key, pos_query.t())
p2c_att = torch.gather(p2c_att, dim=-1, index=p2c_pos.unsqueeze(0).expand(key.size(0), -1, -1)).transpose(-1, -2)
return scores + c2p_att / scale + p2c_att / scale
""",
        lambda: [
            (
                *(r(2, 3, 4), r(2, 3, 4), r(5, 4), r(5, 4)),
                *(index(5, 3, 3), index(5, 3, 3), 3),
            )
        ],
    ),
    Case(
        "transformer_xl_scores",
        "q[B, H, S, D], k[B, H, S, D], rel[H, S, D], r_w_bias[H, D], r_r_bias[H, D]",
        """
AC = torch.einsum('bhid,bhjd->bhij', q + r_w_bias[:, None], k)
BD = torch.einsum('bhid,hjd->bhij', q + r_r_bias[:, None], rel)
b, h, s, _ = BD.shape
BD = torch.cat([BD.new_zeros(b, h, s, 1), BD], dim=-1)
BD = BD.view(b, h, s + 1, s)[:, :, 1:].view(b, h, s, s)
return (AC + BD) * (1 / q.shape[-1] ** 0.5)
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 3, 4), r(2, 4), r(2, 4))],
    ),
    Case(
        "lambda_layer",
        "q[B, H, K, N], k[B, K, M], v[B, V, M], rel_pos[N, M, K]",
        """
k = k.softmax(dim=-1)
lc = torch.einsum('bkm,bvm->bkv', k, v)
yc = torch.einsum('bhkn,bkv->bhvn', q, lc)
lp = torch.einsum('nmk,bvm->bnkv', rel_pos, v)
yp = torch.einsum('bhkn,bnkv->bhvn', q, lp)
y = yc + yp
return y.reshape(y.shape[0], -1, y.shape[-1])
""",
        lambda: [(r(2, 2, 3, 4), r(2, 3, 5), r(2, 2, 5), r(4, 5, 3))],
    ),
    Case(
        "slot_attention_step",
        "slots[B, S, D], k[B, N, D], v[B, N, D], eps: float = 1e-8",
        """
dots = torch.einsum('bid,bjd->bij', slots, k) * slots.shape[-1] ** -0.5
attn = dots.softmax(dim=1) + eps
weights = attn / attn.sum(dim=-1, keepdim=True)
updates = torch.einsum('bjd,bij->bid', v, weights)
return updates, attn
""",
        lambda: [(r(2, 3, 4), r(2, 5, 4), r(2, 5, 4), 1e-8)],
        "updates, attn",
    ),
    Case(
        "shifted_windows",
        "x[B, H, W, C], bias[N, N], mask[M, N, N; const], ws: int = 2, shift: int = 1",
        """
B, H, W, C = x.shape
x = torch.roll(x, shifts=(-shift, -shift), dims=(1, 2))
windows = x.view(B, H // ws, ws, W // ws, ws, C).permute(0, 1, 3, 2, 4, 5).reshape(-1, ws * ws, C)
attn = windows @ windows.transpose(-2, -1) + bias
attn = (attn.view(B, -1, ws * ws, ws * ws) + mask).view(-1, ws * ws, ws * ws)
out = attn.softmax(dim=-1) @ windows
out = out.view(B, H // ws, W // ws, ws, ws, C).permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, C)
return torch.roll(out, shifts=(shift, shift), dims=(1, 2))
""",
        lambda: [(r(2, 4, 4, 3), r(4, 4), r(4, 4, 4), 2, 1)],
    ),
    Case(
        "gated_mil_pooling",
        "h[N, L], V[D, L], U[D, L], w[K, D]",
        """
A_V = torch.tanh(h @ V.t())
A_U = torch.sigmoid(F.linear(h, U))
A = (A_V * A_U) @ w.t()
A = torch.transpose(A, 1, 0)
A = F.softmax(A, dim=1)
return torch.mm(A, h), A
""",
        lambda: [(r(4, 3), r(2, 3), r(2, 3), r(2, 2))],
        "M, A",
    ),
    Case(
        "dual_softmax_matching",
        "feat0[N, L, C], feat1[N, S, C], mask0[N, L; bool], mask1[N, S; bool], temperature: float = 0.1",
        """
feat0, feat1 = feat0 / feat0.shape[-1] ** 0.5, feat1 / feat1.shape[-1] ** 0.5
sim = torch.einsum('nlc,nsc->nls', feat0, feat1) / temperature
sim = sim.masked_fill(~(mask0[..., None] & mask1[:, None]), -1e9)
return F.softmax(sim, 1) * F.softmax(sim, 2)
""",
        lambda: [
            (
                *(r(2, 3, 4), r(2, 2, 4)),
                torch.tensor([[True, True, False], [True, True, True]]),
                torch.tensor([[True, False], [True, True]]),
                0.1,
            )
        ],
    ),
    Case(
        "focused_linear_attention",
        "q[B, H, N, D], k[B, H, N, D], v[B, H, N, E], factor: int = 3",
        """
q = F.relu(q) + 1e-6
k = F.relu(k) + 1e-6
q_norm = q.norm(dim=-1, keepdim=True)
k_norm = k.norm(dim=-1, keepdim=True)
q = q ** factor
k = k ** factor
q = (q / q.norm(dim=-1, keepdim=True)) * q_norm
k = (k / k.norm(dim=-1, keepdim=True)) * k_norm
z = 1 / (q @ k.mean(dim=-2, keepdim=True).transpose(-2, -1) + 1e-6)
kv = (k.transpose(-2, -1) * (k.shape[-2] ** -0.5)) @ (v * (k.shape[-2] ** -0.5))
return q @ kv * z
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 2), 3)],
    ),
    Case(
        "stick_breaking_attention",
        "q[B, H, T, D], k[B, H, T, D], v[B, H, T, D]",
        """
logits = q @ k.mT / math.sqrt(q.size(-1))
causal = torch.ones(q.size(-2), q.size(-2), dtype=torch.bool, device=q.device).tril(-1)
log_z = F.logsigmoid(logits).masked_fill(~causal, -1e5)
log_beta = F.logsigmoid(-logits).masked_fill(~causal, 0)
re_cum_log_beta = log_beta.flip(-1).cumsum(-1).flip(-1) - log_beta
att = torch.exp(log_z + re_cum_log_beta)
return att @ v
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4))],
    ),
    Case(
        "forgetting_attention",
        "q[B, H, T, D], k[B, H, T, D], v[B, H, T, D], fgate[B, H, T]",
        """
c = torch.cumsum(F.logsigmoid(fgate), dim=-1)
bias = c[..., :, None] - c[..., None, :]
scores = torch.einsum('...id,...jd->...ij', q, k) * q.shape[-1] ** -0.5 + bias
i = torch.arange(q.shape[-2], device=q.device)
scores = scores.masked_fill(i[:, None] < i, float('-inf'))
return torch.einsum('...ij,...jd->...id', scores.softmax(-1), v)
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3))],
    ),
)
