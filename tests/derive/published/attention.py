"""Attention and positions as libraries of models write them."""

from tests.derive.cases import Case, index, p, r

ATTENTION = (
    Case(
        "sigmoid_attention",
        "q[B, H, S, D], k[B, H, T, D], v[B, H, T, D]",
        """
n = k.shape[-2]
scores = (q @ k.mT) / math.sqrt(q.shape[-1]) - math.log(n)
return torch.sigmoid(scores) @ v
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 4))],
    ),
    Case(
        "gemma_softcap",
        "query[B, H, S, D], key[B, K, T, D], value[B, K, T, D], mask[B, 1, S, T; const]?, scaling: float = 0.5, softcap: float | None = 50.0, n_rep: int = 2",
        """
batch, num_key_value_heads, slen, head_dim = key.shape
key_states = key[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim).reshape(batch, num_key_value_heads * n_rep, slen, head_dim)
value_states = value[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim).reshape(batch, num_key_value_heads * n_rep, slen, head_dim)
attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling
if softcap is not None:
    attn_weights = attn_weights / softcap
    attn_weights = torch.tanh(attn_weights)
    attn_weights = attn_weights * softcap
if mask is not None:
    attn_weights = attn_weights + mask
attn_weights = F.softmax(attn_weights, dim=-1).to(query.dtype)
attn_output = torch.matmul(attn_weights, value_states)
return attn_output.transpose(1, 2).contiguous()
""",
        lambda: [
            (r(2, 4, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 4), r(2, 1, 3, 5), 0.5, 5.0, 2),
            (r(2, 4, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 4), None, 0.5, None, 2),
        ],
    ),
    Case(
        "performer_features",
        "data[B, H, N, D], projection[M, D; const], eps: float = 1e-4",
        """
b, h, *_ = data.shape
data_normalizer = (data.shape[-1] ** -0.25)
ratio = (projection.shape[0] ** -0.5)
data_dash = torch.einsum('...id,jd->...ij', (data_normalizer * data), projection)
diag_data = data ** 2
diag_data = torch.sum(diag_data, dim=-1)
diag_data = (diag_data / 2.0) * (data_normalizer ** 2)
diag_data = diag_data.unsqueeze(dim=-1)
return ratio * (torch.exp(data_dash - diag_data - torch.amax(data_dash, dim=-1, keepdim=True).detach()) + eps)
""",
        lambda: [(r(2, 2, 3, 4), r(5, 4), 1e-4)],
    ),
    Case(
        "cosformer",
        "q[B, L, D], k[B, L, D], v[B, L, D], eps: float = 1e-6",
        """
q = F.relu(q)
k = F.relu(k)
seq_len = q.shape[1]
weight_index = (math.pi / 2 * torch.arange(1, seq_len + 1, device=q.device, dtype=q.dtype).reshape(1, -1, 1)) / seq_len
q_ = torch.cat([q * torch.sin(weight_index), q * torch.cos(weight_index)], dim=-1)
k_ = torch.cat([k * torch.sin(weight_index), k * torch.cos(weight_index)], dim=-1)
kv_ = torch.einsum('nld,nlm->ndm', k_, v)
z_ = 1 / torch.clamp_min(torch.einsum('nld,nd->nl', q_, torch.sum(k_, axis=1)), eps)
return torch.einsum('nld,ndm,nl->nlm', q_, kv_, z_)
""",
        lambda: [(r(2, 3, 4), r(2, 3, 4), r(2, 3, 4), 1e-6)],
    ),
    Case(
        "linear_attention_elu",
        "q[B, L, H, D], k[B, S, H, D], v[B, S, H, M], key_mask[B, S; const]?, eps: float = 1e-6",
        """
Q = F.elu(q) + 1
K = F.elu(k) + 1
if key_mask is not None:
    K = K * key_mask[:, :, None, None]
KV = torch.einsum('nshd,nshm->nhmd', K, v)
Z = 1 / (torch.einsum('nlhd,nhd->nlh', Q, K.sum(dim=1)) + eps)
V = torch.einsum('nlhd,nhmd,nlh->nlhm', Q, KV, Z)
return V.contiguous()
""",
        lambda: [
            (r(2, 3, 2, 4), r(2, 5, 2, 4), r(2, 5, 2, 3), p(2, 5), 1e-6),
            (r(2, 3, 2, 4), r(2, 5, 2, 4), r(2, 5, 2, 3), None, 1e-6),
        ],
    ),
    Case(
        "hf_rotate_half",
        "q[B, H, S, D], k[B, K, S, D], cos[B, S, D; const], sin[B, S, D; const], unsqueeze_dim: int = 1",
        """
cos = cos.unsqueeze(unsqueeze_dim)
sin = sin.unsqueeze(unsqueeze_dim)
q1 = q[..., : q.shape[-1] // 2]
q2 = q[..., q.shape[-1] // 2 :]
k1 = k[..., : k.shape[-1] // 2]
k2 = k[..., k.shape[-1] // 2 :]
q_embed = (q * cos) + (torch.cat((-q2, q1), dim=-1) * sin)
k_embed = (k * cos) + (torch.cat((-k2, k1), dim=-1) * sin)
return q_embed, k_embed
""",
        lambda: [(r(2, 2, 3, 4), r(2, 1, 3, 4), r(2, 3, 4), r(2, 3, 4), 1)],
        "q_embed, k_embed",
    ),
    Case(
        "rope_interleaved_computed",
        "x[B, S, D], base: float = 10000.0",
        """
bsz, seq_len, dim = x.shape
inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2, device=x.device, dtype=x.dtype) / dim))
t = torch.arange(seq_len, device=x.device, dtype=x.dtype)
freqs = torch.outer(t, inv_freq)
cos, sin = freqs.cos(), freqs.sin()
x1 = x[..., 0::2]
x2 = x[..., 1::2]
return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1).flatten(-2)
""",
        lambda: [(r(2, 3, 4), 10000.0)],
    ),
    Case(
        "partial_rotary",
        "x[B, H, S, D], cos[S, R; const], sin[S, R; const]",
        """
rotary_dim = cos.shape[-1]
x_rot, x_pass = x[..., :rotary_dim], x[..., rotary_dim:]
x1, x2 = x_rot.chunk(2, dim=-1)
rotated = torch.cat((-x2, x1), dim=-1)
x_rot = x_rot * cos + rotated * sin
return torch.cat((x_rot, x_pass), dim=-1)
""",
        lambda: [(r(2, 2, 3, 6), r(3, 4), r(3, 4))],
    ),
    Case(
        "alibi_slopes_bias",
        "scores[B, H, S, T], slopes[H; const]",
        """
q_len, k_len = scores.shape[-2:]
context_position = torch.arange(q_len, device=scores.device)[:, None]
memory_position = torch.arange(k_len, device=scores.device)[None, :]
relative_position = torch.abs(memory_position - context_position)
alibi = slopes.view(1, -1, 1, 1) * -relative_position
causal = memory_position > context_position
scores = (scores + alibi).masked_fill(causal, torch.finfo(scores.dtype).min)
return scores.softmax(dim=-1)
""",
        lambda: [(r(2, 2, 3, 4), p(2))],
    ),
    Case(
        "t5_bias",
        "scores[B, H, S, T], table[K, H], buckets[S, T; index(K)]",
        """
values = F.embedding(buckets, table)
values = values.permute([2, 0, 1]).unsqueeze(0)
scores = scores + values
return F.softmax(scores, dim=-1).type_as(scores)
""",
        lambda: [(r(2, 3, 4, 5), r(6, 3), index(6, 4, 5))],
    ),
    Case(
        "swin_window",
        "qkv[B, N, E], table[R, H], index[N, N; index(R)], mask[W, N, N; const]?, num_heads: int = 2, scale: float = 0.5",
        """
B_, N, E = qkv.shape
qkv = qkv.reshape(B_, N, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
q, k, v = qkv[0], qkv[1], qkv[2]
q = q * scale
attn = (q @ k.transpose(-2, -1))
bias = table[index.view(-1)].view(N, N, -1)
bias = bias.permute(2, 0, 1).contiguous()
attn = attn + bias.unsqueeze(0)
if mask is not None:
    nW = mask.shape[0]
    attn = attn.view(B_ // nW, nW, num_heads, N, N) + mask.unsqueeze(1).unsqueeze(0)
    attn = attn.view(-1, num_heads, N, N)
attn = attn.softmax(dim=-1)
return (attn @ v).transpose(1, 2).reshape(B_, N, -1)
""",
        lambda: [
            (r(4, 3, 12), r(5, 2), index(5, 3, 3), r(2, 3, 3), 2, 0.5),
            (r(4, 3, 12), r(5, 2), index(5, 3, 3), None, 2, 0.5),
        ],
    ),
    Case(
        "cross_covariance",
        "q[B, H, D, N], k[B, H, D, N], v[B, H, D, N], temperature[H, 1, 1]",
        """
q = torch.nn.functional.normalize(q, dim=-1)
k = torch.nn.functional.normalize(k, dim=-1)
attn = (q @ k.transpose(-2, -1)) * temperature
attn = attn.softmax(dim=-1)
return (attn @ v).permute(0, 3, 1, 2).reshape(q.shape[0], q.shape[3], -1)
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 1, 1))],
    ),
    Case(
        "differential_attention",
        "q1[B, H, N, D], k1[B, H, N, D], q2[B, H, N, D], k2[B, H, N, D], v[B, H, N, E], lq1[D], lk1[D], lq2[D], lk2[D], lambda_init: float = 0.8",
        """
mask = torch.triu(torch.zeros([q1.shape[2], q1.shape[2]], device=q1.device, dtype=q1.dtype).fill_(float('-inf')), 1)
a1 = F.softmax(q1 @ k1.transpose(-1, -2) * q1.shape[-1] ** -0.5 + mask, dim=-1)
a2 = F.softmax(q2 @ k2.transpose(-1, -2) * q2.shape[-1] ** -0.5 + mask, dim=-1)
lambda_1 = torch.exp(torch.sum(lq1 * lk1, dim=-1)).type_as(q1)
lambda_2 = torch.exp(torch.sum(lq2 * lk2, dim=-1)).type_as(q1)
lambda_full = lambda_1 - lambda_2 + lambda_init
return (a1 - lambda_full * a2) @ v * (1 - lambda_init)
""",
        lambda: [
            (*(r(2, 2, 3, 4) for _ in range(4)), r(2, 2, 3, 5))
            + (*(r(4) / 2 for _ in range(4)), 0.8)
        ],
    ),
    Case(
        "mla_absorb",
        "q_nope[B, S, H, D], q_pe[B, S, H, R], kv_cache[B, T, C], pe_cache[B, T, R], wkv_b[H, E, C], scale: float = 0.3, nope: int = 4",
        """
q_nope = torch.einsum('bshd,hdc->bshc', q_nope, wkv_b[:, :nope])
scores = (torch.einsum('bshc,btc->bsht', q_nope, kv_cache) + torch.einsum('bshr,btr->bsht', q_pe, pe_cache)) * scale
scores = scores.softmax(dim=-1, dtype=torch.float64).type_as(q_nope)
x = torch.einsum('bsht,btc->bshc', scores, kv_cache)
x = torch.einsum('bshc,hdc->bshd', x, wkv_b[:, nope:])
return x.flatten(2)
""",
        lambda: [
            (r(2, 3, 2, 4), r(2, 3, 2, 2), r(2, 5, 3), r(2, 5, 2), r(2, 6, 3), 0.3, 4)
        ],
    ),
    Case(
        "attention_pool",
        "x[B, N, D], token[1, 1, D], wq[D, D], wkv[E, D], num_heads: int = 2",
        """
B, N, C = x.shape
q = F.linear(token.expand(B, -1, -1), wq).reshape(B, 1, num_heads, C // num_heads).transpose(1, 2)
kv = F.linear(x, wkv).reshape(B, N, 2, num_heads, C // num_heads).permute(2, 0, 3, 1, 4)
k, v = kv.unbind(0)
q *= (C // num_heads) ** -0.5
attn = q @ k.transpose(-2, -1)
attn = attn.softmax(-1)
return (attn @ v).transpose(1, 2).reshape(B, C)
""",
        lambda: [(r(2, 3, 4), r(1, 1, 4), r(4, 4), r(8, 4), 2)],
    ),
)
