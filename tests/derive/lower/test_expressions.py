"""Attributes among the arguments of primitives: a gradient negates each number of a tuple; a string chooses among rules."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import backward_of

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


def layouts(*shape: int) -> list[Tensor]:
    """A tensor as it is, with strides that are not contiguous, and one without rows."""
    x = tensor(*shape)
    return [x, x.mT.contiguous().mT, x[:0]]


CHOSEN = (
    ("x, kind: str", "F.gelu(x, approximate=kind)", ("none", "tanh")),
    ("x, kind: str", "F.gelu(x * x, approximate=kind) * x", ("none", "tanh")),
    ("x, n: int", "torch.diff(x, n)", (1, 2, 7)),
    ("x, dim: int", "x.diff(dim=dim).exp()", (1, -1)),
    ("x, dim: int", "torch.prod(x, dim, keepdim=True)", (0, 1, -1)),
    ("x, p: float", "torch.norm(x + 3, p, -1)", (1.0, 2.0, 3.0)),
)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("dims", ["", "[N, D]"])
@pytest.mark.parametrize(("inputs", "forward", "values"), CHOSEN)
def test_an_attribute_chooses_the_rule(
    inputs: str, forward: str, values: tuple[Any, ...], dims: str
) -> None:
    calls = [(x, value) for x in layouts(3, 4) for value in values]
    text = check_forward(inputs.replace("x", f"x{dims}", 1), forward, calls)
    assert "torch.func.vjp" not in text


def test_a_loss_of_each_reduction() -> None:
    forward = "F.kl_div(x.log_softmax(-1), y, reduction=reduction)"
    y = tensor(1, 4).softmax(-1)
    calls = [(tensor(3, 4), y, word) for word in ("batchmean", "mean", "sum", "none")]
    text = check_forward("x, y, reduction: str", forward, calls)
    assert "torch.func.vjp" not in text


def test_a_call_with_a_rule_for_each_case_is_written_once() -> None:
    forward = "y * F.gelu(x * x, approximate=kind)"
    text = check_forward(
        "x, y, kind: str", forward, [(tensor(3, 4), tensor(4), "tanh")]
    )
    assert backward_of(text).count("gelu = F.gelu(") == 1


@pytest.mark.parametrize("weight", ["", ", weight=torch.arange(1, 5, dtype=x.dtype)"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("call", ["cross_entropy(x, ", "nll_loss(x.log_softmax(-1), "])
def test_classes_of_tensors_of_any_rank(call: str, reduction: str, weight: str) -> None:
    forward = f"F.{call}target{weight}, reduction='{reduction}')"
    shapes = ((5, 4), (4,), (2, 4, 3)) if "cross" in call else ((5, 4), (4,))
    calls = [
        (tensor(*shape), torch.randint(0, 4, shape[:1] * (len(shape) > 1) + shape[2:]))
        for shape in shapes
    ]
    text = check_forward("x, target[; int]", forward, calls)
    assert "torch.func.vjp" not in text


@pytest.mark.parametrize(
    "inputs", ["x[N, C, L], w[O, C, K], padding: int", "x[N, C, L], w[O, C, K]"]
)
def test_a_number_is_no_string(inputs: str) -> None:
    """The rule of a convolution is for a padding that is no word."""
    padding = "padding" if "padding" in inputs else "w.shape[2] - 1"
    values: tuple[Any, ...] = (tensor(2, 3, 5), tensor(4, 3, 2))
    values += (1,) * ("padding" in inputs)
    text = check_forward(inputs, f"F.conv1d(x, w, padding={padding})", [values])
    assert "torch.func.vjp" not in text


def test_one_number_for_each_channel_of_any_rank() -> None:
    forward = "F.group_norm(x, 2, weight, bias)"
    text = check_forward(
        "x, weight, bias",
        forward,
        [(tensor(*shape), tensor(4), tensor(4) + 1) for shape in ((3, 4), (2, 4, 3))],
    )
    assert "torch.func.vjp" not in text


def test_the_dtype_of_a_value_that_a_branch_assigns_again() -> None:
    forward = """
scores = (q + p) / 3
if mask is not None:
    least = torch.finfo(scores.dtype).min
    scores = scores.masked_fill(mask, least)
return torch.softmax(scores, -1)
"""
    mask = tensor(3, 4) > 0
    calls = [(tensor(3, 4), tensor(4), mask), (tensor(3, 4), tensor(4), None)]
    text = check_forward("q[N, M], p[M], mask[N, M; bool]?", forward, calls)
    assert "torch.func.vjp" not in text


SIZES = ("len(y)", "len(y.shape)", "y.dim()", "y.numel()", "(y.size(-1) % 3 + 1)")


@pytest.mark.parametrize("size", SIZES)
def test_a_size_of_a_value_that_two_branches_assign(size: str) -> None:
    body = "if flag:\n    y = x * 2\nelse:\n    y = x.sum(0)"
    calls = [(tensor(3, 4), flag) for flag in (True, False)]
    text = check_forward("x[N, D], flag: bool", f"{body}\nreturn y * {size}", calls)
    assert "torch.func.vjp" not in text
