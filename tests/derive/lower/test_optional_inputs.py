"""Optional inputs as people test them: each there and not there, beside autograd."""

from typing import Any

import pytest
import torch

from scaffold.derive import derive
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import draft_of, load, spec_of

x, y, z, w = tensor(3, 4), tensor(4, 3).mT, tensor(3, 4) * 0.5, tensor(4)

# What is declared, the forward, and calls.
FORMS: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    "divergence": (
        "x[B, D], y[B, D], z[B, D]?, v[B, D]?",
        """
if z is None:
    out = -0.5 * (1 + y - x.pow(2) - y.exp())
else:
    out = 0.5 * (v - y - 1 + (y.exp() + (x - z).pow(2)) / v.exp())
return out.mean()
""",
        [(x, y, z, y * 2), (x, y, None, None), (x, y, None, z)],
    ),
    "a choice of three": (
        "x[B, D], a[D]?, b[D]?",
        "return x.sin() if a is None else x * a.exp() + (x * b.cos()).sum() * b.exp()",
        [(x, w, w + 1), (x, None, w), (x, None, None)],
    ),
    "read under both tests": (
        "x[B, D], a[D]?, b[D]?",
        """
if b is not None:
    x = x * b.exp()
if a is not None:
    x = x + a * b.exp() * (b.exp() * x).sum()
return x.tanh()
""",
        [(x, w, w + 1), (x, None, w), (x, None, None)],
    ),
    "either way": (
        "x[B, D], a[D]?, b[D]?",
        """
if a is None:
    h = x.exp() * x
    h = h * x.exp()
else:
    h = x * b.exp() + x.exp() * a
return h * (1 if a is None else b.exp())
""",
        [(x, w, w + 1), (x, None, w), (x, None, None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_derived(name: str) -> None:
    inputs, forward, calls = FORMS[name]
    spec = spec_of(inputs, forward=forward)
    assert not derive(spec).notes
    check_forward(inputs, forward, calls)


def test_where_one_of_two_is_missing_the_forward_raises() -> None:
    inputs, forward, _ = FORMS["divergence"]
    spec = spec_of(inputs, forward=forward)
    module = load(draft_of(spec, derive(spec)))
    with pytest.raises(AssertionError):
        module.some_op(x, y, z, None)
    torch.testing.assert_close(
        module.some_op(x, y, None, z), module.some_op(x, y, None, None)
    )
