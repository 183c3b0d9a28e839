"""A forward that the parser rewrites wrongly is found: the op is compared with the text that the user wrote."""

import ast
from collections.abc import Callable
from typing import Any

import pytest

from scaffold.formula import desugar, inline, loop_unrolling
from tests.verify.ops import judged, texts, verdict

MASKED = "with torch.no_grad():\n    m = torch.zeros_like(x)\n    m.add_(y)\nx * m"
JOINED = "rows = [x]\nrows.append(x.exp())\ntorch.cat(rows) * 2"
ROUNDS = "for i in range(2):\n    y = y * x\n    x = x + y\nx * y"
NESTED = "def g(a, b):\n    return a - 2 * b\nreturn g(x, y)"
Op = dict[str, Any]


def op(forward: str) -> Op:
    inputs = ", ".join(
        name for name in ("x", "y") if name in forward.replace("exp", "")
    )
    return {"inputs": inputs, "forward": forward, "derive": True}


FORWARDS = [MASKED, JOINED, ROUNDS, NESTED]


@pytest.mark.parametrize("forward", FORWARDS)
def test_a_forward_that_is_read_rightly_passes(forward: str) -> None:
    table = op(forward)
    assert "def own_forward(" in texts(**table).checks
    assert verdict(frozenset("xy"), **table).failure is None


def _swapped(found: dict[str, ast.expr]) -> dict[str, ast.expr]:
    return dict(zip(found, reversed(found.values()), strict=True))


MISTAKES: list[tuple[str, Any, str, Callable[[Any], Any], str]] = [
    (
        MASKED,
        desugar,
        "_may_be_recorded",
        lambda _: lambda *_: False,
        "grad_y: differs",
    ),
    (
        ROUNDS,
        loop_unrolling,
        "_step",
        lambda plain: lambda *given: (plain(*given) or [])[::-1],
        "forward: output: differs",
    ),
    (
        NESTED,
        inline,
        "bound_arguments",
        lambda plain: lambda *given: _swapped(plain(*given)),
        "forward: output: differs",
    ),
]


@pytest.mark.parametrize(("forward", "module", "name", "change", "words"), MISTAKES)
def test_a_wrong_rewrite_is_refused(
    forward: str,
    module: Any,
    name: str,
    change: Callable[[Any], Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, name, change(getattr(module, name)))
    found = verdict(frozenset("xy"), **op(forward)).failure
    assert found is not None
    told = f"{found.subject}: {found.words}"
    assert told.startswith(words)
    assert "differs from the forward as you wrote it: " in told
    assert found.hint.startswith("scaffold misreads the forward: please report it")


def test_the_memory_layout_of_an_output_is_no_difference() -> None:
    """A dim of size 1 has any stride, and output gradients are drawn in the order of the memory."""
    forward = (
        "u = x.mean(1, keepdim=True)\ns = (x - u).pow(2).mean(1, keepdim=True)\n"
        "x = (x - u) / torch.sqrt(s + 1e-6)\nweight[:, None, None] * x"
    )
    table = {"inputs": "x[N, C, H, W], weight[C]", "forward": forward, "derive": True}
    assert verdict(frozenset({"x", "weight"}), **table).failure is None


SURROGATE: dict[str, Any] = {
    "inputs": "x[N]",
    "forward": "h = x * 2\n(h > 0).to(x.dtype)",
    "surrogate": "torch.sigmoid(h + x)",
    "grad": {"x": "s = torch.sigmoid(3 * x)\ngrad_output * 3 * s * (1 - s)"},
}


def test_a_surrogate_that_reads_the_forward_s_locals_is_compared_with_both_texts() -> (
    None
):
    texts_ = texts(**SURROGATE)
    assert "h = x * 2\n    return torch.sigmoid(h + x)" in texts_.checks
    assert judged(*texts_).failure is None
    wrong = texts_.checks.replace(
        "h = x * 2\n    return torch.sigmoid(h + x)",
        "h = x * 2\n    return torch.sigmoid(h - x)",
    )
    found = judged(texts_.op, wrong).failure
    assert found is not None
    assert found.words.startswith("differs from the forward as you wrote it: ")
