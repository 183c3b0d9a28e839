"""Whether a generated op is the function that it should be, and has its gradient.

In: a module with the op, a reference, inputs. Out: nothing, or an AssertionError that says what differs.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

Outputs = tuple[Tensor, ...]
Call = Callable[..., Any]
SEED = 7


# What torch.testing allows of these types, whose comparison takes as long as the op of a test.
CLOSE = {
    torch.double: {"rtol": 1e-7, "atol": 1e-7},
    torch.float: {"rtol": 1.3e-6, "atol": 1e-5},
}


def assert_close(one: Tensor, two: Tensor, msg: Any = None, **tolerance: Any) -> None:
    """As of torch.testing, which is asked only where something differs."""
    alike = (one.dtype, one.shape, one.layout) == (two.dtype, two.shape, two.layout)
    allowed: dict[str, Any] | None = tolerance or CLOSE.get(one.dtype)
    if not (alike and allowed and torch.allclose(one, two, **allowed)):
        torch.testing.assert_close(one, two, msg=msg, **tolerance)


def subsets(inputs: Sequence[Any], limit: int = 16) -> Iterator[tuple[bool, ...]]:
    """Every choice of the tensors that need a gradient, but none of them."""
    choices = [(True, False) if _differentiable(item) else (False,) for item in inputs]
    some = (choice for choice in product(*choices) if any(choice))
    for _, choice in zip(range(limit), some, strict=False):
        yield choice


def _differentiable(item: Any) -> bool:
    return isinstance(item, Tensor) and (item.is_floating_point() or item.is_complex())


def tuple_of(outputs: Any) -> Outputs:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def with_needs(inputs: Sequence[Any], needs: Sequence[bool]) -> list[Any]:
    """Copies of the inputs that require a gradient as told."""
    return [
        item.detach().clone().requires_grad_(need) if isinstance(item, Tensor) else item
        for item, need in zip(inputs, needs, strict=True)
    ]


def run(call: Call, inputs: Sequence[Any]) -> Outputs:
    torch.manual_seed(SEED)
    return tuple_of(call(*inputs))


def recorder(function: Any) -> tuple[Any, list[Any]]:
    """A subclass of the Function that keeps what its backward returns."""
    returned: list[Any] = []

    def backward(ctx: Any, *grads: Any) -> Any:
        result = function.backward(ctx, *grads)
        returned.append(result if isinstance(result, tuple) else (result,))
        return result

    members = {"backward": staticmethod(backward)}
    return type(f"Recorded{function.__name__}", (function,), members), returned


def copying(call: Call) -> Call:
    """An op on copies of the tensors, which it changes."""

    def run_on_copies(*inputs: Any) -> Any:
        return call(
            *(item.clone() if isinstance(item, Tensor) else item for item in inputs)
        )

    return run_on_copies


def check_op(
    function: Any,
    wrapper: Call,
    reference: Call,
    inputs: Sequence[Any],
    *,
    once: bool = False,
    on_copies: bool = False,
    subset_limit: int = 16,
) -> None:
    """Forward, gradients, what backward returns, second derivatives: for every subset of needs."""
    for needs in subsets(inputs, subset_limit):
        check_needs(function, wrapper, reference, inputs, needs, once, on_copies)


def is_once(text: str) -> bool:
    """Whether an op refuses a second derivative."""
    return "differentiable once" in text or "once_differentiable" in text


def check_needs(
    function: Any,
    wrapper: Call,
    reference: Call,
    inputs: Sequence[Any],
    needs: tuple[bool, ...],
    once: bool,
    on_copies: bool,
) -> None:
    recorded, returned = recorder(function)
    apply = copying(recorded.apply) if on_copies else recorded.apply
    ours, theirs = with_needs(inputs, needs), with_needs(inputs, needs)
    plain, expected = run(wrapper, ours), run(reference, theirs)
    # The forward of a Function, which may stand for either, may return more, to be saved.
    count = min(len(plain), len(expected))
    plain, expected = plain[:count], expected[:count]
    actual = run(apply, ours)[:count]
    for one, same, two in zip(actual, plain, expected, strict=True):
        assert_close(one, two)
        assert_close(same, two)
    wanted = [item for item, need in zip(ours, needs, strict=True) if need]
    matching = [item for item, need in zip(theirs, needs, strict=True) if need]
    for ends in _ends(actual, expected):
        returned.clear()
        grads = _gradients([actual[k] for k in ends], wanted, create=not once)
        reals = _reference([expected[k] for k in ends], matching)
        _compare(grads, reals, needs)
        if returned:
            _check_returned(returned[0], inputs, needs)
        if not once:
            _check_second(grads, reals, wanted, matching)


def check_by_differences(wrapper: Call, inputs: Sequence[Any], once: bool) -> None:
    """The gradient of an op that autograd has none of, and the gradient of that."""
    needs = [_differentiable(item) for item in inputs]
    assert torch.autograd.gradcheck(wrapper, with_needs(inputs, needs))
    if not once:
        assert torch.autograd.gradgradcheck(wrapper, with_needs(inputs, needs))


def _ends(actual: Outputs, expected: Outputs) -> list[list[int]]:
    """All outputs that have a gradient, and each alone."""
    every = [k for k, item in enumerate(expected) if item.requires_grad]
    for k in every:
        assert actual[k].requires_grad, f"output {k} has lost its gradient"
    return [every, *([k] for k in every)] if len(every) > 1 else [every] * bool(every)


def _weights(outputs: Sequence[Tensor]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    return [
        torch.randn(item.shape, generator=generator, dtype=torch.double).to(item.dtype)
        for item in outputs
    ]


def _gradients(
    outputs: list[Tensor], inputs: list[Tensor], create: bool, in_rows: bool = False
) -> list[Tensor | None]:
    weights = [
        weight.mT.contiguous().mT if weight.ndim > 1 and not in_rows else weight
        for weight in _weights(outputs)
    ]
    found = torch.autograd.grad(
        outputs,
        inputs,
        weights,
        create_graph=create,
        retain_graph=True,
        allow_unused=True,
    )
    return list(found)


def _reference(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    """What autograd has; PyTorch's backward of some calls, as conv_tbc, takes a contiguous gradient alone."""
    try:
        return _gradients(outputs, inputs, create=True)
    except RuntimeError:
        return _gradients(outputs, inputs, create=True, in_rows=True)


