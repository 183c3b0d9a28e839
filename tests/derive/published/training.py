"""Losses and layers as training code has them: loops over scales, targets made under `no_grad`, parts that are assigned, spectra."""

from tests.derive.cases import Case, index, p, r

TRAINING = (
    Case(
        "append_dims_precond",
        "x[B, C, L], sigma[B; const, positive], sigma_data: float = 0.5",
        """
sigma = sigma[(...,) + (None,) * (x.ndim - sigma.ndim)]
c_skip = sigma_data ** 2 / (sigma ** 2 + sigma_data ** 2)
c_in = (sigma ** 2 + sigma_data ** 2) ** -0.5
return c_skip * x + torch.tanh(c_in * x)
""",
        lambda: [(r(2, 3, 4), p(2), 0.5)],
    ),
    Case(
        "min_snr_weighted",
        "pred[B, C, L], target[B, C, L; const], snr[B; const, positive], snr_gamma: float = 5.0",
        """
weight = snr.flatten()
while len(weight.shape) < len(pred.shape):
    weight = weight.unsqueeze(-1)
weight = torch.stack([weight, snr_gamma * torch.ones_like(weight)], dim=1).min(dim=1)[0] / weight
return (weight * (pred - target) ** 2).mean(dim=list(range(1, len(pred.shape)))).mean()
""",
        lambda: [(r(2, 3, 4), r(2, 3, 4), 9 * p(2), 5.0)],
    ),
    Case(
        "dino_loss",
        "student[3, B, K], teacher[2, B, K; const], center[1, K; const], tps: float = 0.1, tpt: float = 0.04",
        """
student_out = student / tps
teacher_out = F.softmax((teacher - center) / tpt, dim=-1).detach()
total_loss = 0
n_loss_terms = 0
for iq in range(2):
    for v in range(3):
        if v == iq:
            continue
        loss = torch.sum(-teacher_out[iq] * F.log_softmax(student_out[v], dim=-1), dim=-1)
        total_loss += loss.mean()
        n_loss_terms += 1
total_loss /= n_loss_terms
return total_loss
""",
        lambda: [(r(3, 2, 4), r(2, 2, 4), r(1, 4), 0.1, 0.04)],
    ),
    Case(
        "multi_resolution_stft",
        "x[B, 32], y[B, 32; const]",
        """
loss = 0.0
for n_fft, hop in ((8, 2), (16, 5)):
    window = torch.hann_window(n_fft, device=x.device, dtype=x.dtype)
    x_mag = torch.stft(x, n_fft=n_fft, hop_length=hop, window=window, return_complex=True).abs().clamp(min=1e-5)
    y_mag = torch.stft(y, n_fft=n_fft, hop_length=hop, window=window, return_complex=True).abs().clamp(min=1e-5)
    loss += torch.norm(y_mag - x_mag, p="fro") / torch.norm(y_mag, p="fro")
    loss += F.l1_loss(torch.log(x_mag), torch.log(y_mag))
return loss
""",
        lambda: [(r(2, 32), r(2, 32))],
    ),
    Case(
        "triplane_features",
        "planes[3, C, H, W], coords[N, 3]",
        """
pairs = torch.stack((coords[:, [0, 1]], coords[:, [0, 2]], coords[:, [2, 1]]))
out = F.grid_sample(planes, pairs.unsqueeze(1), mode="bilinear", padding_mode="zeros", align_corners=False)
return out.squeeze(2).mean(0).t()
""",
        lambda: [(r(3, 2, 4, 5), r(3, 3).tanh() * 0.9)],
    ),
    Case(
        "asymmetric_multilabel",
        "logits[B, C], target[B, C; const], pos_weight[C; const, positive]?, weight[B, C; const]?",
        """
loss = F.binary_cross_entropy_with_logits(logits, target, weight=weight, pos_weight=pos_weight, reduction="none")
return loss.sum(1).mean()
""",
        lambda: [(r(2, 3), r(2, 3).sigmoid(), weight, None) for weight in (p(3), None)],
    ),
    Case(
        "sequence_log_probs",
        "logits[B, T, V], labels[B, T; index(V)], average: bool = False",
        """
labels = labels[:, 1:].clone()
logits = logits[:, :-1, :]
loss_mask = labels != 1
labels[labels == 1] = 0
per_token = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
if average:
    return (per_token * loss_mask).sum(-1) / loss_mask.sum(-1).clamp(min=1)
return (per_token * loss_mask).sum(-1)
""",
        lambda: [(r(2, 4, 3), index(3, 2, 4), average) for average in (False, True)],
    ),
    Case(
        "info_nce_in_batch",
        "query[N, D], key[N, D], negatives[M, D]?, temperature: float = 0.1",
        """
query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
if negatives is not None:
    negatives = F.normalize(negatives, dim=-1)
    logits = torch.cat([torch.sum(query * key, dim=1, keepdim=True), query @ negatives.transpose(-2, -1)], dim=1)
    labels = torch.zeros(len(logits), dtype=torch.long, device=query.device)
else:
    logits = query @ key.transpose(-2, -1)
    labels = torch.arange(len(query), device=query.device)
return F.cross_entropy(logits / temperature, labels)
""",
        lambda: [(r(3, 4), r(3, 4), item, 0.1) for item in (r(2, 4), None)],
    ),
    Case(
        "volume_weights",
        "sigma[R, S], dists[R, S; const, positive]",
        """
dists = torch.cat([dists[:, :-1], torch.Tensor([1e10]).to(dists).expand(dists[..., :1].shape)], -1)
alpha = 1. - torch.exp(-F.relu(sigma) * dists)
shifted = torch.cat([torch.ones((alpha.shape[0], 1)).to(alpha), 1. - alpha + 1e-10], -1)
return alpha * torch.cumprod(shifted, -1)[:, :-1]
""",
        lambda: [(r(2, 3), p(2, 3))],
    ),
    Case(
        "integrated_encoding",
        "mean[..., 3], var[..., 3; positive], min_deg: int = 0, max_deg: int = 3",
        """
scales = 2 ** torch.arange(min_deg, max_deg, dtype=mean.dtype, device=mean.device)
shape = mean.shape[:-1] + (-1,)
scaled_mean = torch.reshape(mean[..., None, :] * scales[:, None], shape)
scaled_var = torch.reshape(var[..., None, :] * scales[:, None] ** 2, shape)
x = torch.cat([scaled_mean, scaled_mean + 0.5 * math.pi], dim=-1)
return torch.exp(-0.5 * torch.cat([scaled_var] * 2, dim=-1)) * torch.sin(x)
""",
        lambda: [(r(2, 3), p(2, 3), 0, 3)],
    ),
    Case(
        "delta_rule_chunk",
        "k[B, T, D], v[B, T, E], beta[B, T]",
        """
T = k.shape[-2]
k = F.normalize(k, dim=-1)
mask = torch.triu(torch.ones(T, T, dtype=torch.bool, device=k.device), diagonal=0)
attn = ((k * beta[..., None]) @ k.transpose(-1, -2)).masked_fill(mask, 0)
attn = attn + torch.eye(T, dtype=attn.dtype, device=attn.device)
return torch.linalg.solve_triangular(attn, v * beta[..., None], upper=False, unitriangular=True)
""",
        lambda: [(r(2, 3, 4), r(2, 3, 2), r(2, 3))],
    ),
    Case(
        "dice_of_hard_targets",
        "logits[B, C, L], target[B, 1, L; index(C)], mask[B, 1, L; const]?, background: bool = False",
        """
probs = torch.softmax(logits, 1)
probs = probs if background else probs[:, 1:]
with torch.no_grad():
    onehot = torch.zeros(logits.shape, device=logits.device, dtype=logits.dtype)
    onehot.scatter_(1, target, 1)
    if not background:
        onehot = onehot[:, 1:]
    total = onehot.sum(-1) if mask is None else (onehot * mask).sum(-1)
overlap = (probs * onehot).sum(-1) if mask is None else (probs * onehot * mask).sum(-1)
return -((overlap.sum(0) + 1) / torch.clip(total.sum(0) + 1, 1e-8)).mean()
""",
        lambda: [
            (r(2, 3, 4), index(3, 2, 1, 4), mask, background)
            for mask, background in ((None, False), (p(2, 1, 4), True))
        ],
    ),
    Case(
        "teacher_by_addition",
        "x[B, C], y[B, C]",
        """
with torch.no_grad():
    target = torch.zeros_like(x)
    target.add_(y)
return ((x - target) ** 2).mean() + y.sum()
""",
        lambda: [(r(2, 3), r(2, 3))],
    ),
    Case(
        "depth_normals",
        "points[H, W, 3], normals[H, W, 3]",
        """
output = torch.zeros_like(points)
dx = torch.cat([points[2:, 1:-1] - points[:-2, 1:-1]], dim=0)
dy = torch.cat([points[1:-1, 2:] - points[1:-1, :-2]], dim=1)
output[1:-1, 1:-1, :] = F.normalize(torch.cross(dx, dy, dim=-1), dim=-1)
return (1 - (normals * output).sum(dim=-1)).mean()
""",
        lambda: [(r(4, 5, 3), r(4, 5, 3))],
    ),
    Case(
        "router_balance",
        "gate_logits[N, 4], attention_mask[N; const]?, top_k: int = 2",
        """
routing_weights = F.softmax(gate_logits, dim=-1)
_, selected = torch.topk(routing_weights, top_k, dim=-1)
expert_mask = F.one_hot(selected, 4).to(gate_logits.dtype)
if attention_mask is None:
    tokens = torch.mean(expert_mask, dim=0)
    router = torch.mean(routing_weights, dim=0)
else:
    tokens = torch.sum(expert_mask * attention_mask[:, None, None], dim=0) / attention_mask.abs().sum()
    router = torch.sum(routing_weights * attention_mask[:, None], dim=0) / attention_mask.abs().sum()
return torch.sum(tokens * router.unsqueeze(0)) * 4
""",
        lambda: [(r(3, 4), mask, 2) for mask in (p(3), None)],
    ),
    Case(
        "poly_norm_by_function",
        "x[..., D], weight[3], bias[1], eps: float = 1e-6",
        """
def norm(y):
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
return weight[0] * norm(x**3) + weight[1] * norm(x**2) + weight[2] * norm(x) + bias
""",
        lambda: [(r(2, 4), r(3), r(1), 1e-6)],
    ),
    Case(
        "reward_with_margin",
        "chosen[N], rejected[N], margin[N; const]?, center: float | None = 0.01",
        """
if margin is not None:
    loss = -F.logsigmoid(chosen - rejected - margin).mean()
else:
    loss = -F.logsigmoid(chosen - rejected).mean()
if center is not None:
    loss += center * torch.mean((chosen + rejected) ** 2)
return loss
""",
        lambda: [(r(3), r(3), margin, 0.01) for margin in (p(3), None)],
    ),
    Case(
        "grouped_gated_norm",
        "x[B, T, 8], z[B, T, 8]?, weight[8], eps: float = 1e-5, group_size: int = 4",
        """
dtype = x.dtype
if z is not None:
    x = x * F.silu(z)
x_group = x.view(*x.shape[:-1], x.shape[-1] // group_size, group_size)
rstd = torch.rsqrt(x_group.square().mean(dim=-1, keepdim=True) + eps)
return ((x_group * rstd).flatten(-2) * weight).to(dtype)
""",
        lambda: [(r(2, 3, 8), z, r(8), 1e-5, 4) for z in (r(2, 3, 8), None)],
    ),
    Case(
        "eikonal",
        "gradients[N, 3]",
        "return ((torch.linalg.norm(gradients, ord=2, dim=-1) - 1.0) ** 2).mean()",
        lambda: [(r(4, 3),)],
    ),
    Case(
        "vicreg_covariance",
        "x[N, D], y[N, D]",
        """
x = x - x.mean(dim=0)
y = y - y.mean(dim=0)
std_x = torch.sqrt(x.var(dim=0) + 0.0001)
cov_x = (x.T @ x) / (x.shape[0] - 1)
cov_y = (y.T @ y) / (x.shape[0] - 1)
n, m = cov_x.shape
off_x = cov_x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()
cov_loss = off_x.pow_(2).sum().div(n) + cov_y.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten().pow_(2).sum().div(n)
return torch.mean(F.relu(1 - std_x)) / 2 + cov_loss
""",
        lambda: [(r(5, 3), r(5, 3)), (r(4, 2), r(4, 2))],
    ),
    Case(
        "barlow_twins",
        "z1[N, D], z2[N, D], lambd: float = 0.0051",
        """
c = z1.T @ z2
c.div_(z1.shape[0])
on_diag = torch.diagonal(c).add_(-1).pow_(2).sum()
n, m = c.shape
assert n == m
off_diag = c.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten().pow_(2).sum()
return on_diag + lambd * off_diag
""",
        lambda: [(r(5, 3), r(5, 3), 0.0051), (r(4, 2), r(4, 2), 0.1)],
    ),
)
