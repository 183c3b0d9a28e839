"""What is asked beside the tests' values in double precision: second derivatives, gradients in float32 and of large values.

In: the module of checks of an op whose gradients are right in double precision. Out: an `Answer` that tells what is wrong, or None.
Invariant: where plain PyTorch has no answer, or one that is not finite, nothing is wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaffold.verify.child.cases import Case, make_inputs, value_names
from scaffold.verify.child.fast_torch import seed_generator
from scaffold.verify.child.gradients import as_tuple
from scaffold.verify.child.refusals import raised, refusal

CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-5}  # as gradgradcheck compares
LARGE = 8  # times the values of the tests, which are seldom beyond 2
AS_EXACT: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8}
ERRORS = 4  # times those of autograd's own, as the generated test allows
TWICE = "write it of the forward's inputs and grad_output, or say --once-differentiable"


class Answer(NamedTuple):
    """The input whose gradient is at fault, and in what."""

    name: str
    words: str
    hint: str = ""
    raised: bool = False


def second_derivatives(checks: Any, case: Case) -> Answer | None:
    """Whether the derivatives of the gradients are those of the forward's."""
    if not checks.CHECKED_TWICE or checks.REFERENCE is None:
        return None
    inputs = _inputs(checks, case)
    if inputs is None:
        return None
    try:
        expected = [*_seconds(checks, checks.REFERENCE, inputs)]
    except RuntimeError:
        return None
    names = value_names(checks, len(inputs))
    wanted = [name for name, x in zip(names, inputs, strict=True) if _needs(x)]
    found = _seconds(checks, checks.OPERATOR, inputs)
    for name, theirs in zip(wanted, expected, strict=True):
        try:
            ours = next(found)
        except RuntimeError as error:
            return Answer(name, f"its derivative {raised(error)}", TWICE, True)
        for one, two in zip(ours, theirs, strict=True):
            if bool(two.isfinite().all()) and not torch.allclose(one, two, **CLOSE):
                return Answer(name, "right, but its own derivative is not", TWICE)
    return None


def single_precision(checks: Any, case: Case) -> Answer | None:
    """Whether the gradients of float32 inputs are as precise as autograd's."""
    inputs = _inputs(checks, case)
    asked = checks.HAS_GRADIENT and checks.REFERENCE is not None
    if inputs is None or not asked or _given_precision(inputs):
        return None
    single = [_as_single(x) for x in inputs]
    exactly = [_as_double(one, x) for one, x in zip(single, inputs, strict=True)]
    try:
        native = _firsts(checks, checks.REFERENCE, single)
    except RuntimeError:
        return None
    if not all(bool(one.isfinite().all()) for one in native):
        return None
    names = value_names(checks, len(inputs))
    wanted = [name for name, x in zip(names, inputs, strict=True) if _needs(x)]
    ours = _firsts(checks, checks.OPERATOR, single)
    exact = _firsts(checks, checks.REFERENCE, exactly)
    for name, one, two, true in zip(wanted, ours, native, exact, strict=True):
        rounding = 2 * torch.finfo(torch.float32).eps * true.norm().clamp(min=1)
        allowed = ERRORS * ((two.to(true.dtype) - true).norm() + rounding)
        off = (one.to(true.dtype) - true).norm()
        if not off <= allowed:
            words = f"wrong in float32: off by {off:.2g}, where autograd's allows {allowed:.2g}"
            return Answer(name, words)
    return None