# Of second derivatives: PyTorch takes softplus for linear beyond its threshold, by which its slope errs by 2e-9 there, times the
# squares of what comes before it.
TWICE = {"rtol": 1e-6, "atol": 1e-7}


def _compare(
    ours: Sequence[Tensor | None],
    theirs: Sequence[Tensor | None],
    needs: Any,
    tolerance: dict[str, Any] | None = None,
) -> None:
    for position, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        if one is None or two is None:
            rest = one if two is None else two
            assert rest is None or bool(
                (rest.abs() < 1e-12).all()
            ), f"gradient {position} of {needs}"
        else:
            named = _named(f"gradient {position} of {needs}")
            kept = {} if one.dtype != torch.double else tolerance or {}
            assert_close(one, two, msg=named, **kept)


def _named(what: str) -> Callable[[str], str]:
    return lambda text: f"{what}: {text}"


def _check_returned(
    returned: Any, inputs: Sequence[Any], needs: Sequence[bool]
) -> None:
    assert len(returned) == len(inputs)
    for grad, item, need in zip(returned, inputs, needs, strict=True):
        assert need or grad is None, "a gradient that nobody needs"
        if grad is not None:
            assert grad.shape == item.shape, f"{grad.shape} for {item.shape}"
            assert grad.dtype == item.dtype, f"{grad.dtype} for {item.dtype}"


# What PyTorch says of its own gradient of `hardsigmoid`, of `cdist`.
NO_SECOND = re.compile("derivative for .* is not implemented")


def _check_second(
    ours: Sequence[Tensor | None],
    theirs: Sequence[Tensor | None],
    wanted: list[Tensor],
    matching: list[Tensor],
) -> None:
    one = [grad for grad in ours if grad is not None and grad.requires_grad]
    two = [grad for grad in theirs if grad is not None and grad.requires_grad]
    kept = [k for k, grad in enumerate(ours) if grad is not None and grad.requires_grad]
    pairs = [(ours[k], theirs[k]) for k in kept]
    both = [(a, b) for a, b in pairs if b is not None]
    graded = [b for _, b in both]
    try:
        right = (
            _second_reference(graded, matching)
            if any(item.requires_grad for item in graded)
            else [None] * len(wanted if both else ())
        )
        is_known = bool(one) or not any(_nonzero(grad, matching) for grad in two)
    except RuntimeError as error:
        if not NO_SECOND.search(str(error)):
            raise
        return  # there is nothing to hold ours against
    first = [a for a, _ in both if a is not None]
    left = _gradients(first, wanted, False) if both else []
    _compare(*_told(left, right), "second order", TWICE)
    assert is_known


def _told(
    ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Those numbers of both of which autograd gives no NaN, as it does where slopes overflow: of logaddexp, of numbers of 1e16."""
    left, right = list(ours), list(theirs)
    for k, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        if one is not None and two is not None and two.isnan().any():
            assert one.shape == two.shape
            left[k], right[k] = one[~two.isnan()], two[~two.isnan()]
    return left, right


def _second_reference(
    graded: list[Tensor], matching: list[Tensor]
) -> list[Tensor | None]:
    weights = [
        weight.mT.contiguous().mT if weight.ndim > 1 else weight
        for weight in _weights(graded)
    ]
    with_graph = [
        (g, w) for g, w in zip(graded, weights, strict=True) if g.requires_grad
    ]
    found = torch.autograd.grad(
        [g for g, _ in with_graph],
        matching,
        [w for _, w in with_graph],
        retain_graph=True,
        allow_unused=True,
    )
    return list(found)


def _nonzero(grad: Tensor, inputs: list[Tensor]) -> bool:
    found = torch.autograd.grad(
        grad.sum(), inputs, retain_graph=True, allow_unused=True
    )
    return any(item is not None and bool(item.any()) for item in found)
