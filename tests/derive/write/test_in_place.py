"""What a backward under balanced writes over, and which products it computes together with a sum."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.derive.building import load, spec_of, text_of


def balanced(inputs: str, forward: str) -> str:
    spec = spec_of(inputs, forward=forward, derive=True, once_differentiable=True)
    return text_of(spec).partition("def backward")[2]


def test_a_product_is_computed_with_the_sum_that_it_is_a_term_of() -> None:
    forward = """
rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
return x * rstd * weight
"""
    text = balanced("x[..., D], weight[D], eps: float", forward)
    assert "torch.addcmul(grad_x_hat, inner, x_hat, value=-1)" in text


def test_a_one_hot_is_taken_off_where_it_is_one() -> None:
    """Of a `log_softmax` PyTorch's own backward is called, as autograd does."""
    forward = "(z.logsumexp(-1) - z.gather(-1, y.unsqueeze(-1)).squeeze(-1)).mean()"
    text = balanced("z[N, C], y[N; index(C)]", forward)
    assert 'probs.scatter_(-1, y.unsqueeze(-1), -1, reduce="add")' in text
    assert "zeros" not in text


def test_what_one_side_of_a_choice_alone_has_in_batches_is_not_written_over() -> None:
    """Of several gradients one alone may come in batches: where `white` is false, the target would hold none."""
    forward = """
w = x.exp()
color = (w.unsqueeze(-1) * rgb).sum(-2)
total = w.sum(-1)
if white:
    color = color + (1 - total.unsqueeze(-1))
return color, (w * z).sum(-1), total
"""
    spec = spec_of(
        "x[R, S], z[R, S; const], rgb[R, S, 3; const], white: bool",
        forward=forward,
        outputs="color, depth, total",
        derive=True,
        once_differentiable=True,
    )
    text = text_of(spec).partition("def backward")[2]
    assert "add_(" not in text
    spread = torch.rand(2, 3, dtype=torch.double, requires_grad=True)
    const = torch.rand(2, 3), torch.rand(2, 3, 3)
    for white in (True, False):
        run = partial(load(text_of(spec)).some_op, z=const[0], rgb=const[1])
        assert torch.autograd.gradcheck(
            partial(run, white=white), (spread,), check_batched_grad=True
        )


def test_a_product_is_added_to_in_place_in_every_mode() -> None:
    """Its own derivative does not read it, and it is batched where the index is."""
    forward, inputs = "F.cross_entropy(x, t)", "x[N, C], t[N; int]"
    text = text_of(spec_of(inputs, forward=forward))
    assert "return scaled_grad.scatter_add_(" in text
    op = load(text).some_op
    x, t = torch.randn(3, 4, dtype=torch.float64), torch.tensor([1, -100, 3])
    assert torch.autograd.gradgradcheck(lambda x: op(x, t), x.requires_grad_())
    targets = torch.stack((t, t.flip(0)))

    def grad(own: Any, index: Tensor) -> Tensor:
        found: Tensor = torch.func.grad(lambda x: own(x, index))(x.detach())
        return found

    ours = torch.vmap(partial(grad, op))(targets)
    theirs = torch.vmap(partial(grad, F.cross_entropy))(targets)
    torch.testing.assert_close(ours, theirs)


def test_a_product_of_matrices_is_not_written_over() -> None:
    """Of a DTensor it may be one of several addends."""
    inputs, forward = "q[T, D], k[T, D], v[T, D]", "(q @ k.mT).tril() @ v"
    spec = spec_of(inputs, forward=forward, save_policy="recompute")
    text = text_of(spec).partition("def backward")[2]
    assert ".tril()" in text and "tril_(" not in text
