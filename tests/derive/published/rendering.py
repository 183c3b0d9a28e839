"""Rendering, fields and boxes as libraries of vision and graphics write them."""

import torch

from tests.derive.cases import Case, index, p, r

RENDERING = (
    Case(
        "nerf_raw2outputs",
        "raw[R, S, 4], z_vals[R, S; const], rays_d[R, 3; const], noise[R, S; const], white_bkgd: bool = False",
        """
dists = z_vals[..., 1:] - z_vals[..., :-1]
dists = torch.cat([dists, torch.tensor([1e10], dtype=raw.dtype, device=raw.device).expand(dists[..., :1].shape)], -1)
dists = dists * torch.norm(rays_d[..., None, :], dim=-1)
rgb = torch.sigmoid(raw[..., :3])
alpha = 1. - torch.exp(-F.relu(raw[..., 3] + noise) * dists)
weights = alpha * torch.cumprod(torch.cat([torch.ones((alpha.shape[0], 1), dtype=raw.dtype, device=raw.device), 1. - alpha + 1e-10], -1), -1)[:, :-1]
rgb_map = torch.sum(weights[..., None] * rgb, -2)
depth_map = torch.sum(weights * z_vals, -1)
acc_map = torch.sum(weights, -1)
if white_bkgd:
    rgb_map = rgb_map + (1. - acc_map[..., None])
return rgb_map, depth_map, acc_map
""",
        lambda: [
            (r(2, 3, 4), r(2, 3).sort(-1)[0], r(2, 3), r(2, 3), white)
            for white in (False, True)
        ],
        "rgb_map, depth_map, acc_map",
    ),
    Case(
        "neus_alpha",
        "sdf[R, S], true_cos[R, S], dists[R, S; const, positive], inv_s, cos_anneal: float = 0.5",
        """
iter_cos = -(F.relu(-true_cos * 0.5 + 0.5) * (1.0 - cos_anneal) + F.relu(-true_cos) * cos_anneal)
estimated_next_sdf = sdf + iter_cos * dists * 0.5
estimated_prev_sdf = sdf - iter_cos * dists * 0.5
prev_cdf = torch.sigmoid(estimated_prev_sdf * inv_s)
next_cdf = torch.sigmoid(estimated_next_sdf * inv_s)
p = prev_cdf - next_cdf
c = prev_cdf
return ((p + 1e-5) / (c + 1e-5)).clip(0.0, 1.0)
""",
        lambda: [(r(2, 3), r(2, 3), p(2, 3), p(), 0.5)],
    ),
    Case(
        "eikonal_loss",
        "gradients[N, 3]",
        "((gradients.norm(2, dim=1) - 1) ** 2).mean()",
        lambda: [(r(4, 3),)],
    ),
    Case(
        "positional_encoding_nerf",
        "x[..., D], L: int = 3",
        """
freq = 2.0 ** torch.arange(L, dtype=x.dtype, device=x.device) * math.pi
spectrum = x[..., None] * freq
enc = torch.stack([spectrum.sin(), spectrum.cos()], dim=-2)
return torch.cat([x, enc.view(*x.shape[:-1], -1)], dim=-1)
""",
        lambda: [(r(2, 3, 4), 3), (r(3, 4), 3)],
    ),
    Case(
        "sh_eval_deg1",
        "sh[..., C, 4], dirs[..., 3]",
        """
C0 = 0.28209479177387814
C1 = 0.4886025119029199
result = C0 * sh[..., 0]
x, y, z = dirs[..., 0:1], dirs[..., 1:2], dirs[..., 2:3]
result = (result - C1 * y * sh[..., 1] + C1 * z * sh[..., 2] - C1 * x * sh[..., 3])
return torch.clamp_min(result + 0.5, 0.0)
""",
        lambda: [(r(2, 3, 4), r(2, 3)), (r(5, 2, 3, 4), r(5, 2, 3))],
    ),
    Case(
        "gaussian_covariance_2d",
        "scales[N, 3; positive], rotations[N, 4]",
        """
q = F.normalize(rotations)
r, x, y, z = q[:, 0], q[:, 1], q[:, 2], q[:, 3]
R = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - r * z), 2 * (x * z + r * y), 2 * (x * y + r * z), 1 - 2 * (x * x + z * z), 2 * (y * z - r * x), 2 * (x * z - r * y), 2 * (y * z + r * x), 1 - 2 * (x * x + y * y)], dim=-1).reshape(-1, 3, 3)
L = R @ torch.diag_embed(scales)
actual_covariance = L @ L.transpose(1, 2)
return actual_covariance
""",
        lambda: [(p(3, 3), r(3, 4))],
    ),
    Case(
        "box_decode",
        "deltas[N, 4], anchors[N, 4; const], clip: float = 4.135",
        """
widths = anchors[:, 2] - anchors[:, 0]
heights = anchors[:, 3] - anchors[:, 1]
ctr_x = anchors[:, 0] + 0.5 * widths
ctr_y = anchors[:, 1] + 0.5 * heights
dx = deltas[:, 0::4]
dy = deltas[:, 1::4]
dw = torch.clamp(deltas[:, 2::4], max=clip)
dh = torch.clamp(deltas[:, 3::4], max=clip)
pred_ctr_x = dx * widths[:, None] + ctr_x[:, None]
pred_ctr_y = dy * heights[:, None] + ctr_y[:, None]
pred_w = torch.exp(dw) * widths[:, None]
pred_h = torch.exp(dh) * heights[:, None]
c_to_c_h = torch.tensor(0.5, dtype=pred_ctr_y.dtype, device=pred_h.device) * pred_h
c_to_c_w = torch.tensor(0.5, dtype=pred_ctr_x.dtype, device=pred_w.device) * pred_w
return torch.stack((pred_ctr_x - c_to_c_w, pred_ctr_y - c_to_c_h, pred_ctr_x + c_to_c_w, pred_ctr_y + c_to_c_h), dim=2).flatten(1)
""",
        lambda: [(r(3, 4), p(3, 4), 4.135)],
    ),
    Case(
        "grid_coordinates",
        "flow[B, 2, H, W], H2: int = 3",
        """
B, _, H, W = flow.shape
xx = torch.arange(0, W, device=flow.device).view(1, -1).repeat(H, 1)
yy = torch.arange(0, H, device=flow.device).view(-1, 1).repeat(1, W)
grid = torch.stack((xx, yy), 0)[None].to(flow)
vgrid = grid + flow
vx = 2.0 * vgrid[:, 0, :, :] / max(W - 1, 1) - 1.0
vy = 2.0 * vgrid[:, 1, :, :] / max(H - 1, 1) - 1.0
return torch.stack((vx, vy), dim=1).permute(0, 2, 3, 1)
""",
        lambda: [(r(2, 2, 3, 4), 3)],
    ),
    Case(
        "face_normals_loss",
        "verts[V, 3], faces[M, 3; index(V)]",
        """
tris = verts[faces]
v0, v1, v2 = tris[:, 0], tris[:, 1], tris[:, 2]
normals = torch.cross(v1 - v0, v2 - v0, dim=1)
areas = 0.5 * normals.norm(dim=1)
normals = normals / normals.norm(dim=1, keepdim=True).clamp(min=1e-12)
return (areas[:, None] * normals).sum(0), areas.sum()
""",
        lambda: [(r(5, 3), torch.tensor([[0, 1, 2], [1, 2, 3], [2, 3, 4]]))],
        "normal, area",
    ),
    Case(
        "soft_argmax_2d",
        "heatmap[B, C, H, W], temperature",
        """
b, c, h, w = heatmap.shape
prob = F.softmax((heatmap * temperature).view(b, c, -1), dim=-1).view(b, c, h, w)
pos_x = torch.linspace(-1, 1, w, dtype=heatmap.dtype, device=heatmap.device)
pos_y = torch.linspace(-1, 1, h, dtype=heatmap.dtype, device=heatmap.device)
x = (prob.sum(dim=2) * pos_x).sum(dim=-1)
y = (prob.sum(dim=3) * pos_y).sum(dim=-1)
return torch.stack([x, y], dim=-1)
""",
        lambda: [(r(2, 3, 4, 2), p())],
    ),
    Case(
        "edge_conv",
        "x[N, D], idx[N, K; index(N)], w[O, E]",
        """
neighbors = x[idx]
center = x.unsqueeze(1).expand_as(neighbors)
feature = torch.cat((neighbors - center, center), dim=-1)
out = F.leaky_relu(feature @ w.t(), negative_slope=0.2)
return out.max(dim=1)[0]
""",
        lambda: [(r(4, 3), index(4, 4, 2), r(5, 6))],
    ),
)
