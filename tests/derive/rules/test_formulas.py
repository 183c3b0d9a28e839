"""Formulas of the table on calls: matrices without an inverse, where a backward raises nowhere, and calls whose value is a formula."""

from dataclasses import replace
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.spec import RuleFile
from tests.derive.against_autograd import POLICIES, check_forward, tensor
from tests.derive.building import (
    backward_of,
    load,
    op_text,
    reference,
    spec_of,
    text_of,
)

RANK_2 = torch.tensor([[1.0, 2.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]).double()
RANK_1 = torch.ones(3, 3, dtype=torch.double)
BATCH = torch.stack([RANK_2, 2 * torch.eye(3, dtype=torch.double)])
FORWARDS = ("torch.linalg.det(x)", "torch.logdet(x)", "torch.linalg.slogdet(x)[1]")


def gradient(call: object, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(call(x).sum(), x)  # type: ignore[operator]
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("x", [RANK_2, RANK_1, BATCH, torch.zeros_like(RANK_1)])
def test_a_singular_matrix_is_no_error(forward: str, policy: str, x: Tensor) -> None:
    op = load(op_text("x", forward=forward, save_policy=policy)).some_op
    ours, theirs = gradient(op, x), gradient(reference(["x"], forward), x)
    both = theirs.isfinite() & ours.isfinite()
    torch.testing.assert_close(ours[both], theirs[both])
    if "det(x)" in forward and "log" not in forward:
        assert both.all()
    if x is BATCH:  # what is infinite of one matrix is not of another
        assert both[1].all()


@pytest.mark.parametrize(
    "forward",
    [*FORWARDS, "torch.linalg.inv_ex(x)[0]", "torch.linalg.inv_ex(x).inverse"],
)
def test_other_matrices(forward: str) -> None:
    x = tensor(2, 3, 3)
    check_forward("x", forward.replace("(x)", "(x @ x.mT)"), [(x,), (x[0],)])


# Calls whose section says their value: inputs, forward, the backward.
BY_VALUE = {
    "x[N, K], y[N, M] ; torch.hstack((x, y))": """\
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output[:, : ctx.x_shape[-1]]
        if ctx.needs_input_grad[1]:
            grad_y = grad_output[:, ctx.x_shape[-1] :]
        return grad_x, grad_y""",
    "x[N], y[M, N] ; torch.vstack((x, y))": """\
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output[:1].squeeze(0)
        if ctx.needs_input_grad[1]:
            grad_y = grad_output[1:]
        return grad_x, grad_y""",
    "x[D, N] ; torch.cov(x)": """\
        (x,) = ctx.saved_tensors
        difference = x - x.mean(-1, keepdim=True)
        grad_product = grad_output / max(x.shape[-1] - 1, 0)
        # w.r.t. x - x.mean(-1, keepdim=True)
        grad_difference = grad_product @ difference + grad_product.mT @ difference
        grad_x: Tensor = grad_difference - grad_difference.mean(-1, keepdim=True)
        return grad_x""",
}


@pytest.mark.parametrize(("op", "wanted"), BY_VALUE.items())
def test_a_call_with_a_value_reads_as_its_primitives_do(op: str, wanted: str) -> None:
    inputs, forward = op.split(" ; ")
    text = op_text(inputs, forward=forward)
    assert f"return {forward}" in text  # the forward keeps the call
    assert backward_of(text) == dedent(wanted)


STACKED = [(tensor(3, 2), tensor(3, 2)), (tensor(0, 2), tensor(0, 2))]
FEATURES = [(tensor(3, 4), tensor(3, 4).flip(0), tensor(3, 4).flip(1))]
LABELS = torch.tensor([1.0, -1.0, 1.0]).double()
BATCHED = [(tensor(3, 4), tensor(3, 4).flip(0), LABELS)]


@pytest.mark.parametrize(
    ("inputs", "forward", "calls"),
    [
        ("x, y", "torch.hstack((x, y))", [*STACKED, (tensor(), tensor(2))]),
        ("x, y", "torch.vstack((x, y))", [*STACKED, (tensor(2), tensor(3, 2))]),
        ("x, y", "torch.dstack((x, y))", [*STACKED, (tensor(2), tensor(2))]),
        ("x[N, K], y[N, K]", "torch.dstack((x, y * x))", STACKED),
        ("x[2, N, K]", "torch.hstack(x.unbind(0))", [(tensor(2, 3, 4),)]),
        ("a, p, n", "F.triplet_margin_loss(a, p, n, swap=True)", FEATURES),
        ("a, b, t[...; const]", "F.cosine_embedding_loss(a, b, t, 0.1)", BATCHED),
        (
            "a[N, D], b[N, D], t[N; const], reduction: str = 'mean'",
            "F.cosine_embedding_loss(a, b, t, reduction=reduction)",
            [(*BATCHED[0], reduction) for reduction in ("mean", "sum", "none")],
        ),
        ("x[D, N], c: int = 1", "torch.cov(x, correction=c)", [(tensor(3, 4), 0)]),
    ],
)
def test_calls_with_a_value(inputs: str, forward: str, calls: list[Any]) -> None:
    assert "torch.func.vjp" not in check_forward(inputs, forward, calls)


def test_the_value_of_a_team_s_function_is_differentiated() -> None:
    table = """
[smooth]
call = "smooth(x, gain=1.0)"
from = "team"
category = "elementwise"
value = '''
    inner = tanh(gain * x)
    inner * inner
    '''
differentiable = ["x"]
samples = ["x[3]"]
"""
    rules = (RuleFile("team.toml", table),)
    spec = spec_of("x", forward="smooth(x, 2.0)", import_=["team:smooth"], derive=True)
    text = text_of(replace(spec, rules=rules))
    assert "torch.tanh(2.0 * x)" in text
