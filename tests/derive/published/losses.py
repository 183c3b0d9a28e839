"""Losses as their papers and libraries write them."""

import torch

from tests.derive.cases import Case, index, p, r


def boxes(count: int) -> torch.Tensor:
    """Boxes as corners."""
    corner = r(count, 2)
    return torch.cat([corner, corner + p(count, 2)], -1)


def labels(*shape: int) -> torch.Tensor:
    """Zeros and ones."""
    return index(2, *shape).double()


CLASSES = (
    Case(
        "cosface",
        "x[N, D], weight[C, D], label[N; index(C)], s: float = 30.0, m: float = 0.4",
        """
cosine = F.linear(F.normalize(x), F.normalize(weight))
phi = cosine - m
one_hot = torch.zeros_like(cosine)
one_hot = one_hot.scatter(1, label.view(-1, 1).long(), 1)
output = (one_hot * phi) + ((1.0 - one_hot) * cosine)
output *= s
return F.cross_entropy(output, label)
""",
        lambda: [(r(3, 4), r(5, 4), index(5, 3), 30.0, 0.4)],
    ),
    Case(
        "arcface_easy_margin",
        "x[N, D], weight[C, D], label[N; index(C)], s: float = 30.0, m: float = 0.5, easy_margin: bool = False",
        """
cosine = F.linear(F.normalize(x), F.normalize(weight))
sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(0, 1))
phi = cosine * math.cos(m) - sine * math.sin(m)
if easy_margin:
    phi = torch.where(cosine > 0, phi, cosine)
else:
    phi = torch.where(cosine > math.cos(math.pi - m), phi, cosine - math.sin(math.pi - m) * m)
one_hot = F.one_hot(label, num_classes=weight.shape[0]).to(cosine.dtype)
return (one_hot * phi + (1.0 - one_hot) * cosine) * s
""",
        lambda: [
            (r(3, 4), r(5, 4), index(5, 3), 30.0, 0.5, False),
            (r(3, 4), r(5, 4), index(5, 3), 30.0, 0.5, True),
        ],
    ),
    Case(
        "circle_loss",
        "sp[N], sn[M], m: float = 0.25, gamma: float = 4.0",
        """
ap = torch.clamp_min(-sp.detach() + 1 + m, min=0.)
an = torch.clamp_min(sn.detach() + m, min=0.)
delta_p = 1 - m
delta_n = m
logit_p = -ap * (sp - delta_p) * gamma
logit_n = an * (sn - delta_n) * gamma
return F.softplus(torch.logsumexp(logit_n, dim=0) + torch.logsumexp(logit_p, dim=0))
""",
        lambda: [(r(3), r(4), 0.25, 4.0)],
    ),
    Case(
        "sup_con",
        "features[N, D], labels[N; int], temperature: float = 0.5",
        """
labels = labels.contiguous().view(-1, 1)
mask = torch.eq(labels, labels.T).to(features.dtype)
anchor_dot_contrast = torch.div(torch.matmul(features, features.T), temperature)
logits_max, _ = torch.max(anchor_dot_contrast, dim=1, keepdim=True)
logits = anchor_dot_contrast - logits_max.detach()
logits_mask = 1 - torch.eye(features.shape[0], dtype=features.dtype, device=features.device)
mask = mask * logits_mask
exp_logits = torch.exp(logits) * logits_mask
log_prob = logits - torch.log(exp_logits.sum(1, keepdim=True))
mask_pos_pairs = mask.sum(1)
mask_pos_pairs = torch.where(mask_pos_pairs < 1e-6, 1, mask_pos_pairs)
mean_log_prob_pos = (mask * log_prob).sum(1) / mask_pos_pairs
return -mean_log_prob_pos.mean()
""",
        lambda: [(r(4, 3), torch.tensor([0, 1, 0, 1]), 0.5)],
    ),
    Case(
        "nt_xent_masked",
        "z_i[N, D], z_j[N, D], temperature: float = 0.5",
        """
N = 2 * z_i.shape[0]
z = torch.cat((z_i, z_j), dim=0)
sim = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2) / temperature
sim_i_j = torch.diag(sim, z_i.shape[0])
sim_j_i = torch.diag(sim, -z_i.shape[0])
positive = torch.cat((sim_i_j, sim_j_i), dim=0)
self_mask = torch.eye(N, dtype=torch.bool, device=sim.device)
sim = sim.masked_fill(self_mask, -9e15)
return (-positive + torch.logsumexp(sim, dim=-1)).mean()
""",
        lambda: [(r(3, 4), r(3, 4), 0.5)],
    ),
    Case(
        "vicreg",
        "x[N, D], y[N, D], sim_coeff: float = 25.0, std_coeff: float = 25.0, cov_coeff: float = 1.0",
        """
repr_loss = F.mse_loss(x, y)
x = x - x.mean(dim=0)
y = y - y.mean(dim=0)
std_x = torch.sqrt(x.var(dim=0) + 0.0001)
std_y = torch.sqrt(y.var(dim=0) + 0.0001)
std_loss = torch.mean(F.relu(1 - std_x)) / 2 + torch.mean(F.relu(1 - std_y)) / 2
batch_size, num_features = x.shape
cov_x = (x.T @ x) / (batch_size - 1)
cov_y = (y.T @ y) / (batch_size - 1)
off_x = cov_x.flatten()[:-1].view(num_features - 1, num_features + 1)[:, 1:].flatten()
off_y = cov_y.flatten()[:-1].view(num_features - 1, num_features + 1)[:, 1:].flatten()
cov_loss = off_x.pow_(2).sum().div(num_features) + off_y.pow(2).sum().div(num_features)
return sim_coeff * repr_loss + std_coeff * std_loss + cov_coeff * cov_loss
""",
        lambda: [(r(4, 3), r(4, 3), 25.0, 25.0, 1.0)],
    ),
    Case(
        "barlow",
        "z_a[N, D], z_b[N, D], lambda_param: float = 5e-3",
        """
z_a_norm = (z_a - z_a.mean(0)) / z_a.std(0)
z_b_norm = (z_b - z_b.mean(0)) / z_b.std(0)
N = z_a.size(0)
D = z_a.size(1)
c = torch.mm(z_a_norm.T, z_b_norm) / N
c_diff = (c - torch.eye(D, device=c.device)).pow(2)
off_diagonal = ~torch.eye(D, dtype=bool, device=c.device)
c_diff = torch.where(off_diagonal, c_diff * lambda_param, c_diff)
return c_diff.sum()
""",
        lambda: [(r(4, 3), r(4, 3), 5e-3)],
    ),
    Case(
        "focal_tversky",
        "inputs, targets[; const], smooth: float = 1.0, alpha: float = 0.5, beta: float = 0.5, gamma: float = 1.5",
        """
inputs = F.sigmoid(inputs)
inputs = inputs.view(-1)
targets = targets.view(-1)
TP = (inputs * targets).sum()
FP = ((1 - targets) * inputs).sum()
FN = (targets * (1 - inputs)).sum()
Tversky = (TP + smooth) / (TP + alpha * FP + beta * FN + smooth)
return (1 - Tversky) ** gamma
""",
        lambda: [(r(3, 4), labels(3, 4), 1.0, 0.5, 0.5, 1.5)],
    ),
    Case(
        "generalized_ce",
        "logits[N, C], targets[N; index(C)], q: float = 0.7",
        """
pred = F.softmax(logits, dim=1)
pred = torch.clamp(pred, min=1e-7, max=1.0)
label_one_hot = F.one_hot(targets, logits.size(1)).float().to(pred.device)
gce = (1. - torch.pow(torch.sum(label_one_hot * pred, dim=1), q)) / q
return gce.mean()
""",
        lambda: [(r(3, 5), index(5, 3), 0.7)],
    ),
    Case(
        "symmetric_ce",
        "pred[N, C], labels[N; index(C)], alpha: float = 1.0, beta: float = 0.1",
        """
ce = F.cross_entropy(pred, labels)
pred = F.softmax(pred, dim=1)
pred = torch.clamp(pred, min=1e-7, max=1.0)
label_one_hot = F.one_hot(labels, pred.shape[1]).to(pred)
label_one_hot = torch.clamp(label_one_hot, min=1e-4, max=1.0)
rce = (-1 * torch.sum(pred * torch.log(label_one_hot), dim=1))
return alpha * ce + beta * rce.mean()
""",
        lambda: [(r(3, 5), index(5, 3), 1.0, 0.1)],
    ),
    Case(
        "edl_mse",
        "logits[N, K], target[N, K; const], annealing: float = 0.5",
        """
evidence = F.relu(logits)
alpha = evidence + 1
S = torch.sum(alpha, dim=1, keepdim=True)
loglikelihood_err = torch.sum((target - (alpha / S)) ** 2, dim=1, keepdim=True)
loglikelihood_var = torch.sum(alpha * (S - alpha) / (S * S * (S + 1)), dim=1, keepdim=True)
kl_alpha = (alpha - 1) * (1 - target) + 1
ones = torch.ones([1, logits.shape[1]], dtype=logits.dtype, device=logits.device)
sum_alpha = torch.sum(kl_alpha, dim=1, keepdim=True)
first_term = torch.lgamma(sum_alpha) - torch.lgamma(kl_alpha).sum(dim=1, keepdim=True) + torch.lgamma(ones).sum(dim=1, keepdim=True) - torch.lgamma(ones.sum(dim=1, keepdim=True))
second_term = (kl_alpha - ones).mul(torch.digamma(kl_alpha) - torch.digamma(sum_alpha)).sum(dim=1, keepdim=True)
return torch.mean(loglikelihood_err + loglikelihood_var + annealing * (first_term + second_term))
""",
        lambda: [(r(3, 4), torch.eye(4).double()[:3], 0.5)],
    ),
    Case(
        "evidential_regression",
        "gamma, v[; positive], alpha[; positive], beta[; positive], y[; const], lam: float = 0.01",
        """
two_blambda = 2 * beta * (1 + v)
nll = 0.5 * torch.log(math.pi / v) - alpha * torch.log(two_blambda) + (alpha + 0.5) * torch.log(v * (y - gamma) ** 2 + two_blambda) + torch.lgamma(alpha) - torch.lgamma(alpha + 0.5)
error = torch.abs(y - gamma)
evi = 2 * v + alpha
return (nll + lam * error * evi).mean()
""",
        lambda: [(r(3, 4), p(3, 4), 1 + p(3, 4), p(3, 4), r(3, 4), 0.01)],
    ),
    Case(
        "router_z_loss",
        "router_logits[G, T, E]",
        """
num_groups, tokens_per_group, _ = router_logits.shape
log_z = torch.logsumexp(router_logits, dim=-1)
z_loss = log_z ** 2
return torch.sum(z_loss) / (num_groups * tokens_per_group)
""",
        lambda: [(r(2, 3, 4),)],
    ),
    Case(
        "load_balancing",
        "router_logits[T, E], top_k: int = 2",
        """
num_experts = router_logits.shape[-1]
routing_weights = torch.nn.functional.softmax(router_logits, dim=-1)
_, selected_experts = torch.topk(routing_weights, top_k, dim=-1)
expert_mask = torch.nn.functional.one_hot(selected_experts, num_experts)
tokens_per_expert = torch.mean(expert_mask.to(router_logits.dtype), dim=0)
router_prob_per_expert = torch.mean(routing_weights, dim=0)
return torch.sum(tokens_per_expert * router_prob_per_expert.unsqueeze(0)) * num_experts
""",
        lambda: [(r(3, 4), 2)],
    ),
    Case(
        "kd_kl_div",
        "student_logits[N, C], teacher_logits[N, C; const], labels[N; index(C)], T: float = 4.0, alpha: float = 0.9",
        """
soft = F.kl_div(F.log_softmax(student_logits / T, dim=1), F.softmax(teacher_logits / T, dim=1), reduction='batchmean') * (alpha * T * T)
return soft + F.cross_entropy(student_logits, labels) * (1. - alpha)
""",
        lambda: [(r(3, 5), r(3, 5), index(5, 3), 4.0, 0.9)],
    ),
    Case(
        "ldam",
        "x[N, C], m_list[C; const], target[N; index(C)], s: float = 30.0",
        """
index = torch.zeros_like(x, dtype=torch.bool)
index = index.scatter(1, target.view(-1, 1), 1)
batch_m = torch.matmul(m_list[None, :], index.to(x.dtype).transpose(0, 1))
batch_m = batch_m.view((-1, 1))
x_m = x - batch_m
output = torch.where(index, x_m, x)
return F.cross_entropy(s * output, target)
""",
        lambda: [(r(3, 5), p(5), index(5, 3), 30.0)],
    ),
    Case(
        "proxy_anchor",
        "x[N, D], proxies[C, D], labels[N; index(C)], mrg: float = 0.1, alpha: float = 4.0",
        """
cos = F.linear(F.normalize(x, p=2, dim=1), F.normalize(proxies, p=2, dim=1))
P_one_hot = F.one_hot(labels, proxies.size(0))
N_one_hot = 1 - P_one_hot
pos_exp = torch.exp(-alpha * (cos - mrg))
neg_exp = torch.exp(alpha * (cos + mrg))
P_sim_sum = torch.where(P_one_hot == 1, pos_exp, torch.zeros_like(pos_exp)).sum(dim=0)
N_sim_sum = torch.where(N_one_hot == 1, neg_exp, torch.zeros_like(neg_exp)).sum(dim=0)
pos_term = torch.log(1 + P_sim_sum).sum() / proxies.size(0)
neg_term = torch.log(1 + N_sim_sum).sum() / proxies.size(0)
return pos_term + neg_term
""",
        lambda: [(r(3, 4), r(5, 4), index(5, 3), 0.1, 4.0)],
    ),
)

