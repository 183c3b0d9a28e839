"""Shapes that nobody declared: the gradient is right for scalars, vectors and what is broadcast, and no rule is given up."""

from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_op

# A signature, a forward, and the shapes of several calls.
CASES: dict[str, tuple[str, str, list[tuple[tuple[int, ...], ...]]]] = {
    "a stack is as long as its parts are many": (
        "y",
        "torch.stack([y, 2 * y], 1) * y.unsqueeze(1)",
        [((3, 4),), ((3,),)],
    ),
    "a stack of two is not squeezed": (
        "y",
        "torch.stack([y, 2 * y], 0).squeeze(0).sum(0) + y",
        [((3, 4),), ((3,),)],
    ),
    "what is kept of a broadcast": (
        "x[D], y",
        "((2 - (x - y)).softmax(1).log().var(-2, keepdim=True) + 1).sqrt()",
        [((5,), (3, 5)), ((5,), (2, 3, 5))],
    ),
    "a product with what a reduction left": (
        "x[D], w[..., D]",
        "(x @ torch.prod(F.softplus(w), -2).mT).sum()",
        [((5,), (2, 3, 5)), ((5,), (4, 2, 3, 5))],
    ),
    "a vector and a transposed batch": (
        "x[..., D], w[D]",
        "(w @ x.mT).sum()",
        [((3, 5), (5,)), ((2, 3, 5), (5,))],
    ),
    "a slice of a shape that begins like another": (
        "x[*batch, N, D]",
        "x.mean(-1, keepdim=True)[..., -3:, :].exp().sum()",
        [((2, 5, 4),), ((2, 4),)],
    ),
    "the same reduction twice": (
        "x[A, B]",
        """a = x.sum(-1, keepdim=True) * x + x.sum(-1, keepdim=True)
return torch.where(a > 0, a, 0.1 * a).abs()""",
        [((3, 4),)],
    ),
}
SCALARS = (
    *(
        "x.sum(-1)",
        "x.mean(-1)",
        "x.mean(0, keepdim=True)",
        "x.amax(0)",
        "x.norm(dim=-1)",
    ),
    *(
        "x.logsumexp(-1)",
        "x.nansum(0)",
        "x.sum((-1,))",
        "(-x.exp()).sum(0)",
        "x.mean()",
    ),
    *(
        "x.softmax(-1)",
        "x.cumsum(0)",
        "x.max(-1)[0]",
        "x.sort(-1)[0]",
        "x.sum(-1).exp()",
    ),
    *(
        "x - x.mean(-1).unsqueeze(-1)",
        "x.logsumexp(-1)[..., None]",
        "torch.maximum(x.atan(), x.amax(-1)[..., None]).tanh()",
    ),
)


def made(inputs: str, forward: str) -> tuple[Any, Any, Any]:
    """The Function, its wrapper and the plain forward of an op without a fallback."""
    spec = spec_of(inputs, forward=forward, derive=True)
    text = draft_of(spec, derive(spec))
    assert "torch.func.vjp" not in text
    module = load(text)
    plain = load(draft_of(spec_of(inputs, forward=forward)))
    function = getattr(module, spec.function_name)
    return function, module.some_op, getattr(plain, spec.function_name).forward


def r(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, dtype=torch.double)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_autograd(name: str) -> None:
    torch.manual_seed(3)
    inputs, forward, calls = CASES[name]
    op = made(inputs, forward)
    for shapes in calls:
        check_op(*op, [r(shape) for shape in shapes])


@pytest.mark.one_of(2)
@pytest.mark.parametrize("inputs", ["x", "x[...]"])
@pytest.mark.parametrize("forward", SCALARS)
def test_a_scalar_has_a_dim_for_a_reduction(inputs: str, forward: str) -> None:
    torch.manual_seed(3)
    op = made(inputs, forward)
    for shape in ((), (3,), (2, 3)):
        check_op(*op, [r(shape)])


