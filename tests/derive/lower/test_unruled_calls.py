"""Autograd of one call: what PyTorch refuses to differentiate by is left alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from tests.derive.building import draft_of, load, reference, spec_of


def p(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.double) + 0.2


CASES: dict[str, tuple[str, str, Callable[[], tuple[Tensor, ...]]]] = {
    "margins": (
        "x[N, C], t[N; int], w[C]",
        "F.multi_margin_loss(x, t, weight=w)",
        lambda: (p(3, 4), torch.randint(0, 4, (3,)), p(4)),
    ),
    "tolerances": (
        "x[N, K], tolerance[]",
        "torch.linalg.pinv(x, rtol=tolerance)",
        lambda: (p(3, 2), torch.tensor(0.01, dtype=torch.double)),
    ),
    "probabilities": (
        "x[N, C], t[N, C], w[C]",
        "F.cross_entropy(x, t, w)",
        lambda: (p(3, 4), p(3, 4), p(4)),
    ),
    "no statistics": (
        "x[N, C]",
        "F.batch_norm(x, None, None, training=True)",
        lambda: (p(3, 4),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rest_gets_its_gradient(name: str) -> None:
    torch.manual_seed(5)
    inputs, forward, values = CASES[name]
    spec = spec_of(inputs, forward=forward, derive=True)
    text = draft_of(spec, derive(spec))
    assert "torch.func.vjp" in text
    x, *rest = values()
    x.requires_grad_()
    expected = load(draft_of(spec_of(inputs, forward=forward))).SomeOpFunction.forward(
        x, *rest
    )
    cotangent = torch.randn_like(expected)
    (right,) = torch.autograd.grad(expected, x, cotangent)
    (found,) = torch.autograd.grad(load(text).some_op(x, *rest), x, cotangent)
    torch.testing.assert_close(found, right)


def test_what_autograd_refuses_is_refused_in_its_words() -> None:
    """The derivative of exp reads its result, which has changed."""
    spec = spec_of("x", forward="torch.exp(x).mul_(2)", derive=True)
    derivation = derive(spec)
    assert (
        "it changes in place what the gradient of that value reads"
        in derivation.notes[0]
    )
    output = load(draft_of(spec, derivation)).some_op(p(3).requires_grad_())
    with pytest.raises(RuntimeError, match="inplace"):
        output.sum().backward()


def test_the_weight_of_probabilities_has_a_gradient() -> None:
    torch.manual_seed(5)
    spec = spec_of(
        "x[N, C], t[N, C], w[C]", forward="F.cross_entropy(x, t, w)", derive=True
    )
    op = load(draft_of(spec, derive(spec))).some_op
    x, t, w = (p(*shape).requires_grad_() for shape in ((3, 4), (3, 4), (4,)))
    right = torch.autograd.grad(torch.nn.functional.cross_entropy(x, t, w), (x, t, w))
    found = torch.autograd.grad(op(x, t, w), (x, t, w))
    for one, two in zip(found, right, strict=True):
        torch.testing.assert_close(one, two)


TUPLES = {
    "values": "r = x.topk(2)\nreturn r.values.sin() * r[0]",
    "a matrix": "q = torch.linalg.qr(x)\nreturn q.Q.sin() @ q[1]",
    "broadcast": "r = torch.broadcast_tensors(x.exp(), x[0])\nreturn r[0].sin() * r[1]",
    "a grid": "r = torch.meshgrid(x.sum(0), x.sum(1), indexing='ij')\nreturn r[0] * r[1].sin()",
    "indices": "i = (x > 0).nonzero(as_tuple=True)\nreturn x[i].sin()",
    "constants": (
        "h = torch.arange(x.shape[0])\n"
        "ys, xs = torch.meshgrid(h, torch.arange(x.shape[1]), indexing='xy')\n"
        "return x.mT.sin() * ys + x.mT.exp() * xs"
    ),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("inputs", ["x", "x[N, K]"])
@pytest.mark.parametrize(
    "options", [{}, {"once_differentiable": True}, {"save_policy": "balanced"}]
)
@pytest.mark.parametrize("forward", TUPLES.values(), ids=TUPLES)
def test_a_tuple_in_one_name_is_never_saved(
    forward: str, options: dict[str, Any], inputs: str
) -> None:
    spec = spec_of(inputs, forward=forward, derive=True, **options)
    found = load(draft_of(spec))
    reference = load(draft_of(spec_of(inputs, forward=forward, derive=False)))
    x = torch.randn(4, 3, dtype=torch.double, requires_grad=True)
    expected = reference.SomeOpFunction.forward(x)
    torch.testing.assert_close(found.some_op(x), expected)
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    (gradient,) = torch.autograd.grad(found.some_op(x).sum(), x)
    torch.testing.assert_close(gradient, wanted)


def test_a_grid_of_constants_is_derived() -> None:
    spec = spec_of("x[N, K]", forward=TUPLES["constants"], derive=True)
    text = draft_of(spec)
    assert "func.vjp" not in text and "sum_to_size" not in text


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
@pytest.mark.parametrize(
    ("kind", "forward"),
    [
        ("; complex", "w, v = torch.linalg.eig(x.detach())\nreturn y * w + v"),
        ("", "w, v = torch.linalg.eig(x.detach())\nreturn y * w + v"),
        ("; complex", "q, r = torch.linalg.qr(x.detach())\nreturn q @ y"),
        (
            "; complex",
            "h = x.detach()[0]\na, b = torch.meshgrid(h, h, indexing='ij')\nreturn y * a * b",
        ),
    ],
)
def test_parts_of_a_constant_are_as_complex_as_the_call(
    kind: str, forward: str, policy: str
) -> None:
    inputs = f"x[N, N{kind}], y[N, N; complex]"
    spec = spec_of(inputs, forward=forward, derive=True, save_policy=policy)
    text = draft_of(spec)
    assert "torch.func.vjp" not in text
    dtype = torch.cdouble if kind else torch.double
    x = torch.randn(3, 3, dtype=dtype)
    y = torch.randn(3, 3, dtype=torch.cdouble, requires_grad=True)
    expected = reference(["x", "y"], forward)(x, y)
    g = torch.randn_like(expected)
    found = torch.autograd.grad(load(text).some_op(x, y), y, g)
    torch.testing.assert_close(found, torch.autograd.grad(expected, y, g))


def test_a_part_of_a_call_without_a_rule_has_a_shape_that_is_not_known() -> None:
    """It was taken for a number: what is written at such indices got the sum of all their gradients."""
    forward = """
