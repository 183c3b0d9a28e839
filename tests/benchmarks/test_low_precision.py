"""Gradients in low precision are those of the inputs' dtype, and at most three times as wrong as PyTorch's own."""

import pytest
import torch

from benchmarks.low_precision import CASES, measured

QUICK = ("rms_norm", "softmax", "silu, written out", "linear")


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in CASES
    ],
)
def test_gradients_are_about_as_exact_as_those_of_pytorch_s_own_op(name: str) -> None:
    for found in measured([name]):
        assert found.typed, found
        assert found.ratio < 3, found


def test_a_bias_of_another_dtype_is_cast_in_the_forward() -> None:
    """What the documentation says to write where inputs have several dtypes."""
    from tests.derive.building import draft_of, load, spec_of

    forward = "x @ w.t() + b.to(x.dtype)"
    op = load(draft_of(spec_of("x[N, D], w[M, D], b[M]", forward=forward))).some_op
    x, w = (torch.randn(4, 4, dtype=torch.bfloat16, requires_grad=True) for _ in "xw")
    b = torch.randn(4, requires_grad=True)
    found = torch.autograd.grad(op(x, w, b).sum(), (x, w, b))
    assert [one.dtype for one in found] == [x.dtype, x.dtype, b.dtype]
