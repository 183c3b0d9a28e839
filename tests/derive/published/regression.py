"""Losses of boxes, policies and distributions as their papers write them."""

import torch

from tests.derive.cases import Case, p, r
from tests.derive.published.losses import boxes, labels

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
