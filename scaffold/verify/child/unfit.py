"""Which generated tests cannot pass though the op is what it should be: their inputs are not what its forward is for.

In: the module of checks of an op that has passed them. Out: notes. Invariant: nothing is said of a test that passes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from scaffold.verify.child.cases import Case, make_inputs, subsets, value_names
from scaffold.verify.child.gradients import as_tuple, expected_gradients
from scaffold.verify.child.refusals import refusal

LARGE = 1e5  # of an output: finite differences then err by more than gradcheck allows
SEEDS = (1, 2)  # beside 0: those of the generated test of vmap
MEND = "give the tests inputs of your own: --samples '@file.py:function'"


def unfit(checks: Any) -> list[str]:
    """The first case, and the test of vmap, that fail for their inputs' sake."""
    if checks.REFERENCE is None or not subsets(checks):
        return []  # nothing is known to compare with, or no output has a gradient
    found = [*_cases(checks)][:1] or [*_mapped(checks)][:1]
    return [f"{words}; {MEND}" for words in found]


def _cases(checks: Any) -> Iterator[str]:
    for name, arguments in checks.CASES.items():
        case = Case(name, dict(arguments))
        if refusal(checks, case, None).words:
            continue  # which has been told
        inputs = make_inputs(checks, case, None)
        if not _has_a_gradient(checks, inputs):
            where = (
                f"the gradient of the forward is not finite in the tests' case '{name}'"
            )
            yield f"{where}, which cannot pass"
        elif checks.CHECKED and (size := _largest(checks, inputs)) > LARGE:
            yield (
                f"test_gradcheck cannot pass in the case '{name}': finite differences have no "
                f"digits left of outputs up to {size:.0e}"
            )


def _mapped(checks: Any) -> Iterator[str]:
    """The test of vmap draws other numbers."""
    for seed in SEEDS if checks.MAPPED else ():
        case = Case("base", {"seed": seed})
        words = refusal(checks, case, None).words
        if not words and not _has_a_gradient(checks, make_inputs(checks, case, None)):
            words = "has a gradient that is not finite"
        if words:
            yield f"test_vmap_of_grad cannot pass: of other numbers the forward {words}"


def _has_a_gradient(checks: Any, inputs: Sequence[Any]) -> bool:
    """Whether the gradients of the forward are finite; what raises has been told."""
    if not any(isinstance(one, Tensor) and one.requires_grad for one in inputs):
        return True
    names = value_names(checks, len(inputs))
    try:
        found = expected_gradients(checks, inputs, names)
    except RuntimeError:
        return True
    return all(bool(one.isfinite().all()) for one in found.values())


def _largest(checks: Any, inputs: Sequence[Any]) -> float:
    """The largest element of an output that has a gradient."""
    outputs = as_tuple(checks.REFERENCE(*inputs))
    sizes = [
        float(one.detach().abs().max())
        for one in outputs
        if one.requires_grad and one.numel()
    ]
    return max(sizes, default=0.0)
