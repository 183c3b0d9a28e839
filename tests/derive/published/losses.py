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
