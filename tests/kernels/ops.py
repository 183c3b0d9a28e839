"""The ops whose kernels are asked: their inputs, their forward, and a function that makes calls of a number of rows and columns."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaffold.spec import OpSpec
from tests.derive.building import spec_of

Lead = tuple[int, ...]


class FusedOp(NamedTuple):
    """An op with kernels."""

    inputs: str
    forward: str
    make: Callable[[Lead, int], tuple[Any, ...]]

    def spec(self, name: str) -> OpSpec:
        return spec_of(self.inputs, name, forward=self.forward, kernels=["triton"])


def rows(*counts: int) -> Callable[[Lead, int], tuple[Tensor, ...]]:
    """Make tensors of rows, so many times as long as there are columns."""
    return lambda lead, size: tuple(torch.randn(*lead, n * size) for n in counts)


def absent_for(size: int, value: Tensor | None) -> Tensor | None:
    """Make an optional input that is absent for a number of columns."""
    return None if value is None or value.shape[-1] == size else value


def masked(lead: Lead, size: int) -> tuple[Tensor, Tensor]:
    """Make rows, and a mask that leaves a number of each."""
    mask = torch.rand(*lead, size) > 0.5
    mask[..., 0] = True
    return torch.randn(*lead, size), mask


def classes(lead: Lead, size: int) -> tuple[Tensor, Tensor]:
    count = math.prod(lead)
    return torch.randn(count, size), torch.randint(size, (count,))


def heads(lead: Lead, size: int, *others: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Make rows of two samples and of two heads, and other tensors: a 0 in their shapes stands for the positions."""
    count = math.prod(lead)
    shapes = ((2, 2, 0, size), *others)
    return tuple(torch.randn([x or count for x in shape]) for shape in shapes)


def ignored(lead: Lead, size: int) -> tuple[Tensor, Tensor]:
    """Make classes with targets that are ignored, but for the first."""
    logits, target = classes(lead, size)
    drawn = torch.rand(len(target)) < 0.3
    drawn[0] = False
    return logits, torch.where(drawn, -100, target)


