"""Rotations, lines and triangles, as libraries of vision write them."""

from tests.derive.cases import Case, r

ROTATIONS = (
    Case(
        "matrix_to_quaternion_trace",
        "R[..., 3, 3]",
        """
m00, m11, m22 = R[..., 0, 0], R[..., 1, 1], R[..., 2, 2]
w = torch.sqrt(F.relu(1 + m00 + m11 + m22) + 1e-6) / 2
x = torch.sqrt(F.relu(1 + m00 - m11 - m22) + 1e-6) / 2
y = torch.sqrt(F.relu(1 - m00 + m11 - m22) + 1e-6) / 2
z = torch.sqrt(F.relu(1 - m00 - m11 + m22) + 1e-6) / 2
x = torch.copysign(x, R[..., 2, 1] - R[..., 1, 2])
y = torch.copysign(y, R[..., 0, 2] - R[..., 2, 0])
z = torch.copysign(z, R[..., 1, 0] - R[..., 0, 1])
return torch.stack([w, x, y, z], dim=-1)
""",
        lambda: [(r(3, 3, 3),), (r(2, 2, 3, 3),)],
    ),
    Case(
        "quaternion_to_axis_angle",
        "quaternions[..., 4]",
        """
norms = torch.norm(quaternions[..., 1:], p=2, dim=-1, keepdim=True)
half_angles = torch.atan2(norms, quaternions[..., :1])
angles = 2 * half_angles
small_angles = angles.abs() < 1e-6
safe = torch.where(small_angles, torch.ones_like(angles), angles)
sin_half_angles_over_angles = torch.where(small_angles, 0.5 - (angles * angles) / 48, torch.sin(half_angles) / safe)
return quaternions[..., 1:] / sin_half_angles_over_angles
""",
        lambda: [(r(3, 4),), (r(2, 3, 4),)],
    ),
    Case(
        "se3_exp",
        "xi[N, 6]",
        """
u, omega = xi.split([3, 3], dim=-1)
theta2 = omega.square().sum(-1)[:, None, None]
theta = theta2.sqrt()
A = torch.sin(theta) / theta
B = (1 - torch.cos(theta)) / theta2
C = (1 - A) / theta2
zero = torch.zeros_like(omega[:, 0])
wx = torch.stack([zero, -omega[:, 2], omega[:, 1], omega[:, 2], zero, -omega[:, 0], -omega[:, 1], omega[:, 0], zero], dim=-1).view(-1, 3, 3)
I = torch.eye(3, dtype=xi.dtype, device=xi.device)
R = I + A * wx + B * wx @ wx
V = I + B * wx + C * wx @ wx
return torch.cat([R, V @ u[..., None]], dim=-1)
""",
        lambda: [(r(3, 6),)],
    ),
    Case(
        "plucker_rays",
        "origins[..., 3], directions[..., 3]",
        """
d = F.normalize(directions, dim=-1)
moment = torch.cross(origins, d, dim=-1)
return torch.cat((d, moment), dim=-1)
""",
        lambda: [(r(3, 3), r(3, 3)), (r(2, 2, 3), r(2, 2, 3))],
    ),
    Case(
        "plucker_line_distance",
        "l1[N, 6], l2[M, 6]",
        """
d1, m1 = l1[:, None, :3], l1[:, None, 3:]
d2, m2 = l2[None, :, :3], l2[None, :, 3:]
reciprocal = (d1 * m2).sum(-1) + (d2 * m1).sum(-1)
cross = torch.linalg.cross(d1, d2)
return reciprocal.abs() / torch.linalg.vector_norm(cross, dim=-1).clamp(min=1e-8)
""",
        lambda: [(r(3, 6), r(2, 6))],
    ),
    Case(
        "point_triangle_distance",
        "p[N, 3], tri[N, 3, 3]",
        """
a, b, c = tri.unbind(dim=1)
ab, ac, ap = b - a, c - a, p - a
d00 = (ab * ab).sum(-1)
d01 = (ab * ac).sum(-1)
d11 = (ac * ac).sum(-1)
d20 = (ap * ab).sum(-1)
d21 = (ap * ac).sum(-1)
denom = d00 * d11 - d01 ** 2
v = (d11 * d20 - d01 * d21) / denom
w = (d00 * d21 - d01 * d20) / denom
bary = torch.stack([1 - v - w, v, w], dim=-1).clamp(0.0, 1.0)
bary = bary / bary.sum(-1, keepdim=True)
closest = (bary.unsqueeze(-1) * tri).sum(dim=1)
return (p - closest).pow(2).sum(-1)
""",
        lambda: [(r(4, 3), r(4, 3, 3))],
    ),
    Case(
        "moller_trumbore",
        "origin[N, 3], direction[N, 3], vertices[N, 3, 3], eps: float = 1e-9",
        """
v0, v1, v2 = vertices[:, 0], vertices[:, 1], vertices[:, 2]
e1 = v1 - v0
e2 = v2 - v0
pvec = torch.cross(direction, e2, dim=1)
det = torch.einsum('nd,nd->n', e1, pvec)
inv_det = 1.0 / (det + eps)
tvec = origin - v0
u = (tvec * pvec).sum(1) * inv_det
qvec = torch.cross(tvec, e1, dim=1)
v = (direction * qvec).sum(1) * inv_det
t = (e2 * qvec).sum(1) * inv_det
return t, u, v
""",
        lambda: [(r(3, 3), r(3, 3), r(3, 3, 3), 1e-9)],
        "t, u, v",
    ),
)