REGRESSION = (
    Case(
        "ciou",
        "pred[N, 4], target[N, 4; const], eps: float = 1e-7",
        """
lt = torch.max(pred[:, :2], target[:, :2])
rb = torch.min(pred[:, 2:], target[:, 2:])
wh = (rb - lt).clamp(min=0)
overlap = wh[:, 0] * wh[:, 1]
ap = (pred[:, 2] - pred[:, 0]) * (pred[:, 3] - pred[:, 1])
ag = (target[:, 2] - target[:, 0]) * (target[:, 3] - target[:, 1])
union = ap + ag - overlap + eps
ious = overlap / union
enclose_x1y1 = torch.min(pred[:, :2], target[:, :2])
enclose_x2y2 = torch.max(pred[:, 2:], target[:, 2:])
enclose_wh = (enclose_x2y2 - enclose_x1y1).clamp(min=0)
cw = enclose_wh[:, 0]
ch = enclose_wh[:, 1]
c2 = cw ** 2 + ch ** 2 + eps
b1_x1, b1_y1, b1_x2, b1_y2 = pred.unbind(-1)
b2_x1, b2_y1, b2_x2, b2_y2 = target.unbind(-1)
w1, h1 = b1_x2 - b1_x1, b1_y2 - b1_y1 + eps
w2, h2 = b2_x2 - b2_x1, b2_y2 - b2_y1 + eps
left = ((b2_x1 + b2_x2) - (b1_x1 + b1_x2)) ** 2 / 4
right = ((b2_y1 + b2_y2) - (b1_y1 + b1_y2)) ** 2 / 4
rho2 = left + right
factor = 4 / math.pi ** 2
v = factor * torch.pow(torch.atan(w2 / h2) - torch.atan(w1 / h1), 2)
alpha = ((ious > 0.5) * v / (1 - ious + v)).detach()
cious = ious - (rho2 / c2 + alpha * v)
return 1 - cious.clamp(min=-1.0, max=1.0)
""",
        lambda: [(boxes(3), boxes(3), 1e-7)],
    ),
    Case(
        "diou",
        "b1[N, 4], b2[N, 4], eps: float = 1e-7, reduction: str = 'mean'",
        """
x1, y1, x2, y2 = b1.unbind(dim=-1)
x1g, y1g, x2g, y2g = b2.unbind(dim=-1)
xkis1 = torch.max(x1, x1g)
ykis1 = torch.max(y1, y1g)
xkis2 = torch.min(x2, x2g)
ykis2 = torch.min(y2, y2g)
intsct = torch.where((xkis2 > xkis1) & (ykis2 > ykis1), (xkis2 - xkis1) * (ykis2 - ykis1), 0.0)
union = (x2 - x1) * (y2 - y1) + (x2g - x1g) * (y2g - y1g) - intsct
iou = intsct / (union + eps)
xc1 = torch.min(x1, x1g)
yc1 = torch.min(y1, y1g)
xc2 = torch.max(x2, x2g)
yc2 = torch.max(y2, y2g)
diag_len = ((xc2 - xc1) ** 2) + ((yc2 - yc1) ** 2) + eps
x_p = (x2 + x1) / 2
y_p = (y2 + y1) / 2
x_g = (x1g + x2g) / 2
y_g = (y1g + y2g) / 2
distance = ((x_p - x_g) ** 2) + ((y_p - y_g) ** 2)
loss = 1 - iou + (distance / diag_len)
if reduction == 'mean':
    loss = loss.mean() if loss.numel() > 0 else 0.0 * loss.sum()
elif reduction == 'sum':
    loss = loss.sum()
return loss
""",
        lambda: [
            (boxes(3), boxes(3), 1e-7, "mean"),
            (boxes(3), boxes(3), 1e-7, "sum"),
            (boxes(3), boxes(3), 1e-7, "none"),
        ],
    ),
    Case(
        "kto",
        "policy_chosen[N], policy_rejected[N], ref_chosen[N; const], ref_rejected[N; const], kl[1; const], beta: float = 0.1, desirable: float = 1.0, undesirable: float = 1.0",
        """
chosen_logratios = policy_chosen - ref_chosen
chosen_losses = 1 - F.sigmoid(beta * (chosen_logratios - kl))
rejected_logratios = policy_rejected - ref_rejected
rejected_losses = 1 - F.sigmoid(beta * (kl - rejected_logratios))
losses = torch.cat((desirable * chosen_losses, undesirable * rejected_losses), 0)
return losses.nanmean()
""",
        lambda: [(r(3), r(3), r(3), r(3), p(1), 0.1, 1.0, 1.0)],
    ),
    Case(
        "preference_losses",
        "pi_logratios[N], ref_logratios[N; const], beta: float = 0.1, label_smoothing: float = 0.0, loss_type: str = 'sigmoid'",
        """
logits = pi_logratios - ref_logratios
if loss_type == 'sigmoid':
    losses = -F.logsigmoid(beta * logits) * (1 - label_smoothing) - F.logsigmoid(-beta * logits) * label_smoothing
elif loss_type == 'hinge':
    losses = torch.relu(1 - beta * logits)
elif loss_type == 'ipo':
    losses = (logits - 1 / (2 * beta)) ** 2
else:
    losses = -F.logsigmoid(logits)
return losses.mean()
""",
        lambda: [
            (r(4), r(4), 0.1, 0.1, kind)
            for kind in ("sigmoid", "hinge", "ipo", "other")
        ],
    ),
    Case(
        "grpo",
        "per_token_logps[B, T], old_logps[B, T; const], ref_logps[B, T; const], advantages[B; const], completion_mask[B, T; const], epsilon_low: float = 0.2, epsilon_high: float = 0.2, beta: float = 0.04",
        """
per_token_kl = torch.exp(ref_logps - per_token_logps) - (ref_logps - per_token_logps) - 1
coef_1 = torch.exp(per_token_logps - old_logps)
coef_2 = torch.clamp(coef_1, 1 - epsilon_low, 1 + epsilon_high)
per_token_loss1 = coef_1 * advantages.unsqueeze(1)
per_token_loss2 = coef_2 * advantages.unsqueeze(1)
per_token_loss = -torch.min(per_token_loss1, per_token_loss2)
if beta != 0.0:
    per_token_loss = per_token_loss + beta * per_token_kl
return ((per_token_loss * completion_mask).sum(-1) / completion_mask.sum(-1).clamp(min=1.0)).mean()
""",
        lambda: [
            (r(2, 3), r(2, 3), r(2, 3), r(2), labels(2, 3), 0.2, 0.2, 0.04),
            (r(2, 3), r(2, 3), r(2, 3), r(2), labels(2, 3), 0.2, 0.2, 0.0),
        ],
    ),
    Case(
        "ppo_value_clipped",
        "values[B], old_values[B; const], returns[B; const], cliprange: float = 0.2",
        """
values_clipped = torch.clamp(values, old_values - cliprange, old_values + cliprange)
vf_loss1 = (values - returns) ** 2
vf_loss2 = (values_clipped - returns) ** 2
return 0.5 * torch.mean(torch.max(vf_loss1, vf_loss2))
""",
        lambda: [(r(5), r(5), r(5), 0.2)],
    ),
    Case(
        "sinkhorn_divergence",
        "x[N, D], y[M, D], eps: float = 0.5",
        """
C = torch.sum((torch.abs(x.unsqueeze(-2) - y.unsqueeze(-3))) ** 2, -1)
mu = torch.empty(x.shape[0], dtype=x.dtype, device=x.device).fill_(1.0 / x.shape[0])
nu = torch.empty(y.shape[0], dtype=x.dtype, device=x.device).fill_(1.0 / y.shape[0])
u = torch.zeros_like(mu)
v = torch.zeros_like(nu)
u = eps * (torch.log(mu + 1e-8) - torch.logsumexp((-C + u.unsqueeze(-1) + v.unsqueeze(-2)) / eps, dim=-1)) + u
v = eps * (torch.log(nu + 1e-8) - torch.logsumexp(((-C + u.unsqueeze(-1) + v.unsqueeze(-2)) / eps).transpose(-2, -1), dim=-1)) + v
u = eps * (torch.log(mu + 1e-8) - torch.logsumexp((-C + u.unsqueeze(-1) + v.unsqueeze(-2)) / eps, dim=-1)) + u
v = eps * (torch.log(nu + 1e-8) - torch.logsumexp(((-C + u.unsqueeze(-1) + v.unsqueeze(-2)) / eps).transpose(-2, -1), dim=-1)) + v
pi = torch.exp((-C + u.unsqueeze(-1) + v.unsqueeze(-2)) / eps)
return torch.sum(pi * C, dim=(-2, -1))
""",
        lambda: [(r(3, 2), r(4, 2), 0.5)],
    ),
    Case(
        "sliced_wasserstein",
        "x[N, D], y[N, D], theta[L, D; const]",
        """
xproj = torch.matmul(x, theta.transpose(0, 1))
yproj = torch.matmul(y, theta.transpose(0, 1))
one_dists = (torch.sort(xproj, dim=0)[0] - torch.sort(yproj, dim=0)[0])
return torch.sqrt(torch.mean(torch.pow(one_dists, 2)) + 1e-9)
""",
        lambda: [(r(4, 3), r(4, 3), r(5, 3))],
    ),
    Case(
        "ssim_map",
        "img1[B, C, H, W], img2[B, C, H, W], k: int = 3",
        """
mu1 = F.avg_pool2d(img1, k, 1)
mu2 = F.avg_pool2d(img2, k, 1)
mu1_sq, mu2_sq, mu1_mu2 = mu1.pow(2), mu2.pow(2), mu1 * mu2
sigma1_sq = F.avg_pool2d(img1 * img1, k, 1) - mu1_sq
sigma2_sq = F.avg_pool2d(img2 * img2, k, 1) - mu2_sq
sigma12 = F.avg_pool2d(img1 * img2, k, 1) - mu1_mu2
C1, C2 = 0.01 ** 2, 0.03 ** 2
ssim_map = ((2 * mu1_mu2 + C1) * (2 * sigma12 + C2)) / ((mu1_sq + mu2_sq + C1) * (sigma1_sq + sigma2_sq + C2))
return ssim_map.mean((1, 2, 3))
""",
        lambda: [(r(2, 2, 4, 5), r(2, 2, 4, 5), 3)],
    ),
    Case(
        "silog",
        "pred[B, H, W; positive], target[B, H, W; positive, const], mask[B, H, W; bool], lambd: float = 0.5",
        """
diff_log = torch.log(target[mask]) - torch.log(pred[mask])
return torch.sqrt(torch.pow(diff_log, 2).mean() - lambd * torch.pow(diff_log.mean(), 2))
""",
        lambda: [(p(2, 3, 4), p(2, 3, 4), torch.rand(2, 3, 4) > 0.3, 0.5)],
    ),
    Case(
        "berhu",
        "pred, target",
        """
diff = torch.abs(target - pred)
delta = 0.2 * torch.max(diff).detach()
part1 = torch.where(diff <= delta, diff, torch.zeros_like(diff))
part2 = torch.where(diff > delta, (diff ** 2 + delta ** 2) / (2. * delta), torch.zeros_like(diff))
return torch.mean(part1 + part2)
""",
        lambda: [(r(3, 4), r(3, 4))],
    ),
    Case(
        "mmd_rbf",
        "x[N, D], y[M, D], sigmas: tuple[float, ...] = (1.0, 2.0)",
        """
xx, yy, zz = torch.mm(x, x.t()), torch.mm(y, y.t()), torch.mm(x, y.t())
rx = xx.diag().unsqueeze(0).expand_as(xx)
ry = yy.diag().unsqueeze(0).expand_as(yy)
dxx = rx.t() + rx - 2. * xx
dyy = ry.t() + ry - 2. * yy
dxy = xx.diag().unsqueeze(1) + yy.diag().unsqueeze(0) - 2. * zz
XX = torch.exp(-0.5 * dxx / 1.5)
YY = torch.exp(-0.5 * dyy / 1.5)
XY = torch.exp(-0.5 * dxy / 1.5)
return torch.mean(XX) + torch.mean(YY) - 2. * torch.mean(XY)
""",
        lambda: [(r(3, 2), r(4, 2), (1.0, 2.0))],
    ),
)
