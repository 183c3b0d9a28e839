"""Activations, gates and norms as libraries of models write them."""

from tests.derive.cases import Case, p, r

ACTIVATIONS = (
    Case(
        "squared_relu",
        "x",
        "torch.square(F.relu(x))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "laplace_act",
        "x, mu: float = 0.707107, sigma: float = 0.282095",
        """
input = (x - mu).div(sigma * math.sqrt(2.0))
return 0.5 * (1.0 + torch.erf(input))
""",
        lambda: [(r(3, 4), 0.707107, 0.282095)],
    ),
    Case(
        "quick_gelu_erfless",
        "x",
        "0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))",
        lambda: [(r(3, 4),)],
    ),
    Case(
        "acon_c",
        "x[N, C, H, W], p1[1, C, 1, 1], p2[1, C, 1, 1], beta[1, C, 1, 1]",
        """
dpx = (p1 - p2) * x
return dpx * (dpx * beta).sigmoid() + p2 * x
""",
        lambda: [(r(2, 3, 2, 4), r(1, 3, 1, 1), r(1, 3, 1, 1), r(1, 3, 1, 1))],
    ),
    Case(
        "meta_acon",
        "x[N, C, H, W], p1[C], p2[C], fc1[R, C], fc2[C, R]",
        """
n, c, _, _ = x.size()
y = x.mean(dim=2, keepdims=True).mean(dim=3, keepdims=True).view(n, c)
beta = torch.sigmoid(F.linear(F.linear(y, fc1), fc2))[:, :, None, None]
p1, p2 = p1.view(1, -1, 1, 1), p2.view(1, -1, 1, 1)
dpx = (p1 - p2) * x
return dpx * torch.sigmoid(beta * dpx) + p2 * x
""",
        lambda: [(r(2, 3, 2, 4), r(3), r(3), r(2, 3), r(3, 2))],
    ),
    Case(
        "hard_sigmoid_gate",
        "x[B, C, H, W], se[B, C]",
        """
gate = F.relu6(se + 3.) / 6.
return x.mul(gate.view(x.size(0), -1, 1, 1))
""",
        lambda: [(r(2, 3, 4, 2), 3 * r(2, 3))],
    ),
    Case(
        "xielu",
        "x, alpha_p, alpha_n, beta: float = 0.5, eps: float = -1e-6",
        """
alpha_p = F.softplus(alpha_p)
alpha_n = beta + F.softplus(alpha_n)
return torch.where(x > 0, alpha_p * x * x + beta * x, (torch.expm1(torch.min(x, torch.tensor(eps).to(x))) - x) * alpha_n + beta * x)
""",
        lambda: [(r(3, 4), r(), r(), 0.5, -1e-6)],
    ),
    Case(
        "snake_beta",
        "x[B, C, T], alpha[C], beta[C], alpha_logscale: bool = True",
        """
alpha = alpha.unsqueeze(0).unsqueeze(-1)
beta = beta.unsqueeze(0).unsqueeze(-1)
if alpha_logscale:
    alpha = torch.exp(alpha)
    beta = torch.exp(beta)
return x + (1.0 / (beta + 0.000000001)) * torch.pow(torch.sin(x * alpha), 2)
""",
        lambda: [(r(2, 3, 4), p(3), p(3), True), (r(2, 3, 4), p(3), p(3), False)],
    ),
    Case(
        "smelu",
        "x, beta: float = 1.0",
        "torch.where(x >= beta, x, torch.where(x <= -beta, torch.zeros_like(x), (x + beta) ** 2 / (4 * beta)))",
        lambda: [(2 * r(3, 4), 1.0)],
    ),
    Case(
        "bilinear_glu_gates",
        "x[..., D], W[D, H], V[D, H], b[H]?, c[H]?, kind: str = 'geglu'",
        """
gate = x @ W
if b is not None:
    gate = gate + b
value = x @ V
if c is not None:
    value = value + c
if kind == 'glu':
    gate = torch.sigmoid(gate)
elif kind == 'geglu':
    gate = F.gelu(gate)
elif kind == 'swiglu':
    gate = F.silu(gate)
return gate * value
""",
        lambda: [
            (r(2, 3, 4), r(4, 5), r(4, 5), r(5), r(5), "geglu"),
            (r(3, 4), r(4, 5), r(4, 5), None, r(5), "swiglu"),
            (r(3, 4), r(4, 5), r(4, 5), r(5), None, "glu"),
            (r(3, 4), r(4, 5), r(4, 5), None, None, "bilinear"),
        ],
    ),
    Case(
        "swiglu_clamped",
        "x[..., D], alpha: float = 1.702, limit: float = 7.0",
        """
x_glu, x_linear = x[..., ::2], x[..., 1::2]
x_glu = x_glu.clamp(min=None, max=limit)
x_linear = x_linear.clamp(min=-limit, max=limit)
out_glu = x_glu * torch.sigmoid(alpha * x_glu)
return out_glu * (x_linear + 1)
""",
        lambda: [(r(2, 3, 4), 1.702, 0.8)],
    ),
    Case(
        "rwkv_channel_mix",
        "x[B, T, C], last[B, T, C], mix_k[C], mix_r[C], wk[H, C], wr[C, C], wv[C, H]",
        """
xk = x * mix_k + last * (1 - mix_k)
xr = x * mix_r + last * (1 - mix_r)
k = torch.square(torch.relu(xk @ wk.T))
return torch.sigmoid(xr @ wr.T) * (k @ wv.T)
""",
        lambda: [
            (r(2, 3, 4), r(2, 3, 4), p(4), p(4), r(5, 4), r(4, 4), r(4, 5)),
        ],
    ),
)

