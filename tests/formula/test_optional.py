"""Where an optional tensor may stand in a call without a test."""

import ast

import pytest

from scaffold.formula.expression import takes_none

TORCH, VALUES = frozenset({"torch", "F"}), frozenset({"x", "abs"})


def welcome(text: str) -> set[int]:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    return takes_none(call, TORCH, VALUES)


@pytest.mark.parametrize(
    ("call", "positions"),
    [
        ("F.linear(x, w, b)", {2}),
        ("F.linear(x, w, bias=b)", {2}),
        ("F.linear(bias=b, input=x, weight=w)", {0}),
        ("torch.nn.functional.conv2d(x, w, b, 1)", {2}),
        ("F.layer_norm(x, w.shape, w, b, 1e-5)", {2, 3}),
        ("F.batch_norm(x, mean, var, w, b)", {1, 2, 3, 4}),
        ("torch.clamp(x, low, high)", {1, 2}),
        ("x.clamp(low, max=high)", {0, 1}),
        ("x.relu().clamp(low)", {0}),
        ("F.cross_entropy(x, y, weight=w, reduction=b)", {2}),
        ("my_kernel(x, b, scale=s)", {0, 1, 2}),
        ("kernels.forward(x, b)", {0, 1}),
    ],
)
def test_none_is_welcome(call: str, positions: set[int]) -> None:
    assert welcome(call) == positions


@pytest.mark.parametrize(
    "call",
    [
        *("torch.exp(b)", "F.relu(b)", "x.mul(b)", "abs(b)", "x.sin().add(b)"),
        *("torch.batch_norm(x, w, b)", "torch.foo.inear(x, w, b)", "linear_(x)(b)"),
    ],
)
def test_it_must_be_tested_first(call: str) -> None:
    assert not welcome(call)
