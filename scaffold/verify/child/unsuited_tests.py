"""Generated tests that fail of a right op, since their inputs do not suit its forward.

In: the module of checks of an op that has passed them. Out: notes. Invariant: nothing is said of a test that passes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.cases import Case, make_inputs, subsets, value_names
from scaffold.verify.child.derivatives import as_tuple, expected_gradients
from scaffold.verify.child.fast_torch import seed_generator, seeded_grad
from scaffold.verify.child.refusals import raised, refusal

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
        if not _needed(inputs):
            continue
        words = _of_case(checks, inputs)
        if words:
            yield words.format(f"the tests' case '{name}'")


def _of_case(checks: Any, inputs: Sequence[Any]) -> str:
    """What the forward, by autograd alone, does with a case that the tests ask more of; "" for nothing."""
    if not _leaves_elements(checks, inputs):
        return "test_jacrev cannot pass in {}: no result of the forward has an element, so that nothing of them is compared"
    try:
        if not _has_a_gradient(checks, inputs):
            return "the gradient of the forward is not finite in {}, which cannot pass"
    except RuntimeError as error:
        own = raised(error).replace("{", "{{").replace("}", "}}")
        return f"PyTorch's own backward {own} in {{}}, which cannot pass"
    if checks.CHECKED and (size := _largest(checks, inputs)) > LARGE:
        far = f"finite differences have no digits left of outputs up to {size:.0e}"
        return f"test_gradcheck cannot pass in {{}}: {far}"
    if checks.CHECKED_TWICE and not _has_second_derivatives(checks, inputs):
        return (
            "test_gradcheck cannot pass in {}: a second derivative is not finite there"
        )
    return ""


def _leaves_elements(checks: Any, inputs: Sequence[Any]) -> bool:
    """Whether there is an element in what the forward makes of a case of which each input has some."""
    if not all(one.numel() for one in inputs if isinstance(one, Tensor)):
        return True
    function = checks.FORWARD or checks.OPERATOR
    with torch.no_grad():
        return any(one.numel() for one in as_tuple(function(*inputs)))


def _mapped(checks: Any) -> Iterator[str]:
    """The test of vmap draws other numbers."""
    for seed in SEEDS if checks.MAPPED else ():
        case = Case("base", {"seed": seed})
        words = refusal(checks, case, None).words
        inputs = () if words else make_inputs(checks, case, None)
        if _needed(inputs) and not _has_a_gradient(checks, inputs):
            words = "has a gradient that is not finite"
        if words:
            yield f"test_vmap_of_grad cannot pass: of other numbers the forward {words}"


def _needed(inputs: Sequence[Any]) -> list[Tensor]:
    """The inputs whose gradients are asked for."""
    return [one for one in inputs if isinstance(one, Tensor) and one.requires_grad]


def _has_a_gradient(checks: Any, inputs: Sequence[Any]) -> bool:
    """Whether the gradients of the forward are finite."""
    names = value_names(checks, len(inputs))
    found = expected_gradients(checks, inputs, names)
    return all(bool(one.isfinite().all()) for one in found.values())


def _has_second_derivatives(checks: Any, inputs: Sequence[Any]) -> bool:
    """Whether the second derivatives of the op are finite, which may differ from autograd's; where there are none, yes."""
    outputs = [one for one in as_tuple(checks.OPERATOR(*inputs)) if one.requires_grad]
    try:
        first = _gradients(outputs, _needed(inputs), True)
        again = [one for one in first if one.requires_grad]
        second = _gradients(again, _needed(inputs), False)
    except RuntimeError:
        return True
    return all(bool(one.isfinite().all()) for one in second)


def _gradients(
    ends: list[Tensor], needed: list[Tensor], twice: bool
) -> tuple[Tensor, ...]:
    """The gradients of a sum of the ends in which every element has another weight."""
    if not ends:
        return ()
    seed_generator(1)
    weights = [torch.randn_like(one) for one in ends]
    found: tuple[Tensor, ...] = seeded_grad(
        ends, needed, weights, create_graph=twice, materialize_grads=True
    )
    return found


def _largest(checks: Any, inputs: Sequence[Any]) -> float:
    """The largest element of an output that has a gradient."""
    outputs = as_tuple(checks.REFERENCE(*inputs))
    sizes = [
        float(one.detach().abs().max())
        for one in outputs
        if one.requires_grad and one.numel()
    ]
    return max(sizes, default=0.0)
