"""Gradients by central differences, for an op of which no forward in PyTorch is known.

In: the module of checks and the inputs of a call. Out: a gradient for each input that requires one.
Invariant: the output gradients are those that `checks.gradients` uses.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

STEP = 1e-6


def numeric_gradients(checks: Any, inputs: Sequence[Any]) -> list[Tensor]:
    """One call of the op for each element and direction."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    weights = _grad_outputs(checks, inputs)
    return [_gradient(checks, inputs, value, weights) for value in needed]


def _grad_outputs(checks: Any, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    """The gradient of each output with respect to itself."""
    outputs = _call(checks, inputs)
    leaves = tuple(_leaf(output) for output in outputs)
    given = leaves if isinstance(checks.OPERATOR(*inputs), tuple) else leaves[0]
    found = iter(checks.gradients(given, leaves))
    return tuple(
        next(found) if leaf.requires_grad else torch.zeros_like(leaf) for leaf in leaves
    )


def _leaf(output: Tensor) -> Tensor:
    floating = output.is_floating_point() or output.is_complex()
    return output.clone().requires_grad_(floating)


def _gradient(
    checks: Any, inputs: Sequence[Any], value: Tensor, weights: tuple[Tensor, ...]
) -> Tensor:
    """The derivative of the weighted sum of all outputs, element by element."""
    gradient = torch.zeros_like(value).detach().contiguous()
    directions = (1.0, 1j) if value.is_complex() else (1.0,)
    flat = gradient.view(-1)
    for index in range(value.numel()):
        for direction in directions:
            sums = []
            for sign in (1, -1):
                moved = value.detach().clone()
                place = moved.contiguous().view(-1)
                place[index] += sign * STEP * direction
                moved = place.view(value.shape)
                called = [moved if x is value else x for x in inputs]
                sums.append(_weighted(_call(checks, called), weights))
            flat[index] += direction * (sums[0] - sums[1]) / (2 * STEP)
    return gradient


def _weighted(outputs: tuple[Tensor, ...], weights: tuple[Tensor, ...]) -> float:
    total = 0.0
    for output, weight in zip(outputs, weights, strict=True):
        if output.is_floating_point() or output.is_complex():
            total += float((weight.conj() * output).sum().real)
    return total


def _call(checks: Any, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    with torch.no_grad():
        outputs = checks.OPERATOR(*inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)