OPS = {
    "swish": FusedOp("x", "x * torch.sigmoid(x)", rows(1)),
    "mish_like": FusedOp("x", "x * torch.tanh(x)", rows(1)),
    "swiglu": FusedOp(
        "x[..., D]",
        "gate, value = x.chunk(2, dim=-1)\nreturn F.silu(gate) * value",
        rows(2),
    ),
    "geglu": FusedOp(
        "gate[..., D], value[..., D]",
        "F.gelu(gate, approximate='tanh') * value",
        rows(1, 1),
    ),
    "largest_product": FusedOp(
        "x[..., D], weight[D]",
        "(x * weight).amax(-1)",
        lambda lead, size: (torch.randn(*lead, size), torch.randn(size)),
    ),
    "rms_norm": FusedOp(
        "x[..., D], weight[D], eps: float = 1e-6",
        "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight",
        lambda lead, size: (torch.randn(*lead, size), torch.randn(size), 1e-6),
    ),
    "layer_norm": FusedOp(
        "x[..., D], weight[D], bias[D], eps: float = 1e-5",
        "mean = x.mean(-1, keepdim=True)\n"
        "var = x.var(-1, correction=0, keepdim=True)\n"
        "x_hat = (x - mean) * torch.rsqrt(var + eps)\n"
        "return x_hat * weight + bias",
        lambda lead, size: (
            torch.randn(*lead, size),
            *torch.randn(2, size),
            1e-5,
        ),
    ),
    "optional_norm": FusedOp(
        "x[..., D], weight[D]?, bias[D]?, eps: float = 1e-5",
        "F.layer_norm(x, x.shape[-1:], weight, bias, eps)",
        lambda lead, size: (
            torch.randn(*lead, size),
            absent_for(17, torch.randn(size)),
            absent_for(17, absent_for(64, torch.randn(size))),
            1e-5,
        ),
    ),
    "optional_residual": FusedOp(
        "x[..., D], residual[..., D]?",
        "h = torch.softmax(x, -1)\nif residual is not None:\n    h = h + residual\nreturn h * h",
        lambda lead, size: (
            torch.randn(*lead, size),
            absent_for(17, torch.randn(*lead, size)),
        ),
    ),
    "softmax": FusedOp(
        "x[..., D], temperature: float = 1.0",
        "torch.softmax(x / temperature, dim=-1)",
        lambda lead, size: (torch.randn(*lead, size), 0.7),
    ),
    "masked_softmax": FusedOp(
        "row[..., D], mask[..., D; bool]",
        "torch.softmax(row.masked_fill(~mask, float('-inf')), dim=-1)",
        masked,
    ),
    "swish_beta": FusedOp(
        "x, beta[]",
        "x * torch.sigmoid(beta * x)",
        lambda lead, size: (torch.randn(*lead, size), torch.rand(()) + 0.5),
    ),
    "tanh_norm": FusedOp(
        "x[..., D], alpha[1], weight[D], bias[D]",
        "torch.tanh(alpha * x) * weight + bias",
        lambda lead, size: (
            torch.randn(*lead, size),
            torch.rand(1) + 0.5,
            *torch.randn(2, size),
        ),
    ),
    "modulated": FusedOp(
        "x[B, T, D], scale[B, 1, D], shift[B, 1, D]",
        "(x - x.mean(-1, keepdim=True)) * (1 + scale) + shift",
        lambda lead, size: (
            torch.randn(2, math.prod(lead), size),
            *torch.randn(2, 2, 1, size),
        ),
    ),
    "rotary_positions": FusedOp(
        "x[B, T, D], cos[T, H], sin[T, H]",
        "a, b = x.chunk(2, -1)\nreturn torch.cat([a * cos - b * sin, b * cos + a * sin], -1)",
        lambda lead, size: (
            torch.randn(2, math.prod(lead), 2 * size),
            *torch.randn(2, math.prod(lead), size),
        ),
    ),
    "rotary_heads": FusedOp(
        "x[B, T, H, D], cos[T, 1, R], sin[T, 1, R]",
        "a, b = x[..., ::2], x[..., 1::2]\nreturn torch.cat([a * cos - b * sin, b * cos + a * sin], -1)",
        lambda lead, size: (
            torch.randn(2, math.prod(lead), 3, 2 * size),
            *torch.randn(2, math.prod(lead), 1, size),
        ),
    ),
    "rotary_usual": FusedOp(
        "x[B, T, H, D], cos[T, D], sin[T, D]",
        "c = cos[:, None, :]\ns = sin.unsqueeze(1)\na, b = x.chunk(2, -1)\n"
        "return x * c + torch.cat([-b, a], -1) * s",
        lambda lead, size: (
            torch.randn(2, math.prod(lead), 3, 2 * size),
            *torch.randn(2, math.prod(lead), 2 * size),
        ),
    ),
    "smoothed_mean": FusedOp(
        "logits[N, V], target[N; int], smoothing: float = 0.1",
        "F.cross_entropy(logits, target, label_smoothing=smoothing)",
        lambda lead, size: (*ignored(lead, size), 0.1),
    ),
    "square_root_mean": FusedOp(
        "x, y, eps: float = 1e-3",
        "torch.sqrt((x - y) ** 2 + eps).mean()",
        lambda lead, size: (*torch.randn(2, *lead, size), 1e-3),
    ),
    "batch_mean": FusedOp(
        "log_q[N, D], log_p[N, D]",
        "F.kl_div(log_q, log_p, reduction='batchmean', log_target=True)",
        lambda lead, size: tuple(torch.randn(2, math.prod(lead), size).log_softmax(-1)),
    ),
    "called_norm": FusedOp(
        "x[..., D], weight[D], bias[D], eps: float = 1e-5",
        "F.layer_norm(x, x.shape[-1:], weight, bias, eps)",
        lambda lead, size: (torch.randn(*lead, size), *torch.randn(2, size), 1e-5),
    ),
    "first_maximum": FusedOp(
        "x[..., D], gamma: float = 1.5",
        "e = torch.exp(x - x.max(-1, keepdim=True).values)\n"
        "p = e / e.sum(-1, keepdim=True)\n"
        "return torch.logsumexp(x, -1) * (p * p).sum(-1) ** gamma",
        lambda lead, size: (torch.randn(*lead, size), 1.5),
    ),
    "gated_maximum": FusedOp(
        "x[..., D], w[..., D]",
        "x.max(-1).values * torch.sigmoid(w.amax(-1))",
        rows(1, 1),
    ),
    "rotated_half": FusedOp(
        "x[B, T, D], cos[T, D], sin[T, D]",
        "a, b = x.chunk(2, -1)\nreturn x * cos + torch.cat([-b, a], -1) * sin",
        lambda lead, size: (
            torch.randn(2, math.prod(lead), 2 * size),
            *torch.randn(2, math.prod(lead), 2 * size),
        ),
    ),
    "names": FusedOp(
        "rows[..., cols], program[cols], why: float = 2.0",
        "precision = rows * program\nreturn precision * precision.mean(-1, keepdim=True) * why",
        lambda lead, size: (torch.randn(*lead, size), torch.randn(size), 2.0),
    ),
    "flat_names": FusedOp(
        "size, tensor, dtype: float = 2.0",
        "offsets = size * dtype\nreturn torch.tanh(offsets) * tensor",
        lambda lead, size: (*torch.randn(2, *lead, size), 2.0),
    ),
    "cross_entropy": FusedOp(
        "logits[N, V], target[N; int]",
        "F.cross_entropy(logits, target, reduction='none')",
        ignored,
    ),
    "smoothed": FusedOp(
        "logits[N, V], target[N; int], smoothing: float = 0.1",
        "log_probs = torch.log_softmax(logits, dim=-1)\n"
        "nll = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)\n"
        "return (1 - smoothing) * nll - smoothing * log_probs.mean(-1)",
        lambda lead, size: (*classes(lead, size), 0.1),
    ),
    "mean_less_lse": FusedOp(  # in float64 the row's size is divided by in float64
        "x[N, D]",
        "x.mean(-1) - torch.logsumexp(x, -1)",
        lambda lead, size: (torch.randn(math.prod(lead), size),),
    ),
    "kept_rows": FusedOp(  # a row that is selected away, of several results
        "x[N, D], weight[D], t[N; int]",
        "torch.where((t != 1)[:, None], x * weight * x.mean(-1, keepdim=True), 0.0)",
        lambda lead, size: (
            torch.randn(math.prod(lead), size),
            torch.randn(size),
            torch.randint(3, (math.prod(lead),)),
        ),
    ),
    "weighted_classes": FusedOp(  # an argument that is no input
        "x[N, C], weight[C], target[N; int]",
        "F.cross_entropy(x * weight, target, reduction='none')",
        lambda lead, size: (
            torch.randn(math.prod(lead), size),
            torch.randn(size),
            classes(lead, size)[1],
        ),
    ),
    "scaled_rows": FusedOp(
        "x[N, D], scale[N]",
        "x * scale[:, None]",
        lambda lead, size: (
            torch.randn(math.prod(lead), size),
            torch.randn(math.prod(lead)),
        ),
    ),
    "biased_halves": FusedOp(
        "x[..., D], bias[H]",
        "a, b = x.chunk(2, dim=-1)\nreturn (a + bias) * torch.sigmoid(b)",
        lambda lead, size: (torch.randn(*lead, 2 * size), torch.randn(size)),
    ),
    "kl_div": FusedOp(
        "log_q[..., D], p[..., D]",
        "(p * (p.log() - log_q)).sum(-1)",
        lambda lead, size: tuple(
            x.log_softmax(-1) if at else x.softmax(-1)
            for at, x in ((1, torch.randn(*lead, size)), (0, torch.randn(*lead, size)))
        ),
    ),
    "rotary": FusedOp(
        "x[..., D], cos[..., H], sin[..., H]",
        "a, b = x.chunk(2, -1)\nreturn torch.cat([a * cos - b * sin, b * cos + a * sin], -1)",
        rows(2, 1, 1),
    ),
    "interleaved": FusedOp(
        "x[..., D]", "x[..., ::2] * torch.sigmoid(x[..., 1::2])", rows(2)
    ),
    "quantize": FusedOp(
        "x[..., D], bits: int = 8",
        "scale = x.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)\n"
        "return x + (torch.round(x / scale) * scale - x).detach()",
        lambda lead, size: (torch.randn(*lead, size), 8),
    ),
    "rebound": FusedOp(  # a name for several values, for a dtype and for a number
        "x[..., D], residual[..., D], weight[D], power: int = 3",
        "kind = x.dtype\ntop = 2 ** (power - 1) - 1\nx = x + residual\n"
        "x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + top)\n"
        "return x.clamp(-top - 1, top).to(kind) * weight",
        lambda lead, size: (*torch.randn(2, *lead, size), torch.randn(size), 3),
    ),
    "biased_softmax": FusedOp(  # dims lack in the middle
        "scores[B, H, Q, K], bias[B, 1, Q, K]",
        "torch.softmax(scores + bias, -1)",
        lambda lead, size: heads(lead, size, (2, 1, 0, size)),
    ),
    "scaled_samples": FusedOp(  # a number for several rows
        "x[B, H, T, D], keep[B], slope[H], shift[T]",
        "(x + slope[:, None, None]) * keep[:, None, None, None] + shift[:, None]",
        lambda lead, size: heads(lead, size, (2,), (2,), (0,)),
    ),
    "gated_residual": FusedOp(  # a sum over the rows of a sample, times what they share
        "y[B, T, D], gate[B, D], scale[B, D]",
        "gate[:, None] * (y * (1 + scale[:, None]))",
        lambda lead, size: (
            torch.randn(2, math.prod(lead), size),
            *torch.randn(2, 2, size),
        ),
    ),
    "optional_row_scale": FusedOp(
        "x[N, D], scale[N]?",
        "x * scale[:, None] if scale is not None else x * 1.0",
        lambda lead, size: (
            torch.randn(math.prod(lead), size),
            None if size == 17 else torch.randn(math.prod(lead)),
        ),
    ),
    "masked_mean": FusedOp(
        "logits[N, V], target[N; int], weight[N; const]",
        "nll = F.cross_entropy(logits, target, reduction='none')\n"
        "return (nll * weight).sum() / weight.sum()",
        lambda lead, size: (*classes(lead, size), torch.rand(math.prod(lead)) + 0.1),
    ),
    "weighted_halves": FusedOp(  # each half is read for one gradient alone
        "x[*rows, M], p[*rows, D], q[*rows, D], bias[D]",
        "a, b = x.chunk(2, dim=-1)\nreturn a * p + b * q + bias",
        lambda lead, size: (
            *rows(2, 1, 1)(lead, size),
            torch.randn(size),
        ),
    ),
    "offset_mean": FusedOp(  # one gradient alone reads the weight, and the mean does
        "x[N, D], y[N, D], weight[N, D; const]",
        "(x * weight + y).sum() / weight.sum()",
        lambda lead, size: (
            *rows(1, 1)((math.prod(lead),), size),
            torch.rand(math.prod(lead), size) + 0.1,
        ),
    ),
    "token_mean": FusedOp(
        "logits[B, T, V], target[B, T; int], cap: float = 3.0",
        "logits = cap * torch.tanh(logits / cap)\n"
        "return F.cross_entropy(logits.reshape(-1, logits.size(-1)), target.reshape(-1))",
        lambda lead, size: (
            torch.randn(2, math.prod(lead), size),
            torch.randint(size, (2, math.prod(lead))),
            3.0,
        ),
    ),
    "token_sum": FusedOp(
        "logits[B, T, V], target[B, T; int]",
        "F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction='sum') / logits.shape[0]",
        lambda lead, size: (
            torch.randn(2, math.prod(lead), size),
            torch.randint(size, (2, math.prod(lead))),
        ),
    ),
    "soft_targets": FusedOp(
        "logits[N, V], p[N, V; const]",
        "F.cross_entropy(logits, p)",
        lambda lead, size: (
            torch.randn(math.prod(lead), size),
            torch.randn(math.prod(lead), size).softmax(-1),
        ),
    ),
    "distances": FusedOp(
        "a[N, D], b[N, D], c[N, D]",
        "F.pairwise_distance(a, b) * F.triplet_margin_loss(a, b, c, reduction='none')",
        lambda lead, size: tuple(torch.randn(3, math.prod(lead), size)),
    ),
    "two_softmaxes": FusedOp(
        "student[N, V], teacher[N, V], temperature: float = 2.0",
        "p = F.softmax(teacher / temperature, -1)\n"
        "return F.kl_div(F.log_softmax(student / temperature, -1), p, reduction='batchmean')",
        lambda lead, size: (*torch.randn(2, math.prod(lead), size), 2.0),
    ),
    "kept": FusedOp(
        "x[..., D], keep[..., D; bool]",
        "h = x * keep.to(x.dtype)\n"
        "return h / (torch.linalg.norm(h, dim=-1, keepdim=True) + h.var(-1, unbiased=False, keepdim=True) + 1)",
        masked,
    ),
    "normalize": FusedOp(
        "x[..., D], eps: float = 1e-6",
        "x / (x.norm(dim=-1, keepdim=True) + eps)",
        lambda lead, size: (torch.randn(*lead, size), 1e-6),
    ),
    "centred_max": FusedOp(
        "x[..., D], shift[D]",
        "x - x.amax(-1, keepdim=True) + (x * shift).std(-1, keepdim=True)",
        lambda lead, size: (torch.randn(*lead, size), torch.randn(size)),
    ),
    "shares": FusedOp(  # of a row of zeros NaN
        "x[..., D], weight[D]",
        "x / x.abs().sum(-1, keepdim=True) * weight",
        lambda lead, size: (torch.randn(*lead, size), torch.randn(size)),
    ),
    "scored": FusedOp(  # a number added to one of each row
        "x[N, D], weight[D], bias[]",
        "torch.sigmoid((x * weight).sum(-1) + bias)",
        lambda lead, size: (
            torch.randn(math.prod(lead), size),
            torch.randn(size),
            torch.randn(()),
        ),
    ),
    "huber": FusedOp(  # of float64, times a sign
        "x[N, D], y[N, D], delta: float = 0.8",
        "F.huber_loss(x, y, reduction='none', delta=delta).mean(-1)",
        lambda lead, size: (*torch.randn(2, math.prod(lead), size), 0.8),
    ),
}