def large_values(checks: Any, case: Case) -> Answer | None:
    """Whether a stated gradient is right where values are larger than the tests have them, as beyond a bound of its own."""
    inputs = _inputs(checks, case) if checks.WIDE and checks.REFERENCE else None
    if inputs is None:
        return None
    large = tuple(_larger(x) if at in checks.WIDE else x for at, x in enumerate(inputs))
    try:
        expected = _firsts(checks, checks.REFERENCE, large)
    except RuntimeError:
        return None
    names = value_names(checks, len(large))
    wanted = [name for name, x in zip(names, large, strict=True) if _needs(x)]
    found = _firsts(checks, checks.OPERATOR, large)
    for name, one, two in zip(wanted, found, expected, strict=True):
        if bool(two.isfinite().all()) and not torch.allclose(one, two, **AS_EXACT):
            return Answer(
                name, f"wrong where values are {LARGE} times those of the tests"
            )
    return None


def _larger(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return (LARGE * value.detach()).requires_grad_(value.requires_grad)


def _inputs(checks: Any, case: Case) -> tuple[Any, ...] | None:
    """Those of a case that the forward takes and that has a gradient."""
    if refusal(checks, case, None).words:
        return None
    inputs = make_inputs(checks, case, None)
    return inputs if any(map(_needs, inputs)) else None


def _seconds(
    checks: Any, function: Callable[..., Any], inputs: Sequence[Any]
) -> Iterator[tuple[Tensor, ...]]:
    """For each gradient the derivatives of a sum of its elements, by the inputs and by the grad_outputs."""
    needed = [x for x in inputs if _needs(x)]
    ends, weights = _ends(checks, function, inputs)
    weights = [one.requires_grad_() for one in weights]
    if not ends:
        return
    first = torch.autograd.grad(
        _summed(ends, weights), needed, create_graph=True, materialize_grads=True
    )
    seed_generator(3)
    for gradient in first:
        end = _summed([gradient], [torch.randn(gradient.shape, dtype=gradient.dtype)])
        leaves = [*needed, *weights]
        if not end.requires_grad:
            yield tuple(torch.zeros_like(leaf) for leaf in leaves)
            continue
        yield torch.autograd.grad(
            end, leaves, retain_graph=True, materialize_grads=True
        )


def _firsts(
    checks: Any, function: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[Tensor, ...]:
    needed = [x for x in inputs if _needs(x)]
    ends, weights = _ends(checks, function, inputs)
    if not any(end.requires_grad for end in ends):
        return tuple(torch.zeros_like(x) for x in needed)
    return torch.autograd.grad(_summed(ends, weights), needed, materialize_grads=True)


def _ends(
    checks: Any, function: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs that may have a gradient, and numbers for each of their elements that no dtype rounds.

    One that is a constant of the call is among them: autograd gives it no gradient, a Function does.
    """
    outputs, chosen = as_tuple(function(*inputs)), checks.TESTS.ends
    several = [outputs[at] for at in chosen] if chosen else outputs
    ends = [one for one in several if one.is_floating_point() or one.is_complex()]
    seed_generator(1)
    # Whatever order the elements have in memory: the same numbers in another one are others.
    return ends, [torch.randint(-4, 5, one.shape).to(one.dtype) / 4 for one in ends]


def _summed(ends: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """A number whose derivative by each end is its weight; told `grad_outputs`, autograd imports SymPy."""
    total = torch.zeros((), dtype=torch.float64)
    for end, weight in zip(ends, weights, strict=True):
        if end.is_complex():
            end, weight = torch.view_as_real(end), torch.view_as_real(weight)
        total = total + (end * weight).sum()
    return total


def _needs(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _given_precision(inputs: Sequence[Any]) -> bool:
    """Whether an input is in single precision as it is, or complex."""
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    kinds = {x.dtype for x in tensors if x.is_floating_point() or x.is_complex()}
    return kinds != {torch.float64}


def _as_single(value: Any) -> Any:
    if not (isinstance(value, Tensor) and value.is_floating_point()):
        return value
    return value.detach().float().requires_grad_(value.requires_grad)


def _as_double(single: Any, value: Any) -> Any:
    """The same numbers as `single`, as what the value is."""
    if not (isinstance(value, Tensor) and value.is_floating_point()):
        return value
    return single.detach().double().requires_grad_(value.requires_grad)
