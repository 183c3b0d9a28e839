"""Losses of likelihoods, rankings and metrics, as their papers and libraries write them."""

import torch

from tests.derive.cases import Case, index, p, r


def quality(*shape: int) -> torch.Tensor:
    """Targets of which some are zero."""
    return torch.where(index(2, *shape) > 0, p(*shape) - 0.5, 0.0)


DENSITIES = (
    Case(
        "multi_similarity",
        "x[N, D], labels[N; int], alpha: float = 2.0, beta: float = 10.0, lam: float = 0.5",
        """
emb = F.normalize(x, dim=1)
sim = emb @ emb.t()
same = labels[:, None] == labels[None, :]
pos_mask = same.to(sim.dtype) - torch.eye(sim.size(0), dtype=sim.dtype, device=sim.device)
neg_mask = (~same).to(sim.dtype)
pos = torch.log(1 + (torch.exp(-alpha * (sim - lam)) * pos_mask).sum(1)) / alpha
neg = torch.log(1 + (torch.exp(beta * (sim - lam)) * neg_mask).sum(1)) / beta
return (pos + neg).mean()
""",
        lambda: [(r(4, 3), torch.tensor([0, 1, 0, 1]), 2.0, 10.0, 0.5)],
    ),
    Case(
        "beta_nll",
        "mean[..., D], variance[..., D; positive], target[..., D; const], beta: float = 0.5",
        """
loss = 0.5 * ((target - mean) ** 2 / variance + variance.log())
if beta > 0:
    loss = loss * variance.detach() ** beta
return loss.sum(axis=-1)
""",
        lambda: [(r(3, 4), p(3, 4), r(3, 4), 0.5), (r(3, 4), p(3, 4), r(3, 4), 0.0)],
    ),
    Case(
        "student_t_nll",
        "df[N, D; positive], loc[N, D], scale[N, D; positive], y[N, D; const]",
        """
z = (y - loc) / scale
Z = torch.log(scale) + 0.5 * torch.log(df) + 0.5 * math.log(math.pi) + torch.lgamma(0.5 * df) - torch.lgamma(0.5 * (df + 1.0))
return (0.5 * (df + 1.0) * torch.log1p(z ** 2.0 / df) + Z).mean()
""",
        lambda: [(2 * p(3, 4), r(3, 4), p(3, 4), r(3, 4))],
    ),
    Case(
        "dirichlet_kl",
        "alpha[N, K; positive], prior[K; positive]",
        """
sum_p = alpha.sum(-1)
sum_q = prior.sum(-1)
t1 = sum_p.lgamma() - sum_q.lgamma()
t2 = (torch.lgamma(alpha) - torch.lgamma(prior)).sum(-1)
t3 = (alpha - prior) * (torch.digamma(alpha) - sum_p.digamma().unsqueeze(-1))
return t1 - t2 + t3.sum(-1)
""",
        lambda: [(p(3, 4), p(4))],
    ),
    Case(
        "zinb_log_prob",
        "x[N, G; const], mu[N, G; positive], theta[G; positive], pi[N, G], eps: float = 1e-8",
        """
softplus_pi = F.softplus(-pi)
log_theta_eps = torch.log(theta + eps)
log_theta_mu_eps = torch.log(theta + mu + eps)
pi_theta_log = -pi + theta * (log_theta_eps - log_theta_mu_eps)
case_zero = F.softplus(pi_theta_log) - softplus_pi
mul_case_zero = torch.mul((x < eps).type(x.dtype), case_zero)
case_non_zero = -softplus_pi + pi_theta_log + x * (torch.log(mu + eps) - log_theta_mu_eps) + torch.lgamma(x + theta) - torch.lgamma(theta) - torch.lgamma(x + 1)
mul_case_non_zero = torch.mul((x > eps).type(x.dtype), case_non_zero)
return mul_case_zero + mul_case_non_zero
""",
        lambda: [(index(3, 3, 4).double(), p(3, 4), p(4), r(3, 4), 1e-8)],
    ),
    Case(
        "varifocal",
        "pred[N, C], target[N, C; const], alpha: float = 0.75, gamma: float = 2.0, iou_weighted: bool = True",
        """
pred_sigmoid = pred.sigmoid()
positive = (target > 0.0).to(pred.dtype)
weight = target if iou_weighted else torch.ones_like(target)
focal_weight = weight * positive + alpha * (pred_sigmoid - target).abs().pow(gamma) * (1 - positive)
loss = F.binary_cross_entropy_with_logits(pred, target, reduction='none') * focal_weight
return loss.sum()
""",
        lambda: [
            (r(3, 4), quality(3, 4), 0.75, 2.0, True),
            (r(3, 4), quality(3, 4), 0.75, 2.0, False),
        ],
    ),
    Case(
        "distribution_focal",
        "pred[N, K], label[N; const]",
        """
dis_left = label.long()
dis_right = dis_left + 1
weight_left = dis_right.to(pred.dtype) - label
weight_right = label - dis_left.to(pred.dtype)
left = F.cross_entropy(pred, dis_left, reduction='none') * weight_left
right = F.cross_entropy(pred, dis_right, reduction='none') * weight_right
return (left + right).mean(-1, keepdim=True)
""",
        lambda: [(r(3, 4), p(3))],
    ),
    Case(
        "lovasz_hinge_flat",
        "logits[P], labels[P; const]",
        """
signs = 2.0 * labels - 1.0
errors = 1.0 - logits * signs
errors_sorted, perm = torch.sort(errors, dim=0, descending=True)
gt_sorted = labels[perm]
gts = gt_sorted.sum()
intersection = gts - gt_sorted.cumsum(0)
union = gts + (1 - gt_sorted).cumsum(0)
jaccard = 1.0 - intersection / union
grad = torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])
return torch.dot(F.relu(errors_sorted), grad)
""",
        lambda: [(r(5), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=torch.double))],
    ),
    Case(
        "crps_ensemble",
        "forecast[..., M], observation[...]",
        """
skill = (forecast - observation[..., None]).abs().mean(-1)
spread = (forecast.unsqueeze(-1) - forecast.unsqueeze(-2)).abs().mean(dim=(-2, -1))
return skill - 0.5 * spread
""",
        lambda: [(r(3, 4), r(3)), (r(2, 3, 4), r(2, 3))],
    ),
    Case(
        "orpo",
        "chosen[B; positive], rejected[B; positive], beta: float = 0.1",
        """
policy_chosen, policy_rejected = -chosen, -rejected
log_odds = (policy_chosen - policy_rejected) - (torch.log1p(-torch.exp(policy_chosen)) - torch.log1p(-torch.exp(policy_rejected)))
ratio = F.logsigmoid(log_odds)
losses = beta * ratio
return losses, beta * policy_chosen, beta * policy_rejected, torch.mean(log_odds)
""",
        lambda: [(p(4), p(4), 0.1)],
        "losses, chosen_rewards, rejected_rewards, log_odds",
    ),
    Case(
        "concordance_loss",
        "x[N, T], y[N, T]",
        """
mean_x, mean_y = x.mean(1, keepdim=True), y.mean(1, keepdim=True)
cov = ((x - mean_x) * (y - mean_y)).mean(1)
var_x = torch.var(x, dim=1, correction=0)
var_y = torch.var(y, dim=1, correction=0)
ccc = 2 * cov / (var_x + var_y + (mean_x - mean_y).squeeze(1) ** 2)
return 1 - ccc.mean()
""",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "stft_magnitude_losses",
        "x_mag[B, F, T; positive], y_mag[B, F, T; positive]",
        """
sc = torch.norm(y_mag - x_mag, p='fro') / torch.norm(y_mag, p='fro')
mag = F.l1_loss(torch.log(y_mag), torch.log(x_mag))
return sc, mag
""",
        lambda: [(p(2, 3, 4), p(2, 3, 4))],
        "sc, mag",
    ),
    Case(
        "si_sdr",
        "preds[..., T], target[..., T], zero_mean: bool = False",
        """
eps = torch.finfo(preds.dtype).eps
if zero_mean:
    target = target - torch.mean(target, dim=-1, keepdim=True)
    preds = preds - torch.mean(preds, dim=-1, keepdim=True)
alpha = (torch.sum(preds * target, dim=-1, keepdim=True) + eps) / (torch.sum(target ** 2, dim=-1, keepdim=True) + eps)
target_scaled = alpha * target
noise = target_scaled - preds
val = (torch.sum(target_scaled ** 2, dim=-1) + eps) / (torch.sum(noise ** 2, dim=-1) + eps)
return 10 * torch.log10(val)
""",
        lambda: [(r(3, 4), r(3, 4), False), (r(2, 3, 4), r(2, 3, 4), True)],
    ),
    Case(
        "dice_one_hot_ignore",
        "logits[N, C, H, W], target[N, H, W; index(C)], valid[N, H, W; bool], smooth: float = 1.0",
        """
probs = torch.softmax(logits, dim=1)
onehot = F.one_hot(target, logits.shape[1]).permute(0, 3, 1, 2).to(probs.dtype)
keep = valid.unsqueeze(1)
probs = probs * keep
onehot = onehot * keep
inter = (probs * onehot).sum(dim=(0, 2, 3))
card = (probs + onehot).sum(dim=(0, 2, 3))
score = (2.0 * inter + smooth) / (card + smooth).clamp_min(1e-7)
return (1.0 - score).mean()
""",
        lambda: [
            (r(2, 3, 2, 2), index(3, 2, 2, 2), index(4, 2, 2, 2) > 0, 1.0),
        ],
    ),
    Case(
        "dino_loss",
        "student[B, K], teacher[B, K; const], center[K; const], student_temp: float = 0.1, teacher_temp: float = 0.04",
        """
student_out = student / student_temp
teacher_out = F.softmax((teacher - center) / teacher_temp, dim=-1)
loss = torch.sum(-teacher_out * F.log_softmax(student_out, dim=-1), dim=-1)
return loss.mean()
""",
        lambda: [(r(3, 4), r(3, 4), r(4), 0.1, 0.04)],
    ),
    Case(
        "crf_nll",
        "emissions[B, 3, K], tags[B, 3; index(K)], transitions[K, K], start[K], end[K]",
        """
score = start[tags[:, 0]] + emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(1)
score = score + transitions[tags[:, :-1], tags[:, 1:]].sum(1) + end[tags[:, -1]]
alpha = start + emissions[:, 0]
alpha = torch.logsumexp(alpha.unsqueeze(2) + transitions + emissions[:, 1].unsqueeze(1), dim=1)
alpha = torch.logsumexp(alpha.unsqueeze(2) + transitions + emissions[:, 2].unsqueeze(1), dim=1)
log_z = torch.logsumexp(alpha + end, dim=1)
return (log_z - score).sum()
""",
        lambda: [(r(2, 3, 4), index(4, 2, 3), r(4, 4), r(4), r(4))],
    ),
    Case(
        "bpr_with_l2",
        "user[N, D], pos[N, D], neg[N, D], reg: float = 1e-2, gamma: float = 1e-10",
        """
pos_score = torch.mul(user, pos).sum(dim=1)
neg_score = torch.mul(user, neg).sum(dim=1)
mf_loss = -torch.log(gamma + torch.sigmoid(pos_score - neg_score)).mean()
emb_loss = (user.norm(2).pow(2) + pos.norm(2).pow(2) + neg.norm(2).pow(2)) / (2 * user.shape[0])
return mf_loss + reg * emb_loss
""",
        lambda: [(r(3, 4), r(3, 4), r(3, 4), 1e-2, 1e-10)],
    ),
    Case(
        "poincare_distance",
        "u[N, D; unit], v[N, D; unit], eps: float = 1e-5",
        """
sq_u = torch.clamp(torch.sum(u * u, dim=-1), 0, 1 - eps)
sq_v = torch.clamp(torch.sum(v * v, dim=-1), 0, 1 - eps)
sq_dist = torch.sum(torch.pow(u - v, 2), dim=-1)
x = sq_dist / ((1 - sq_u) * (1 - sq_v)) * 2 + 1
z = torch.sqrt(torch.pow(x, 2) - 1)
return torch.log(x + z)
""",
        lambda: [(0.3 * r(3, 4).tanh(), 0.3 * r(3, 4).tanh(), 1e-5)],
    ),
    Case(
        "rotate_score",
        "head[B, 1, D], relation[B, 1, R], tail[B, N, D], gamma: float = 12.0, embedding_range: float = 2.0",
        """
re_head, im_head = torch.chunk(head, 2, dim=2)
re_tail, im_tail = torch.chunk(tail, 2, dim=2)
phase_relation = relation / (embedding_range / math.pi)
re_relation = torch.cos(phase_relation)
im_relation = torch.sin(phase_relation)
re_score = re_head * re_relation - im_head * im_relation - re_tail
im_score = re_head * im_relation + im_head * re_relation - im_tail
score = torch.stack([re_score, im_score], dim=0).norm(dim=0)
return gamma - score.sum(dim=2)
""",
        lambda: [(r(2, 1, 4), r(2, 1, 2), r(2, 3, 4), 12.0, 2.0)],
    ),
    Case(
        "linear_cka",
        "x[N, P], y[N, Q]",
        """
n = x.shape[0]
H = torch.eye(n, dtype=x.dtype, device=x.device) - torch.ones(n, n, dtype=x.dtype, device=x.device) / n
K = H @ (x @ x.T) @ H
L = H @ (y @ y.T) @ H
hsic = torch.trace(K @ L)
return hsic / torch.sqrt(torch.trace(K @ K) * torch.trace(L @ L))
""",
        lambda: [(r(4, 2), r(4, 3))],
    ),
)
