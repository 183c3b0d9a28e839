"""Changes in place that nothing else sees become plain calls, so that such a forward is derived; others stay."""

import pytest
import torch
from torch.autograd import gradcheck

from scaffold.derive import derive
from scaffold.formula import emit_lines
from tests.derive.building import load, spec_of, text_of


def forward_of(inputs: str, forward: str) -> tuple[list[str], tuple[str, ...]]:
    """The lines of the forward as it will stand, without the result, and the notes."""
    derivation = derive(spec_of(inputs, forward=forward, derive=True))
    return emit_lines(derivation.forward or ()), derivation.notes


@pytest.mark.parametrize(
    ("forward", "lines"),
    [
        (
            "h = (x - y).clamp_(min=0).mul_(y); return h + 1",
            ["h = (x - y).clamp(min=0).mul(y)"],
        ),
        (
            "h = x @ y.mT; h.masked_fill_(y > 0, 2.0).add_(1); return h",
            ["h = x @ y.mT", "h = h.masked_fill(y > 0, 2.0).add(1)"],
        ),
        ("h = x * y; g = h.exp_(); return g * 2", ["h = x * y", "g = h.exp()"]),
        ("h = x * y; h = h.sub_(1); return h", ["h = x * y", "h = h.sub(1)"]),
        ("h = x * y; return h.exp_()", ["h = x * y"]),
    ],
)
def test_what_only_the_line_sees_is_plain(forward: str, lines: list[str]) -> None:
    found, notes = forward_of("x[N, N], y[N, N]", forward)
    assert (found, notes) == (lines, ())


@pytest.mark.parametrize(
    ("forward", "line"),
    [
        ("h = x * y; g = h.exp_(); return g * h", "g = h.exp_()"),
        ("h = x * y; v = h[0]; h.exp_(); return v + h", "h.exp_()"),
        ("h = x * y; g = h; h.exp_(); return g + h", "h.exp_()"),
        ("h = x * y; h.mul_(h.sum()); return h", "h.mul_(h.sum())"),
        ("h = x * y; g = h.exp_() + h; return g", "g = h.exp_() + h"),
        ("h = x * y; h.copy_(x); return h + y", "h.copy_(x)"),
    ],
)
def test_what_others_see_stays_a_change(forward: str, line: str) -> None:
    found, notes = forward_of("x[N, N], y[N, N]", forward)
    assert line in found
    assert "in place" in notes[0]


def test_formulas_of_the_user_keep_the_forward() -> None:
    spec = spec_of(
        "x",
        forward="h = x * 2; h.exp_(); return h",
        grad={"x": "2 * grad_output * output"},
    )
    assert "h.exp_()" in emit_lines(derive(spec).forward or ())


def test_the_gradient_is_that_of_the_change() -> None:
    forward = "h = (x - y).pow_(2); h.mul_(y).add_(1); return h.log_()"
    spec = spec_of("x[N, D], y[N, D; positive]", forward=forward, derive=True)
    assert "torch.func.vjp" not in text_of(spec)
    function = load(text_of(spec)).SomeOpFunction
    x, y = (torch.rand(2, 3, dtype=torch.double) for _ in range(2))
    assert torch.equal(function.apply(x, y), ((x - y).pow(2) * y + 1).log())
    assert gradcheck(function.apply, [x.requires_grad_(), y.requires_grad_()])
