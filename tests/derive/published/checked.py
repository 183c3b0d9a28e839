"""Ops as repositories ship them: with checks of what they are given, modes of reduction and assignments to parts."""

import torch

from tests.derive.cases import Case, index, p, r

CHECKED = (
    Case(
        "gated_channel_transform",
        "x[B, C, H, W], alpha[1, C, 1, 1], gamma[1, C, 1, 1], beta[1, C, 1, 1], epsilon: float = 1e-5, mode: str = 'l2', after_relu: bool = False",
        """
if mode == 'l2':
    embedding = (x.pow(2).sum((2, 3), keepdim=True) + epsilon).pow(0.5) * alpha
    norm = gamma / (embedding.pow(2).mean(dim=1, keepdim=True) + epsilon).pow(0.5)
elif mode == 'l1':
    if not after_relu:
        _x = torch.abs(x)
    else:
        _x = x
    embedding = _x.sum((2, 3), keepdim=True) * alpha
    norm = gamma / (torch.abs(embedding).mean(dim=1, keepdim=True) + epsilon)
else:
    raise ValueError('Unknown mode!')
gate = 1. + torch.tanh(embedding * norm + beta)
return x * gate
""",
        lambda: [
            (*(r(2, 3, 2, 2), *(r(1, 3, 1, 1) for _ in range(3))), 1e-5, mode, after)
            for mode, after in (("l2", False), ("l1", False), ("l1", True))
        ],
    ),
    Case(
        "graph_info_nce",
        "h1[N, D], h2[N, D], tau: float = 0.5, hard: bool = False",
        """
h1, h2 = F.normalize(h1), F.normalize(h2)
intra_sim = torch.exp(h1 @ h1.t() / tau)
inter_sim = torch.exp(h1 @ h2.t() / tau)
pos = inter_sim.diag()
neg = intra_sim.sum(dim=1) + inter_sim.sum(dim=1) - intra_sim.diag() - pos
if hard:
    neg, _ = torch.max(inter_sim, dim=1)
return -torch.log(pos / (pos + neg)).mean()
""",
        lambda: [(r(3, 4), r(3, 4), 0.5, hard) for hard in (False, True)],
    ),
    Case(
        "smooth_one_hot_focal",
        "input[N, C, H, W], target[N, H, W; index(C)], alpha: float = 0.5, gamma: float = 2.0, reduction: str = 'none', eps: float = 1e-8",
        """
if not isinstance(input, torch.Tensor):
    raise TypeError(f"Input type is not a torch.Tensor. Got {type(input)}")
if input.size(0) != target.size(0) or target.size()[1:] != input.size()[2:]:
    raise ValueError(f"no match: {input.size()} and {target.size()}")
input_soft: torch.Tensor = F.softmax(input, dim=1) + eps
shape = target.shape
one_hot = torch.zeros((shape[0], input.shape[1]) + shape[1:], device=input.device, dtype=input.dtype)
one_hot = one_hot.scatter_(1, target.unsqueeze(1), 1.0) + eps
focal = -alpha * torch.pow(-input_soft + 1.0, gamma) * torch.log(input_soft)
loss_tmp = torch.sum(one_hot * focal, dim=1)
if reduction == 'none':
    loss = loss_tmp
elif reduction == 'mean':
    loss = torch.mean(loss_tmp)
elif reduction == 'sum':
    loss = torch.sum(loss_tmp)
else:
    raise NotImplementedError(f"Invalid reduction mode: {reduction}")
return loss
""",
        lambda: [
            (r(2, 3, 2, 2), index(3, 2, 2, 2), 0.5, 2.0, reduction, 1e-8)
            for reduction in ("none", "mean", "sum")
        ],
    ),
    Case(
        "lovasz_softmax_classes",
        "pred[B, C, H, W], target[B, H, W; index(C)], weight[C]?",
        """
if weight is not None:
    assert weight.shape[0] == pred.shape[1] and weight.numel() == pred.shape[1]
pred_flatten = pred.reshape(pred.shape[0], pred.shape[1], -1)
_, C, N = pred_flatten.shape
foreground = F.one_hot(target.flatten(1), num_classes=C).permute(0, 2, 1).to(pred.dtype)
errors = (pred_flatten.softmax(1) - foreground).abs()
errors_sorted, permutations = torch.sort(errors, dim=2, descending=True)
target_sorted = foreground.gather(2, permutations)
target_sum = target_sorted.sum(2, keepdim=True)
intersection = target_sum - target_sorted.cumsum(2)
union = target_sum + (1.0 - target_sorted).cumsum(2)
gradient = 1.0 - intersection / union
if N > 1:
    gradient[..., 1:] = gradient[..., 1:] - gradient[..., :-1]
loss_per_class = (errors_sorted * gradient).sum(2).mean(0)
if weight is not None:
    loss_per_class *= weight
return loss_per_class.mean()
""",
        lambda: [
            (r(2, 3, 2, 2), index(3, 2, 2, 2), r(3)),
            (r(2, 3, 2, 2), index(3, 2, 2, 2), None),
        ],
    ),
    Case(
        "wing_by_parts",
        "prediction[...], target[...; const], width: float = 1.0, curvature: float = 0.5, reduction: str = 'mean'",
        """
diff_abs = (target - prediction).abs()
loss = diff_abs.clone()
idx_smaller = diff_abs < width
idx_bigger = diff_abs >= width
loss[idx_smaller] = width * torch.log(1 + diff_abs[idx_smaller] / curvature)
C = width - width * math.log(1 + width / curvature)
loss[idx_bigger] = loss[idx_bigger] - C
if reduction == "sum":
    loss = loss.sum()
if reduction == "mean":
    loss = loss.mean()
return loss
""",
        lambda: [
            (r(3, 4) * 2, r(3, 4), 1.0, 0.5, mode) for mode in ("mean", "sum", "none")
        ],
    ),
    Case(
        "quality_focal",
        "pred[N, C], label[N; index(C)], score[N; const, unit], beta: float = 2.0",
        """
pred_sigmoid = pred.sigmoid()
zerolabel = pred_sigmoid.new_zeros(pred.shape)
loss = F.binary_cross_entropy_with_logits(pred, zerolabel, reduction='none') * pred_sigmoid.pow(beta)
pos = ((label >= 0) & (label < pred.size(1))).nonzero().squeeze(1)
pos_label = label[pos].long()
scale_factor = score[pos] - pred_sigmoid[pos, pos_label]
loss[pos, pos_label] = F.binary_cross_entropy_with_logits(
    pred[pos, pos_label], score[pos], reduction='none'
) * scale_factor.abs().pow(beta)
return loss.sum(dim=1, keepdim=False)
""",
        lambda: [(r(4, 3), torch.tensor([0, 2, 3, 1]), p(4) - 0.5, 2.0)],
    ),
    Case(
        "balanced_l1",
        "pred[N, 4], target[N, 4; const], weight[N, 4; const]?, beta: float = 1.0, alpha: float = 0.5, gamma: float = 1.5, reduction: str = 'mean', avg_factor: float | None = None",
        """
assert beta > 0 and pred.size() == target.size()
diff = torch.abs(pred - target)
b = math.e**(gamma / alpha) - 1
loss = torch.where(
    diff < beta,
    alpha / b * (b * diff + 1) * torch.log(b * diff / beta + 1) - alpha * diff,
    gamma * diff + gamma / b - alpha * beta,
)
if weight is not None:
    loss = loss * weight
if avg_factor is None:
    if reduction == 'none':
        return loss
    elif reduction == 'mean':
        return loss.mean()
    elif reduction == 'sum':
        return loss.sum()
elif reduction == 'mean':
    return loss.sum() / (avg_factor + torch.finfo(torch.float32).eps)
elif reduction != 'none':
    raise ValueError('avg_factor can not be used with reduction="sum"')
else:
    return loss
""",
        lambda: [
            (r(3, 4), r(3, 4), weight, 1.0, 0.5, 1.5, reduction, factor)
            for weight, reduction, factor in (
                (p(3, 4), "mean", None),
                (None, "none", None),
                (None, "sum", None),
                (p(3, 4), "mean", 2.0),
                (None, "none", 2.0),
            )
        ],
    ),
    Case(
        "sigmoid_focal_reduced",
        "inputs[...], targets[...; const, unit], alpha: float = 0.25, gamma: float = 2, reduction: str = 'none'",
        """
if not (0 <= alpha <= 1) and alpha != -1:
    raise ValueError(f"Invalid alpha value: {alpha}. It must be in [0, 1] or -1.")
p = torch.sigmoid(inputs)
ce_loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
p_t = p * targets + (1 - p) * (1 - targets)
loss = ce_loss * ((1 - p_t) ** gamma)
if alpha >= 0:
    loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
if reduction == "none":
    pass
elif reduction == "mean":
    loss = loss.mean()
elif reduction == "sum":
    loss = loss.sum()
else:
    raise ValueError(f"Invalid Value for arg 'reduction': '{reduction}'")
return loss
""",
        lambda: [
            (r(3, 4), p(3, 4) - 0.5, alpha, 2, reduction)
            for alpha, reduction in ((0.25, "none"), (-1, "mean"), (0.5, "sum"))
        ],
    ),
    Case(
        "boundary_loss",
        "probs[B, C, H, W], dist_maps[B, C, H, W; const], idc: tuple[int, ...] = (1,)",
        """
pc = probs[:, idc, ...].type(torch.float64)
dc = dist_maps[:, idc, ...].type(torch.float64)
return torch.einsum("bkwh,bkwh->bkwh", pc, dc).mean()
""",
        lambda: [(r(2, 3, 2, 2), r(2, 3, 2, 2), (1, 2))],
    ),
    Case(
        "guided_attention_loss",
        "att[B, T, N], ilens[B; int], olens[B; int], sigma: float = 0.4",
        """
B, T, N = att.shape
grid_x, grid_y = torch.meshgrid(torch.arange(T, device=att.device), torch.arange(N, device=att.device), indexing='ij')
grid_x, grid_y = grid_x.float(), grid_y.float()
guided = 1.0 - torch.exp(-((grid_y / ilens[:, None, None] - grid_x / olens[:, None, None]) ** 2) / (2 * (sigma ** 2)))
in_masks = torch.arange(N, device=ilens.device)[None, :] < ilens[:, None]
out_masks = torch.arange(T, device=olens.device)[None, :] < olens[:, None]
masks = out_masks.unsqueeze(-1) & in_masks.unsqueeze(-2)
return torch.mean((guided * att).masked_select(masks))
""",
        lambda: [(r(2, 3, 4), torch.tensor([4, 2]), torch.tensor([2, 3]), 0.4)],
    ),
    Case(
        "funnel_relu",
        "x[B, C, H, W], weight[C, 1, 3, 3], running_mean[C; const], running_var[C; const, positive], gamma[C], beta[C]",
        """
tx = F.conv2d(x, weight, bias=None, stride=1, padding=1, groups=x.size(1))
tx = F.batch_norm(tx, running_mean, running_var, weight=gamma, bias=beta, training=False, eps=1e-5)
return torch.max(x, tx)
""",
        lambda: [(r(2, 3, 3, 4), r(3, 1, 3, 3), r(3), p(3), r(3), r(3))],
    ),
)
