"""Why the forward refuses inputs, and what to say of that.

In: the module of checks, a case. Out: words; "" where nothing is wrong. Invariant: the op itself is not asked, unless nothing else
says what it computes.
"""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.cases import Case, make_inputs
from scaffold.verify.child.gradients import as_tuple

Layout = Callable[[Tensor], Tensor] | None
INFINITE = "is not finite"
# Domains as the tests draw from them: the word, the least value and how many there are above it.
RANGES = (("unit", 0.1, 0.8), ("positive", 0.5, 1.0))
DRAWS = 3
# What no choice of inputs mends: the forward calls what is not there.
BROKEN = (
    "raised AttributeError: module ",
    "raised AttributeError: 'Tensor' object ",
    "raised ImportError",
    "raised ModuleNotFoundError",
    "raised NameError",
)


def raised(error: Exception) -> str:
    """An error in words."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"raised {type(error).__name__}: {first}"


def refusal(checks: Any, case: Case, layout: Layout) -> str:
    """Why the forward does not take the case, or that its result is not finite; "" for a case to run."""
    function = checks.FORWARD or checks.OPERATOR
    try:
        with torch.no_grad():
            outputs = as_tuple(function(*make_inputs(checks, case, layout)))
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        return raised(error)
    other = next((item for item in outputs if not isinstance(item, Tensor)), None)
    if other is not None:
        return f"gives no tensor but a value of type {type(other).__name__}"
    return "" if _are_finite(outputs) else INFINITE


def _are_finite(outputs: tuple[Tensor, ...]) -> bool:
    return all(bool(output.isfinite().all()) for output in outputs)


def mend(checks: Any, words: str) -> str:
    """What to say of the inputs, so that the forward takes them."""
    if words == INFINITE:
        found = _finite_of(checks) or "x[..., D; unit]"
        return f"; say in --inputs where the values lie: '{found}'"
    if checks.LOOSE:
        return "; declare in --inputs the shapes that it takes"
    return "; give the tests inputs that it takes: --samples '@file.py:function'"


def _finite_of(checks: Any) -> str:
    """One input, with values of which the forward is finite; "" where it takes more than one."""
    inputs = checks.make()
    for position, name in enumerate(checks.NAMES[: len(inputs)]):
        value = inputs[position]
        if not (isinstance(value, Tensor) and value.is_floating_point()):
            continue
        for word, least, width in RANGES:
            several = [least + width * torch.rand_like(value) for _ in range(DRAWS)]
            if all(_is_finite(checks, _with(inputs, position, x)) for x in several):
                return f"{name}[...; {word}]"
    return ""


def _with(inputs: Sequence[Any], position: int, value: Tensor) -> list[Any]:
    return [*inputs[:position], value, *inputs[position + 1 :]]


def _is_finite(checks: Any, inputs: list[Any]) -> bool:
    try:
        with torch.no_grad():
            outputs = as_tuple((checks.FORWARD or checks.OPERATOR)(*inputs))
        return _are_finite(outputs)
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return False


def is_bound(checks: Any, case: Case) -> bool:
    """Whether a dim is 1 there that cannot be chosen, as the forward refuses one more of it: 1 broadcasts."""
    if [*case.arguments.values()] != [1] or case.change is not None:
        return False
    (name,) = case.arguments
    usual = signature(checks.make).parameters[name].default
    return bool(refusal(checks, Case(name, {name: usual + 1}), None))
