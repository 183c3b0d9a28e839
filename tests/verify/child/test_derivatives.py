"""Tangents without PyTorch's forward mode: the vjp transposed."""

import torch

from scaffold.verify.child.derivatives import _transposed, pushed


def test_complex_outputs_have_tangents_too() -> None:
    """They are those of forward mode; an output of integers has none."""
    x = torch.randn(3, dtype=torch.cdouble)
    tangents = [torch.randn(3, dtype=torch.cdouble), None]

    def function(x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        return x * x.conj() * n + 1j * x.abs(), x.real > 0, x.imag

    found = _transposed(function, [x, 2], tangents)
    expected = pushed(function, [x, 2], tangents)
    torch.testing.assert_close(found, expected)
    assert found[1] is None
