"""Boxes, cameras and meshes, as libraries of vision write them."""

import torch

from tests.derive.cases import Case, p, r
from tests.derive.published.losses import boxes


def corners(batch: int) -> torch.Tensor:
    """Four corners of a square, moved a little."""
    square = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=torch.double)
    return square + 0.1 * r(batch, 4, 2)


def covariances(count: int) -> torch.Tensor:
    """Symmetric positive definite matrices."""
    factor = r(count, 2, 2)
    return factor @ factor.mT


CAMERAS = (
    Case(
        "gwd_rotated_boxes",
        "pred[N, 5], target[N, 5; const], tau: float = 1.0",
        """
xy_p, wh_p, r_p = pred[..., :2], pred[..., 2:4].clamp(min=1e-7, max=1e7), pred[..., 4]
xy_t, wh_t, r_t = target[..., :2], target[..., 2:4].clamp(min=1e-7, max=1e7), target[..., 4]
cos_p, sin_p = torch.cos(r_p), torch.sin(r_p)
cos_t, sin_t = torch.cos(r_t), torch.sin(r_t)
R_p = torch.stack((cos_p, -sin_p, sin_p, cos_p), dim=-1).reshape(-1, 2, 2)
R_t = torch.stack((cos_t, -sin_t, sin_t, cos_t), dim=-1).reshape(-1, 2, 2)
S_p = 0.5 * torch.diag_embed(wh_p)
S_t = 0.5 * torch.diag_embed(wh_t)
sigma_p = R_p.bmm(S_p.square()).bmm(R_p.permute(0, 2, 1))
sigma_t = R_t.bmm(S_t.square()).bmm(R_t.permute(0, 2, 1))
xy_distance = (xy_p - xy_t).square().sum(dim=-1)
whr_distance = sigma_p.diagonal(dim1=-2, dim2=-1).sum(dim=-1) + sigma_t.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
_t_tr = sigma_p.bmm(sigma_t).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
_t_det_sqrt = (sigma_p.det() * sigma_t.det()).clamp(1e-7).sqrt()
whr_distance = whr_distance + (-2) * ((_t_tr + 2 * _t_det_sqrt).clamp(1e-7).sqrt())
distance = (xy_distance + whr_distance).clamp(1e-7).sqrt()
return 1 - 1 / (tau + torch.log1p(distance))
""",
        lambda: [(p(3, 5), p(3, 5), 1.0)],
    ),
    Case(
        "alpha_eiou",
        "box1[N, 4], box2[N, 4], alpha: float = 3.0, eps: float = 1e-7",
        """
x1, y1, w1, h1 = box1.chunk(4, -1)
x2, y2, w2, h2 = box2.chunk(4, -1)
b1_x1, b1_x2, b1_y1, b1_y2 = x1 - w1 / 2, x1 + w1 / 2, y1 - h1 / 2, y1 + h1 / 2
b2_x1, b2_x2, b2_y1, b2_y2 = x2 - w2 / 2, x2 + w2 / 2, y2 - h2 / 2, y2 + h2 / 2
inter = (b1_x2.minimum(b2_x2) - b1_x1.maximum(b2_x1)).clamp_(0) * (b1_y2.minimum(b2_y2) - b1_y1.maximum(b2_y1)).clamp_(0)
union = w1 * h1 + w2 * h2 - inter + eps
iou = inter / union
cw = b1_x2.maximum(b2_x2) - b1_x1.minimum(b2_x1)
ch = b1_y2.maximum(b2_y2) - b1_y1.minimum(b2_y1)
c2 = cw.pow(2) + ch.pow(2) + eps
rho2 = ((x2 - x1) ** 2 + (y2 - y1) ** 2) / c2
asp = (w2 - w1) ** 2 / (cw ** 2 + eps) + (h2 - h1) ** 2 / (ch ** 2 + eps)
return 1 - (iou.pow(alpha) - rho2.pow(alpha) - asp.pow(alpha)).squeeze(-1)
""",
        lambda: [(p(3, 4), p(3, 4), 3.0, 1e-7)],
    ),
    Case(
        "pairwise_giou",
        "boxes1[N, 4], boxes2[M, 4]",
        """
area1 = (boxes1[:, 2] - boxes1[:, 0]) * (boxes1[:, 3] - boxes1[:, 1])
area2 = (boxes2[:, 2] - boxes2[:, 0]) * (boxes2[:, 3] - boxes2[:, 1])
wh = (torch.min(boxes1[:, None, 2:], boxes2[:, 2:]) - torch.max(boxes1[:, None, :2], boxes2[:, :2])).clamp(min=0)
inter = wh[:, :, 0] * wh[:, :, 1]
union = area1[:, None] + area2 - inter
iou = inter / union
whi = (torch.max(boxes1[:, None, 2:], boxes2[:, 2:]) - torch.min(boxes1[:, None, :2], boxes2[:, :2])).clamp(min=0)
areai = whi.prod(dim=-1)
return iou - (areai - union) / areai, union
""",
        lambda: [(boxes(3), boxes(2))],
        "giou, union",
    ),
    Case(
        "homography_dlt",
        "src[B, 4, 2], dst[B, 4, 2]",
        """
x, y = src[..., 0:1], src[..., 1:2]
u, v = dst[..., 0:1], dst[..., 1:2]
one, zero = torch.ones_like(x), torch.zeros_like(x)
ax = torch.cat([x, y, one, zero, zero, zero, -x * u, -y * u], dim=-1)
ay = torch.cat([zero, zero, zero, x, y, one, -x * v, -y * v], dim=-1)
A = torch.cat([ax, ay], dim=1)
b = torch.cat([u, v], dim=1)
h = torch.linalg.solve(A, b)
return F.pad(h.squeeze(-1), (0, 1), value=1.0).reshape(-1, 3, 3)
""",
        lambda: [(corners(2), corners(2))],
    ),
    Case(
        "brown_conrady",
        "points[..., 3], k[3], p[2], f[2], c[2]",
        """
xy = points[..., :2] / points[..., 2:]
r2 = xy.pow(2).sum(-1, keepdim=True)
radial = 1 + k[0] * r2 + k[1] * r2 ** 2 + k[2] * r2 ** 3
xy_prod = xy.prod(dim=-1, keepdim=True)
tangential = 2 * p * xy_prod + p.flip(0) * (r2 + 2 * xy ** 2)
return f * (xy * radial + tangential) + c
""",
        lambda: [
            (p(3, 3), r(3), r(2), r(2), r(2)),
            (p(2, 2, 3), r(3), r(2), r(2), r(2)),
        ],
    ),
    Case(
        "fisheye_projection",
        "points[N, 3], focal[2], principal[2], coeffs[4]",
        """
x, y, z = points.unbind(-1)
rad = torch.hypot(x, y).clamp_min(1e-8)
theta = torch.atan2(rad, z)
powers = torch.stack([theta ** 3, theta ** 5, theta ** 7, theta ** 9], dim=-1)
theta_d = theta + powers @ coeffs
uv = torch.stack([x, y], dim=-1) * (theta_d / rad).unsqueeze(-1)
return torch.addcmul(principal, uv, focal)
""",
        lambda: [(r(3, 3), p(2), r(2), 0.1 * r(4))],
    ),
    Case(
        "symmetric_epipolar",
        "pts0[N, 2], pts1[N, 2], R[3, 3], t[3]",
        """
zero = torch.zeros_like(t[0])
tx = torch.stack([torch.stack([zero, -t[2], t[1]]), torch.stack([t[2], zero, -t[0]]), torch.stack([-t[1], t[0], zero])])
E = tx @ R
p0 = F.pad(pts0, (0, 1), value=1.0)
p1 = F.pad(pts1, (0, 1), value=1.0)
Ep0 = p0 @ E.T
Etp1 = p1 @ E
p1Ep0 = torch.sum(p1 * Ep0, -1)
return p1Ep0 ** 2 * (1.0 / (Ep0[:, 0] ** 2 + Ep0[:, 1] ** 2) + 1.0 / (Etp1[:, 0] ** 2 + Etp1[:, 1] ** 2))
""",
        lambda: [(r(4, 2), r(4, 2), r(3, 3), r(3))],
    ),
    Case(
        "cotangent_weights",
        "verts[V, 3], faces[F, 3; index(V)]",
        """
face_verts = verts[faces]
v0, v1, v2 = face_verts[:, 0], face_verts[:, 1], face_verts[:, 2]
A = (v1 - v2).norm(dim=1)
B = (v0 - v2).norm(dim=1)
C = (v0 - v1).norm(dim=1)
s = 0.5 * (A + B + C)
area = (s * (s - A) * (s - B) * (s - C)).clamp_(min=1e-12).sqrt()
A2, B2, C2 = A * A, B * B, C * C
cota = (B2 + C2 - A2) / area
cotb = (A2 + C2 - B2) / area
cotc = (A2 + B2 - C2) / area
cot = torch.stack([cota, cotb, cotc], dim=1)
return cot / 4.0
""",
        lambda: [(r(5, 3), torch.tensor([[0, 1, 2], [2, 3, 4], [0, 2, 4]]))],
    ),
    Case(
        "dihedral_angle",
        "p0[N, 3], p1[N, 3], p2[N, 3], p3[N, 3]",
        """
b0 = p0 - p1
b1 = F.normalize(p2 - p1, dim=-1)
b2 = p3 - p2
v = b0 - (b0 * b1).sum(-1, keepdim=True) * b1
w = b2 - (b2 * b1).sum(-1, keepdim=True) * b1
x = (v * w).sum(-1)
y = (torch.linalg.cross(b1, v, dim=-1) * w).sum(-1)
return torch.atan2(y, x)
""",
        lambda: [(r(3, 3), r(3, 3), r(3, 3), r(3, 3))],
    ),
    Case(
        "splat_alpha",
        "means[G, 2], cov[G, 2, 2], opacity[G], pixels[P, 2; const]",
        """
a, b, c = cov[:, 0, 0] + 0.3, cov[:, 0, 1], cov[:, 1, 1] + 0.3
det = a * c - b * b
inv_det = det.reciprocal()
conic_x, conic_y, conic_z = c * inv_det, -b * inv_det, a * inv_det
d = means[None] - pixels[:, None]
dx, dy = d[..., 0], d[..., 1]
power = -0.5 * (conic_x * dx * dx + conic_z * dy * dy) - conic_y * dx * dy
alpha = torch.clamp_max(opacity.sigmoid() * torch.exp(power.clamp(max=0.0)), 0.99)
T = torch.cumprod(1 - alpha, dim=-1)
return alpha * torch.cat([torch.ones_like(T[:, :1]), T[:, :-1]], dim=-1)
""",
        lambda: [(r(3, 2), covariances(3), r(3), r(4, 2))],
    ),
    Case(
        "ndc_rays",
        "rays_o[N, 3], rays_d[N, 3], H: int = 4, W: int = 6, focal: float = 2.0, near: float = 1.0",
        """
t = -(near + rays_o[..., 2]) / rays_d[..., 2]
rays_o = rays_o + t[..., None] * rays_d
o0 = -1. / (W / (2. * focal)) * rays_o[..., 0] / rays_o[..., 2]
o1 = -1. / (H / (2. * focal)) * rays_o[..., 1] / rays_o[..., 2]
o2 = 1. + 2. * near / rays_o[..., 2]
d0 = -1. / (W / (2. * focal)) * (rays_d[..., 0] / rays_d[..., 2] - rays_o[..., 0] / rays_o[..., 2])
d1 = -1. / (H / (2. * focal)) * (rays_d[..., 1] / rays_d[..., 2] - rays_o[..., 1] / rays_o[..., 2])
d2 = -2. * near / rays_o[..., 2]
return torch.stack([o0, o1, o2], -1), torch.stack([d0, d1, d2], -1)
""",
        lambda: [(r(3, 3), p(3, 3), 4, 6, 2.0, 1.0)],
        "origins, directions",
    ),
    Case(
        "integrated_pos_enc",
        "mean[..., D], var[..., D; positive], degrees: int = 3",
        """
scales = 2.0 ** torch.arange(0, degrees, dtype=mean.dtype, device=mean.device)
shape = mean.shape[:-1] + (-1,)
y = (mean[..., None, :] * scales[:, None]).reshape(shape)
y_var = (var[..., None, :] * scales[:, None] ** 2).reshape(shape)
return torch.exp(-0.5 * torch.cat([y_var, y_var], dim=-1)) * torch.sin(torch.cat([y, y + 0.5 * math.pi], dim=-1))
""",
        lambda: [(r(3, 4), p(3, 4), 3), (r(2, 3, 4), p(2, 3, 4), 3)],
    ),
    Case(
        "chamfer_normals",
        "x[B, N, 3], y[B, M, 3], nx[B, N, 3], ny[B, M, 3]",
        """
d2 = (x.unsqueeze(2) - y.unsqueeze(1)).pow(2).sum(-1)
cham_x, idx = d2.min(dim=2)
cham_y = d2.min(dim=1).values
near = ny.gather(1, idx.unsqueeze(-1).expand(-1, -1, 3))
cham_norm = 1 - torch.abs(F.cosine_similarity(nx, near, dim=2, eps=1e-6))
return cham_x.mean(1) + cham_y.mean(1), cham_norm.mean()
""",
        lambda: [(r(2, 3, 3), r(2, 4, 3), r(2, 3, 3), r(2, 4, 3))],
        "distance, normal_distance",
    ),
    Case(
        "thin_plate_spline",
        "points[N, 2], control[M, 2], weights[M, 2], affine[3, 2]",
        """
d2 = torch.cdist(points, control).square()
U = torch.where(d2 > 0, d2 * torch.log(d2.clamp_min(1e-9)), 0.0)
hom = torch.cat([points.new_ones(points.shape[0], 1), points], dim=1)
return U @ weights + hom @ affine
""",
        lambda: [(r(3, 2), r(4, 2), r(4, 2), r(3, 2))],
    ),
    Case(
        "linear_blend_skinning",
        "v_posed[B, V, 3], A[B, J, 4, 4], lbs_weights[V, J]",
        """
batch_size, num_joints = A.shape[0], A.shape[1]
W = lbs_weights.unsqueeze(dim=0).expand([batch_size, -1, -1])
T = torch.matmul(W, A.view(batch_size, num_joints, 16)).view(batch_size, -1, 4, 4)
homogen_coord = torch.ones([batch_size, v_posed.shape[1], 1], dtype=A.dtype, device=A.device)
v_posed_homo = torch.cat([v_posed, homogen_coord], dim=2)
v_homo = torch.matmul(T, torch.unsqueeze(v_posed_homo, dim=-1))
return v_homo[:, :, :3, 0]
""",
        lambda: [(r(2, 3, 3), r(2, 2, 4, 4), p(3, 2))],
    ),
    Case(
        "fape",
        "R[N, 3, 3], t[N, 3], x[M, 3], R_true[N, 3, 3; const], t_true[N, 3; const], x_true[M, 3; const], mask[M; bool], clamp: float = 10.0",
        """
local = torch.einsum('nji,nmj->nmi', R, x[None] - t[:, None])
local_true = torch.einsum('nji,nmj->nmi', R_true, x_true[None] - t_true[:, None])
error = torch.sqrt(torch.sum((local - local_true) ** 2, dim=-1) + 1e-4)
error = torch.clamp(error, max=clamp) / 10.0
return (error * mask).sum() / (mask.sum() * R.shape[0] + 1e-4)
""",
        lambda: [
            (
                *(r(2, 3, 3), r(2, 3), r(4, 3), r(2, 3, 3), r(2, 3), r(4, 3)),
                *(torch.tensor([True, False, True, True]), 10.0),
            )
        ],
    ),
)