NORMS = (
    Case(
        "llama_rms_norm",
        "hidden_states[..., D], weight[D], variance_epsilon: float = 1e-6",
        """
input_dtype = hidden_states.dtype
hidden_states = hidden_states.to(torch.float64)
variance = hidden_states.pow(2).mean(-1, keepdim=True)
hidden_states = hidden_states * torch.rsqrt(variance + variance_epsilon)
return weight * hidden_states.to(input_dtype)
""",
        lambda: [(r(2, 3, 4), r(4), 1e-6)],
    ),
    Case(
        "deep_norm_residual",
        "x[..., D], sublayer[..., D], gamma[D], beta[D], alpha: float = 1.5, eps: float = 1e-5",
        "F.layer_norm(alpha * x + sublayer, (x.size(-1),), weight=gamma, bias=beta, eps=eps)",
        lambda: [(r(2, 3, 4), r(2, 3, 4), r(4), r(4), 1.5, 1e-5)],
    ),
    Case(
        "layer_scale_residual",
        "x[B, N, C], branch[B, N, C], gamma[C], keep[B; const]?, keep_prob: float = 0.9",
        """
y = branch.mul(gamma)
if keep is not None:
    y = y.div(keep_prob) * keep.view(-1, 1, 1)
return x + y
""",
        lambda: [
            (r(2, 3, 4), r(2, 3, 4), r(4), p(2), 0.9),
            (r(2, 3, 4), r(2, 3, 4), r(4), None, 0.9),
        ],
    ),
    Case(
        "convnext_grn_nchw",
        "x[B, C, H, W], weight[C], bias[C], eps: float = 1e-6",
        """
x_g = x.norm(p=2, dim=(2, 3), keepdim=True)
x_n = x_g / (x_g.mean(dim=1, keepdim=True) + eps)
return x + torch.addcmul(bias.view(1, -1, 1, 1), weight.view(1, -1, 1, 1), x * x_n)
""",
        lambda: [(r(2, 3, 4, 2), r(3), r(3), 1e-6)],
    ),
    Case(
        "layer_norm_2d",
        "x[N, C, H, W], weight[C], bias[C], eps: float = 1e-6",
        """
u = x.mean(1, keepdim=True)
s = (x - u).pow(2).mean(1, keepdim=True)
x = (x - u) / torch.sqrt(s + eps)
x = weight[:, None, None] * x + bias[:, None, None]
return x
""",
        lambda: [(r(2, 3, 4, 2), r(3), r(3), 1e-6)],
    ),
    Case(
        "evo_norm_s0",
        "x[N, C, H, W], v[C], gamma[C], beta[C], groups: int = 2, eps: float = 1e-5",
        """
B, C, H, W = x.shape
xg = x.reshape(B, groups, -1)
std = torch.sqrt(xg.var(dim=2, unbiased=False, keepdim=True) + eps)
std = std.expand(B, groups, C // groups * H * W).reshape(B, C, H, W)
num = x * torch.sigmoid(v.view(1, -1, 1, 1) * x)
return num / std * gamma.view(1, -1, 1, 1) + beta.view(1, -1, 1, 1)
""",
        lambda: [(r(2, 4, 2, 3), r(4), r(4), r(4), 2, 1e-5)],
    ),
    Case(
        "power_norm",
        "x[N, C], running_phi[C; const, positive], weight[C], bias[C], eps: float = 1e-5, training: bool = True",
        """
if training:
    var = torch.mean(x * x, dim=0)
else:
    var = running_phi
z = x / (var + eps).sqrt()
return weight.reshape(1, -1) * z + bias.reshape(1, -1)
""",
        lambda: [
            (r(3, 4), p(4), r(4), r(4), 1e-5, True),
            (r(3, 4), p(4), r(4), r(4), 1e-5, False),
        ],
    ),
    Case(
        "scaled_std_conv_weight",
        "weight[O, I, K, L], gain[O, 1, 1, 1]?, gamma: float = 1.0, eps: float = 1e-6",
        """
fan_in = math.prod(weight.shape[1:])
mean = torch.mean(weight, dim=[1, 2, 3], keepdim=True)
var = torch.var(weight, dim=[1, 2, 3], keepdim=True, unbiased=False)
scale = gamma * fan_in ** -0.5
weight = scale * (weight - mean) / torch.sqrt(var + eps)
if gain is not None:
    weight = weight * gain
return weight
""",
        lambda: [
            (r(3, 2, 3, 3), r(3, 1, 1, 1), 1.0, 1e-6),
            (r(3, 2, 3, 3), None, 1.0, 1e-6),
        ],
    ),
    Case(
        "switchable_norm",
        "x[N, C, H, W], mean_weight[3], var_weight[3], weight[1, C, 1, 1], bias[1, C, 1, 1], eps: float = 1e-5",
        """
N, C, H, W = x.size()
x = x.view(N, C, -1)
mean_in = x.mean(-1, keepdim=True)
var_in = x.var(-1, keepdim=True)
mean_ln = mean_in.mean(1, keepdim=True)
temp = var_in + mean_in ** 2
var_ln = temp.mean(1, keepdim=True) - mean_ln ** 2
mean_bn = mean_in.mean(0, keepdim=True)
var_bn = temp.mean(0, keepdim=True) - mean_bn ** 2
mw = F.softmax(mean_weight, 0)
vw = F.softmax(var_weight, 0)
mean = mw[0] * mean_in + mw[1] * mean_ln + mw[2] * mean_bn
var = vw[0] * var_in + vw[1] * var_ln + vw[2] * var_bn
x = (x - mean) / (var + eps).sqrt()
x = x.view(N, C, H, W)
return x * weight + bias
""",
        lambda: [(r(2, 3, 2, 3), r(3), r(3), r(1, 3, 1, 1), r(1, 3, 1, 1), 1e-5)],
    ),
    Case(
        "qk_norm",
        "q[B, H, S, D], k[B, H, S, D], q_scale[H, 1, D], k_scale[H, 1, D], scale: float = 8.0",
        """
q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
q = q * q_scale
k = k * k_scale
return torch.einsum('b h i d, b h j d -> b h i j', q, k) * scale
""",
        lambda: [(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 1, 4), r(2, 1, 4), 8.0)],
    ),
)