@pytest.mark.parametrize(
    ("forward", "shapes"),
    [
        ("x.mean(dim=(0, 1)).std(-1, unbiased=False)", ((2, 3), (2, 3, 4))),
        ("x.sum((0,)).mean(0)", ((3,), (2, 3))),
        ("x.select(-1, 0).mean((0,))", ((3,), (2, 3))),
        ("x.sum((0,)).prod(-1)", ((3,), (2, 3))),
        ("x.sum((-1, -2)).logsumexp(-1)", ((2, 3), (2, 3, 4))),
        ("x.sum(0, keepdim=True).mean(0)", ((), (3,), (2, 3))),
        ("x.prod(-1)", ((), (3,), (2, 3))),
    ],
)
def test_a_reduction_of_what_a_reduction_left(
    forward: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """It may be a scalar, which has a dim for a reduction."""
    torch.manual_seed(3)
    op = made("x", forward)
    for shape in shapes:
        check_op(*op, [r(shape)])


@pytest.mark.parametrize("forward", ["x.sum(dim)", "x.logsumexp(dim)", "x.mean(dim)"])
def test_a_scalar_has_any_dim(forward: str) -> None:
    op = made("x, dim: int = -1", forward)
    for shape in ((), (3,), (2, 3)):
        check_op(*op, [r(shape), -1])


@pytest.mark.parametrize(
    ("inputs", "forward", "shapes"),
    [
        ("x[], y[B, C]", "(x * y).mean(-1)", ((), (3, 0))),
        ("x[C], y[B, C]", "((x * y).mean(1) + 1).sqrt()", ((0,), (0, 0))),
        ("x[], y[B, C, C]", "(y * x + y).mean(-2).tanh()", ((), (3, 0, 0))),
    ],
)
def test_what_is_summed_over_nothing_is_zero(
    inputs: str, forward: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    _, wrapper, plain = made(inputs, forward)
    values = [r(shape).requires_grad_() for shape in shapes]
    expected, found = plain(*values), wrapper(*values)
    right = torch.autograd.grad(expected, values, torch.ones_like(expected))
    ours = torch.autograd.grad(found, values, torch.ones_like(found))
    for one, two in zip(ours, right, strict=True):
        torch.testing.assert_close(one, two, equal_nan=True)


OPTIONAL = """
if m is None:
    r = a * b
else:
    n = m.shape[0]
    r = a * n * b.sin() * m.shape[1]
return r.exp()
"""


@pytest.mark.parametrize("m", ["m?[B, S; const]", "m?[B, S]"])
def test_a_test_tells_that_an_optional_input_has_a_size(m: str) -> None:
    inputs = f"a[L, E], b[E], {m}"
    calls = [(tensor(3, 4), tensor(4), m) for m in (None, tensor(2, 5))]
    check_forward(inputs, OPTIONAL, calls, derive=True)
    assert not derive(spec_of(inputs, forward=OPTIONAL, derive=True)).notes


@pytest.mark.parametrize(
    ("signature", "forward", "absent"),
    [
        (
            "x[N, D], t[N, D]",
            "loss = (x * t).sin().sum(-1)\nreturn loss.mean()",
            "loss",
        ),
        (
            "x[N, 3]",
            "a, b, c = x.unbind(-1)\no = torch.stack([a * b, b * c], -1)\nreturn o.view(-1).exp()",
            "torch.stack([",
        ),
    ],
)
def test_no_value_is_computed_for_its_shape_alone(
    signature: str, forward: str, absent: str
) -> None:
    """Where an input tells the size, a sum or a stack does not come again for it."""
    names = [part.strip() for part in signature.split("], ")]
    calls = [tuple(tensor(5, 3) + at for at in range(len(names)))]
    text = check_forward(signature, forward, calls, derive=True)
    assert absent not in text.partition("def backward(")[2].partition("\ndef ")[0]
