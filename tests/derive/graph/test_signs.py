"""Which sign the numbers of a value surely have, and that they have it."""

import pytest
import torch
from torch.nn import functional

from scaffold.derive.graph.op import Op
from scaffold.derive.graph.signs import is_nonnegative, is_nonpositive
from scaffold.derive.pipeline import _before_style
from tests.derive.building import spec_of

NONNEGATIVE = [
    "x.abs()",
    "x * x",
    "x**2",
    "x**8",
    "x.relu() * y.abs()",
    "x.abs() / (y * y)",
    "x.exp().sum(-1)",
    "x.square().mean()",
    "x.abs()[0]",
    "x.abs().reshape(-1)",
    "x.argmax(-1) * x.argmax(-1)",
    "torch.arange(3)",
]
NONPOSITIVE = ["-x.abs()", "-(x * x)", "-x * x", "-x.abs() / y.square()"]
EITHER = ["x", "x * y", "x**3", "x.abs() * y", "x.abs() - y.abs()", "-x", "x.sum()"]


def value(forward: str) -> Op:
    """The op of a forward's result."""
    spec = spec_of("x[3, 4], y[3, 4]", forward=f"x.sum() * ({forward})", derive=True)
    gradients = _before_style(spec).gradients
    assert gradients is not None
    return gradients.results[0].args[1]


@pytest.mark.parametrize("forward", [*NONNEGATIVE, *NONPOSITIVE, *EITHER])
def test_a_sign_is_said_where_it_is_sure(forward: str) -> None:
    op = value(forward)
    assert is_nonnegative(op) == (forward in NONNEGATIVE)
    assert is_nonpositive(op) == (forward in NONPOSITIVE)


def test_a_product_of_indices_is_no_index_from_the_end() -> None:
    op = value("x * y")
    assert is_nonnegative(op, {"x", "y"}) and not is_nonnegative(op, {"x"})


def test_what_is_said_holds() -> None:
    torch.manual_seed(0)
    names: dict[str, object] = {"torch": torch, "F": functional}
    for _ in range(20):
        names |= {"x": torch.randn(3, 4), "y": torch.randn(3, 4)}
        assert all((eval(item, names) >= 0).all() for item in NONNEGATIVE)
        assert all((eval(item, names) <= 0).all() for item in NONPOSITIVE)


def test_nothing_is_said_of_complex_values() -> None:
    spec = spec_of("x[N; complex]", forward="x * x", derive=True)
    gradients = _before_style(spec).gradients
    assert gradients is not None
    assert not is_nonnegative(gradients.results[0])
