"""The tangents of a call: those that `jvp` gives, and those of the forward in plain PyTorch.

In: the module of checks, the inputs of a call, and which of them have a tangent. Out: pairs of tensors, one for each output that has a
gradient. Invariant: the tangents of the inputs are drawn once for both; where PyTorch has no forward mode of a call, its gradient is
differentiated instead, which is linear.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from scaffold.verify.child.fast_torch import seed_generator
from scaffold.verify.child.gradients import as_tuple

Tangents = list[Tensor | None]


def compared_tangents(
    checks: Any, inputs: Sequence[Any], chosen: Sequence[bool]
) -> list[tuple[Tensor, Tensor]]:
    """What the op's jvp gives, and what is expected; nothing where no reference is known."""
    if checks.REFERENCE is None:
        return []
    given = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    seed_generator(3)
    tangents: Tangents = [
        torch.randn_like(x) if wanted and isinstance(x, Tensor) else None
        for x, wanted in zip(given, chosen, strict=True)
    ]
    if not any(tangent is not None for tangent in tangents):
        return []
    actual = _pushed(checks.OPERATOR, given, tangents)  # which may raise
    expected = _expected(checks.REFERENCE, given, tangents)
    if expected is None:
        return []
    return [
        (_tensor(one, output), _tensor(two, output))
        for output, one, two in zip(
            as_tuple(checks.REFERENCE(*given)), actual, expected, strict=True
        )
        if output.is_floating_point() or output.is_complex()
    ]


def _tensor(tangent: Tensor | None, output: Tensor) -> Tensor:
    """None is zeros."""
    return torch.zeros_like(output) if tangent is None else tangent.detach()


def _expected(
    function: Callable[..., Any], inputs: Sequence[Any], tangents: Tangents
) -> Tangents | None:
    """The tangents of plain PyTorch; None where it has none."""
    for way in (_pushed, _transposed):
        try:
            return way(function, inputs, tangents)
        except (NotImplementedError, RuntimeError):
            continue
    return None


def _pushed(
    function: Callable[..., Any], inputs: Sequence[Any], tangents: Tangents
) -> Tangents:
    """By dual numbers."""
    with forward_ad.dual_level():
        duals = (
            x if tangent is None else forward_ad.make_dual(x.clone(), tangent)  # type: ignore[no-untyped-call]
            for x, tangent in zip(inputs, tangents, strict=True)
        )
        outputs = as_tuple(function(*duals))
        return [forward_ad.unpack_dual(x).tangent for x in outputs]  # type: ignore[no-untyped-call]


def _transposed(
    function: Callable[..., Any], inputs: Sequence[Any], tangents: Tangents
) -> Tangents:
    """By the gradient of the gradient."""
    places = [at for at, tangent in enumerate(tangents) if tangent is not None]

    def differentiable(*moved: Tensor) -> tuple[Tensor, ...]:
        called = [*inputs]
        for at, value in zip(places, moved, strict=True):
            called[at] = value
        return tuple(x for x in as_tuple(function(*called)) if x.is_floating_point())

    pulled = torch.func.vjp(differentiable, *(inputs[at] for at in places))
    given = tuple(tangents[at] for at in places)
    found = iter(torch.func.vjp(pulled[1], pulled[0])[1](given)[0])
    outputs = as_tuple(function(*inputs))
    return [next(found) if x.is_floating_point() else None for x in outputs]
