"""Refusals: no kernel is written of an op it cannot compute, and the message names the reason."""

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.kernels.triton import triton_kernels
from tests.derive.building import spec_of

REFUSED = {
    "matmul": ("x[..., D], w[D, K]", "x @ w"),
    "sum over a dim other": ("x[N, D]", "x - x.sum(0)"),
    "'keep' is optional": (
        "x[..., D], keep[..., D; bool]?",
        "torch.where(keep, x, 0) if keep is not None else x",
    ),
    "declare the shapes": ("x", "x / x.sum(-1, keepdim=True)"),
    "a number per row is broadcast": ("x[N, D], y[N]", "x.sum(-1) * x + y"),
    "tril": ("x[N, D]", "torch.tril(x)"),
    "acosh": ("x", "torch.acosh(x)"),
    "cross_entropy": (
        "x[..., C], t[...; index(C)]",
        "h = x * 2\nreturn F.cross_entropy(h, t, reduction='none')",
    ),
    "pow_base": ("x", "2.5 ** x"),
    "chunk along a dim other": ("x[N, D]", "a, b = x.chunk(2, 0)\nreturn a * b"),
    "read both whole and in parts": (
        "x[N, D]",
        "a, b = x.chunk(2, -1)\nreturn a * b + x.sum()",
    ),
    "'z' is complex": ("z[..., D; complex]", "z * z"),
    "'tl' is a name that kernels reserve": ("tl[N, D]", "tl * 2"),
    "'x_ptr' is a name that kernels reserve": ("x, x_ptr", "x * x_ptr"),
    "a choice": ("x[N, D], y[N, D], flag: bool = True", "x if flag else y"),
    "'scale' is tuple": ("x[N, D], scale: tuple = (1, 2)", "x * scale"),
    "the gradient of 'x' is zero everywhere": ("x, y", "torch.floor(x) * y"),
    "fits neither rows": ("x[B, H, T, K, D], cos[B, 1, T, 1, D]", "x * cos"),
    "its backward reads no row": ("x[N, C], t[N; int]", "F.nll_loss(x, t)"),
    "'mask' is read by the mean alone": (
        "x[N, D], mask[N, D; const]",
        "(x * x).sum() / mask.sum()",
    ),
    "on no input with all rows": ("x[B, T, D; int], cos[T, D]", "cos * 2"),
    "is the size of several dims": ("x[N, N]", "x - x.mean(-1, keepdim=True)"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_no_kernel_computes_is_refused_by_its_name(words: str) -> None:
    inputs, forward = REFUSED[words]
    spec = spec_of(inputs, "some_op", forward=forward, kernels=["triton"])
    with pytest.raises(ScaffoldError) as raised:
        triton_kernels(spec, Location("ops.toml"))
    assert "no kernel can be written for 'some_op'" in raised.value.message
    assert words in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        (
            "x[N, C], t[N; index(C)]",
            "F.cross_entropy(F.normalize(x, dim=-1), t)",
        ),
        (
            "x[..., D]",
            "F.rms_norm(F.layer_norm(x, x.shape[-1:]), x.shape[-1:], eps=1e-6)",
        ),
    ],
)
def test_a_call_in_an_argument_of_another_is_written_out(
    inputs: str, forward: str
) -> None:
    spec = spec_of(inputs, forward=forward, kernels=["triton"])
    pair, _ = triton_kernels(spec, Location("op"))
    assert pair.forward.lines
