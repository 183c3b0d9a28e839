"""Geometry, rendering and fields as libraries of vision and graphics write them."""

from tests.derive.cases import Case, p, r

GEOMETRY = (
    Case(
        "quaternion_multiply_wxyz",
        "a[..., 4], b[..., 4]",
        """
aw, ax, ay, az = torch.unbind(a, -1)
bw, bx, by, bz = torch.unbind(b, -1)
ow = aw * bw - ax * bx - ay * by - az * bz
ox = aw * bx + ax * bw + ay * bz - az * by
oy = aw * by - ax * bz + ay * bw + az * bx
oz = aw * bz + ax * by - ay * bx + az * bw
return torch.stack((ow, ox, oy, oz), -1)
""",
        lambda: [(r(3, 4), r(3, 4)), (r(2, 3, 4), r(2, 3, 4))],
    ),
    Case(
        "slerp",
        "q0[..., 4], q1[..., 4], t: float = 0.3",
        """
q0 = q0 / torch.norm(q0, dim=-1, keepdim=True)
q1 = q1 / torch.norm(q1, dim=-1, keepdim=True)
cosine = (q0 * q1).sum(-1, keepdim=True).clamp(-1 + 1e-7, 1 - 1e-7)
theta = torch.acos(cosine)
sin_theta = torch.sin(theta)
s0 = torch.sin((1.0 - t) * theta) / sin_theta
s1 = torch.sin(t * theta) / sin_theta
return s0 * q0 + s1 * q1
""",
        lambda: [(r(3, 4), r(3, 4), 0.3)],
    ),
    Case(
        "so3_exp",
        "log_rot[N, 3], eps: float = 1e-4",
        """
x, y, z = log_rot.unbind(1)
zero = torch.zeros_like(x)
skews = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=1).view(-1, 3, 3)
nrms = (log_rot * log_rot).sum(1)
rot_angles = torch.clamp(nrms, eps).sqrt()
rot_angles_inv = 1.0 / rot_angles
fac1 = rot_angles_inv * rot_angles.sin()
fac2 = rot_angles_inv * rot_angles_inv * (1.0 - rot_angles.cos())
skews_square = torch.bmm(skews, skews)
return fac1[:, None, None] * skews + fac2[:, None, None] * skews_square + torch.eye(3, dtype=log_rot.dtype, device=log_rot.device)[None]
""",
        lambda: [(r(3, 3), 1e-4)],
    ),
    Case(
        "axis_angle_to_quaternion",
        "axis_angle[..., 3]",
        """
angles = torch.norm(axis_angle, p=2, dim=-1, keepdim=True)
half_angles = angles * 0.5
eps = 1e-6
small_angles = angles.abs() < eps
sin_half_angles_over_angles = torch.where(small_angles, 0.5 - (angles * angles) / 48, torch.sin(half_angles) / angles)
return torch.cat([torch.cos(half_angles), axis_angle * sin_half_angles_over_angles], dim=-1)
""",
        lambda: [(r(3, 3),)],
    ),
    Case(
        "matrix_to_angle",
        "R12[..., 3, 3], R21[..., 3, 3]",
        """
R = R12 @ R21.transpose(-1, -2)
trace = R[..., 0, 0] + R[..., 1, 1] + R[..., 2, 2]
return torch.acos(torch.clamp((trace / 9 - 1) / 2, -0.99, 0.99))
""",
        lambda: [(r(2, 3, 3), r(2, 3, 3))],
    ),
    Case(
        "fundamental_sampson",
        "pts1[N, 2], pts2[N, 2], Fm[3, 3], eps: float = 1e-8",
        """
pts1 = F.pad(pts1, [0, 1], 'constant', 1.0)
pts2 = F.pad(pts2, [0, 1], 'constant', 1.0)
F_t = Fm.transpose(-2, -1)
line1_in_2 = pts1 @ F_t
line2_in_1 = pts2 @ Fm
numerator = (pts2 * line1_in_2).sum(-1).pow(2)
denominator = line1_in_2[..., :2].norm(2, dim=-1).pow(2) + line2_in_1[..., :2].norm(2, dim=-1).pow(2)
return numerator / (denominator + eps)
""",
        lambda: [(r(4, 2), r(4, 2), r(3, 3), 1e-8)],
    ),
    Case(
        "homography_warp_points",
        "homography[B, 3, 3], grid[B, N, 2], eps: float = 1e-8",
        """
points_h = F.pad(grid, [0, 1], 'constant', 1.0)
warped = torch.bmm(points_h, homography.permute(0, 2, 1))
z_vec = warped[..., -1:]
mask = torch.abs(z_vec) > eps
scale = torch.where(mask, 1.0 / (z_vec + eps), torch.ones_like(z_vec))
return scale * warped[..., :-1]
""",
        lambda: [(r(2, 3, 3), r(2, 4, 2), 1e-8)],
    ),
    Case(
        "unproject_depth",
        "depth[B, H, W; positive], K[B, 3, 3], u[H, W; const], v[H, W; const]",
        """
fx = K[:, 0, 0][:, None, None]
fy = K[:, 1, 1][:, None, None]
cx = K[:, 0, 2][:, None, None]
cy = K[:, 1, 2][:, None, None]
x = (u - cx) / fx * depth
y = (v - cy) / fy * depth
return torch.stack([x, y, depth], dim=-1)
""",
        lambda: [(p(2, 3, 4), p(2, 3, 3), r(3, 4), r(3, 4))],
    ),
    Case(
        "plane_ray",
        "rays_o[N, 3], rays_d[N, 3], normal[3], offset[]",
        """
denom = (rays_d * normal).sum(-1)
t = -((rays_o * normal).sum(-1) + offset) / denom
hit = (t > 0) & (denom.abs() > 1e-6)
points = rays_o + t.unsqueeze(-1) * rays_d
return torch.where(hit[..., None], points, rays_o)
""",
        lambda: [(r(4, 3), r(4, 3), r(3), r())],
    ),
    Case(
        "aabb_intersect",
        "rays_o[N, 3], rays_d[N, 3; nonzero], aabb_min[3], aabb_max[3], near: float = 0.05",
        """
dir_fraction = 1.0 / (rays_d + 1e-6)
t1 = (aabb_min[0] - rays_o[:, 0:1]) * dir_fraction[:, 0:1]
t2 = (aabb_max[0] - rays_o[:, 0:1]) * dir_fraction[:, 0:1]
t3 = (aabb_min[1] - rays_o[:, 1:2]) * dir_fraction[:, 1:2]
t4 = (aabb_max[1] - rays_o[:, 1:2]) * dir_fraction[:, 1:2]
nears = torch.max(torch.cat([torch.minimum(t1, t2), torch.minimum(t3, t4)], dim=1), dim=1).values
fars = torch.min(torch.cat([torch.maximum(t1, t2), torch.maximum(t3, t4)], dim=1), dim=1).values
nears = torch.clamp(nears, min=near)
fars = torch.maximum(fars, nears + 1e-6)
return nears, fars
""",
        lambda: [(r(4, 3), r(4, 3), -p(3), p(3), 0.05)],
        "nears, fars",
    ),
)
