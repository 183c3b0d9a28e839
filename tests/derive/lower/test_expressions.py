"""Attributes that are a number or a tuple: a gradient negates each number of a tuple."""

import pytest

from tests.derive.against_autograd import check_forward, tensor

CASES = (
    ("x, pad: tuple", "F.pad(x, pad)", (1, 2), "[-size for size in ctx.pad]"),
    ("x, pad: tuple", "F.pad(x, pad)", (1, -1, 0, 2), "[-size for size in ctx.pad]"),
    ("x, pad: tuple[int, ...]", "F.pad(x, pad * 2)", (1, 2), "in ctx.pad * 2]"),
    ("x, pad: tuple", "p = pad + (1, 1)\nreturn F.pad(x, p)", (1, 2), "in "),
    ("x, k: int", "F.pad(x, (k, k + 1))", 2, "(-ctx.k, -(ctx.k + 1))"),
    ("x, k: int", "F.pad(x, (k,) * 2)", 2, "[-size for size in (ctx.k,) * 2]"),
    ("x, k: tuple", "x.roll(k, (0, 1))", (2, 1), "[-size for size in ctx.k]"),
    ("x, k: int", "x.roll(k, 0)", 2, "roll(-ctx.k, 0)"),
    ("x, k: float", "x.roll(round(k), 0)", 1.7, "roll(-round(ctx.k), 0)"),
)


@pytest.mark.parametrize(("inputs", "forward", "value", "shown"), CASES)
def test_what_is_negated(inputs: str, forward: str, value: object, shown: str) -> None:
    text = check_forward(inputs, forward, [(tensor(3, 4), value)])
    assert shown in text and "torch.func.vjp" not in text
