"""What is cheaper than torch's own gives the same."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.fast_torch import seed_generator, seeded_grad

Grad = Callable[..., tuple[Tensor, ...]]
GRADS: tuple[Grad, Grad] = (torch.autograd.grad, seeded_grad)
Seen = list[tuple[Tensor, tuple[int, ...]]]


def permuted(tensor: Tensor) -> Tensor:
    """A copy whose memory has gaps and another order."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def doubled(x: Tensor, seen: Seen) -> Tensor:
    """Twice the tensor; the gradient that comes back is noted."""
    result = x * 2
    hook: Any = result.register_hook
    hook(lambda grad: seen.append((grad.clone(), grad.stride())))
    return result


def test_a_seed_gives_what_grad_outputs_give() -> None:
    """Each gradient is the one that was asked for, in the same memory layout."""
    x = torch.randn(2, 3, 4, dtype=torch.cdouble, requires_grad=True)
    y = torch.randn(5, requires_grad=True)
    weights = [permuted(torch.randn_like(each)) for each in (x, y)]
    seen: tuple[Seen, Seen] = ([], [])
    found: list[tuple[Tensor, ...]] = []
    for grad, noted in zip(GRADS, seen, strict=True):
        ends = (doubled(x, noted), doubled(y, noted))
        both = grad(ends, [x, y], weights, materialize_grads=True)
        alone = grad(doubled(y, noted), [x, y], weights[1], materialize_grads=True)
        found.append((*both, *alone))
    assert all(map(torch.equal, *found))
    assert len(seen[0]) == len(seen[1]) == 3
    for one, other in zip(*seen, strict=True):
        assert torch.equal(one[0], other[0]) and one[1] == other[1]


def test_what_has_no_gradient_is_refused_too() -> None:
    x = torch.randn(3, requires_grad=True)
    ends, weights = (x * 2, x.detach()), [torch.ones(3)] * 2
    for grad in GRADS:
        try:
            grad(ends, [x], weights)
        except RuntimeError:
            continue
        raise AssertionError(grad)


def test_the_same_numbers_are_drawn() -> None:
    torch.manual_seed(3)
    expected = torch.randn(4)
    seed_generator(3)
    assert torch.equal(torch.randn(4), expected)
