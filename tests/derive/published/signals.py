"""Filters, spectra and rotations as libraries write them."""

from tests.derive.cases import Case, p, r, z
from tests.derive.ops_of_others import u

SIGNALS = (
    Case(
        "stft_magnitude",
        "x[B, T], window[N; const], hop: int = 2",
        """
frames = x.unfold(-1, window.shape[0], hop) * window
spec = torch.fft.rfft(frames, dim=-1)
return torch.sqrt(spec.real ** 2 + spec.imag ** 2 + 1e-8)
""",
        lambda: [(r(2, 8), p(4), 2)],
    ),
    Case(
        "hilbert_envelope",
        "x[..., T]",
        """
N = x.shape[-1]
X = torch.fft.fft(x)
k = torch.arange(N, device=x.device)
h = torch.where((k == 0) | (2 * k == N), 1.0, torch.where(2 * k < N, 2.0, 0.0)).to(x.dtype)
return torch.fft.ifft(X * h).abs()
""",
        lambda: [(r(2, 6),), (r(2, 5),)],
    ),
    Case(
        "log_mel",
        "power[B, T, K], mel[M, K; const], eps: float = 1e-6",
        """
energy = torch.matmul(power.abs(), mel.t())
log_e = torch.log10(torch.clamp(energy, min=eps))
log_e = torch.maximum(log_e, log_e.amax(dim=(-2, -1), keepdim=True) - 8.0)
return (log_e + 4.0) / 4.0
""",
        lambda: [(p(2, 3, 4), p(5, 4), 1e-6)],
    ),
    Case(
        "biquad_response",
        "f0[1], q[1], gain[1], w[K; const]",
        """
A = 10 ** (gain / 40)
w0 = 2 * math.pi * f0
alpha = torch.sin(w0) / (2 * q)
z1 = torch.exp(-1j * w)
z2 = z1 * z1
num = (1 + alpha * A) - 2 * torch.cos(w0) * z1 + (1 - alpha * A) * z2
den = (1 + alpha / A) - 2 * torch.cos(w0) * z1 + (1 - alpha / A) * z2
return 20 * torch.log10((num / den).abs())
""",
        lambda: [(u(1) * 0.3, p(1), r(1), p(5))],
    ),
    Case(
        "complex_rotate",
        "z[..., D; complex], theta[D]",
        """
rot = torch.polar(torch.ones_like(theta), theta)
return torch.view_as_real(z * rot).flatten(-2)
""",
        lambda: [(z(2, 4), r(4))],
    ),
    Case(
        "spectral_conv1d",
        "x[B, C, N], weight[C, O, M; complex], modes: int = 2",
        """
x_ft = torch.fft.rfft(x)
low = torch.einsum("bix,iox->box", x_ft[:, :, :modes], weight[:, :, :modes])
out_ft = F.pad(low, (0, x.size(-1) // 2 + 1 - modes))
return torch.fft.irfft(out_ft, n=x.size(-1))
""",
        lambda: [(r(2, 3, 6), z(3, 2, 2), 2)],
    ),
    Case(
        "multi_res_stft_loss",
        "a[B, K], b[B, K]",
        """
sc = torch.linalg.norm(b - a, dim=-1) / torch.linalg.norm(b, dim=-1).clamp(min=1e-7)
mag = F.l1_loss(torch.log(a.clamp(min=1e-7)), torch.log(b.clamp(min=1e-7)))
return sc.mean() + mag
""",
        lambda: [(p(2, 4), p(2, 4))],
    ),
    Case(
        "si_sdr",
        "est[..., T], ref[..., T], eps: float = 1e-8",
        """
est = est - est.mean(-1, keepdim=True)
ref = ref - ref.mean(-1, keepdim=True)
scale = (est * ref).sum(-1, keepdim=True) / (ref.pow(2).sum(-1, keepdim=True) + eps)
proj = scale * ref
noise = est - proj
ratio = proj.pow(2).sum(-1) / (noise.pow(2).sum(-1) + eps)
return -10 * torch.log10(ratio + eps).mean()
""",
        lambda: [(r(2, 5), r(2, 5), 1e-8)],
    ),
    Case(
        "s4_vandermonde_kernel",
        "log_dt[H], C[H, N; complex], log_A_real[H, N], A_imag[H, N], L: int = 4",
        """
dt = torch.exp(log_dt)
A = -torch.exp(log_A_real) + 1j * A_imag
dtA = A * dt.unsqueeze(-1)
K = dtA.unsqueeze(-1) * torch.arange(L, device=A.device)
Cd = C * (torch.exp(dtA) - 1.) / A
return 2 * torch.einsum('hn, hnl -> hl', Cd, torch.exp(K)).real
""",
        lambda: [(r(2) * 0.3, z(2, 3), r(2, 3) * 0.3, r(2, 3), 4)],
    ),
    Case(
        "dct_type2",
        "x[..., N]",
        """
N = x.shape[-1]
v = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], dim=-1)
Vc = torch.fft.fft(v, dim=-1)
k = -torch.arange(N, dtype=x.dtype, device=x.device) * math.pi / (2 * N)
return 2 * (Vc.real * torch.cos(k) - Vc.imag * torch.sin(k))
""",
        lambda: [(r(2, 6),), (r(2, 5),)],
    ),
    Case(
        "fftconv_bias",
        "u[B, D, L], k[D, L], Dskip[D]",
        """
fft_size = 2 * u.shape[-1]
k_f = torch.fft.rfft(k, n=fft_size) / fft_size
u_f = torch.fft.rfft(u, n=fft_size)
y = torch.fft.irfft(u_f * k_f, n=fft_size, norm='forward')[..., :u.shape[-1]]
return y + u * Dskip.unsqueeze(-1)
""",
        lambda: [(r(2, 3, 4), r(3, 4), r(3))],
    ),
    Case(
        "preemphasis_energy",
        "wav[B, T], coeff: float = 0.97",
        """
y = torch.cat([wav[:, :1], wav[:, 1:] - coeff * wav[:, :-1]], dim=1)
return torch.log(y.pow(2).mean(-1) + 1e-10)
""",
        lambda: [(r(2, 5), 0.97)],
    ),
)