i, j = torch.triu_indices(w.shape[0], w.shape[0], offset=1)
return w.new_zeros(w.shape).index_put((j,), w[i] * w[i], accumulate=True)
"""
    op = load(draft_of(spec_of("w[N]", forward=forward))).some_op
    w = p(4).requires_grad_()
    found, expected = (
        torch.autograd.grad(call(w), w, p(4).cumsum(0) * 0 + torch.arange(4))[0]
        for call in (op, reference(["w"], forward))
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "forward",
    [
        "torch.linalg.lu_factor_ex(x)[0]",
        "torch.triangular_solve(x, x.triu())[0]",
        "torch.native_group_norm(x, None, None, 3, 3, 1, 3, 1e-5)[0]",
        "torch.lstm_cell(x, (x[:, :1], x[:, 1:2]), w, w[:, :1])[1]",
    ],
)
def test_one_of_several_results(forward: str) -> None:
    """`torch.func.vjp` of the call itself would be given a tuple, with what has no gradient in it."""
    torch.manual_seed(5)
    inputs = "x[N, N], w[M, N]"
    derivation = derive(spec := spec_of(inputs, forward=forward))
    assert "several results of a call that has no rule" in derivation.notes[0]
    values = [p(3, 3).requires_grad_(), p(4, 3)]
    found, right = (
        torch.autograd.grad(run(*values).sum(), values[:1])[0]
        for run in (
            load(draft_of(spec, derivation)).some_op,
            reference(["x", "w"], forward),
        )
    )
    torch.testing.assert_close(found, right)
