"""How a surrogate gradient differs from the derivative, which it is not meant to be.

In: the module of checks of a surrogate. Out: notes, one for each gradient that is not the derivative.
Invariant: a note is no finding; what cannot be computed is left out.
"""

from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.cases import Case, make_inputs, value_names
from scaffold.verify.child.elements import name_places


def notes_on(checks: Any) -> list[str]:
    """Compare the gradients of the base case with those of the forward itself."""
    if checks.FORWARD is None:
        return []
    case = Case("base", {})
    inputs = make_inputs(checks, case, torch.clone)
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    try:
        actual = checks.gradients(checks.OPERATOR(*inputs), inputs)
        derivative = _derivative(checks, inputs, needed)
    except Exception:  # noqa: BLE001 (the gradients have been judged already)
        return []
    names = value_names(checks, len(inputs))
    values = {
        name: x.detach()
        for name, x in zip(names, inputs, strict=True)
        if isinstance(x, Tensor)
    }
    wanted = [name for name, x in zip(names, inputs, strict=True) if _needs(x)]
    notes = [
        _note(f"grad_{name}", one, two, values)
        for name, one, two in zip(wanted, actual, derivative, strict=True)
    ]
    return [note for note in notes if note]


def _derivative(
    checks: Any, inputs: tuple[Any, ...], needed: list[Tensor]
) -> tuple[Tensor, ...]:
    outputs = checks.FORWARD(*inputs)
    several = outputs if isinstance(outputs, tuple) else (outputs,)
    if not any(output.requires_grad for output in several):
        return tuple(torch.zeros_like(value) for value in needed)
    found: tuple[Tensor, ...] = checks.gradients(outputs, inputs)
    return found


def _note(
    name: str, actual: Tensor, derivative: Tensor, values: dict[str, Tensor]
) -> str:
    wrong = ~torch.isclose(actual, derivative, rtol=1e-7, atol=1e-7, equal_nan=True)
    if not wrong.any():
        return f"surrogate: {name} is the derivative on the inputs that were tried"
    where = "everywhere" if wrong.all() else name_places(wrong, values)
    where = where or f"in {int(wrong.sum())} of {wrong.numel()} places"
    by = (actual - derivative).abs().nan_to_num().max().item()
    return f"surrogate: {name} differs from the derivative {where}, by up to {by:.3g}"


def _needs(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
