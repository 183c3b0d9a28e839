"""Calls that break the declared shapes of an op, and what comes of each.

In: an op, its plain forward, inputs of the declared shapes. Out: an `Outcome` a call. Invariant: what is compared is what `backward`
itself returned too, since the engine sums a gradient that is too large.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from scaffold.spec import Input, OpSpec, TensorInput, is_size_name, leading
from tests.derive.checking import Call, recorder, run, with_needs

Inputs = tuple[Any, ...]
REFUSALS = (
    AssertionError,
    RuntimeError,
    IndexError,
    ValueError,
    TypeError,
    ZeroDivisionError,
)
Outcome = Literal["right", "guard", "refused", "not finite", "summed", "wrong"]
SEED = 7


class Broken(NamedTuple):
    """A call, and which declaration it breaks."""

    how: str
    inputs: Inputs


def broken_calls(spec: OpSpec, inputs: Inputs) -> Iterator[Broken]:
    """Each dim of each declared input as 1, one dim less and more, one element; and all tensors so at once."""
    seen = {shapes_of(inputs)}
    for call in _broken(spec, inputs):
        if shapes_of(call.inputs) not in seen:
            seen.add(shapes_of(call.inputs))
            yield call


def shapes_of(inputs: Inputs) -> tuple[Any, ...]:
    return tuple(
        tuple(item.shape) if isinstance(item, Tensor) else None for item in inputs
    )


def _declared(spec: OpSpec, inputs: Inputs) -> Iterator[tuple[int, TensorInput]]:
    for at, (item, value) in enumerate(given(spec, inputs)):
        if not (isinstance(item, TensorInput) and isinstance(value, Tensor)):
            continue
        if item.dims is not None:
            yield at, item


def given(spec: OpSpec, inputs: Inputs) -> Iterator[tuple[Input, Any]]:
    """Each value with the input that it is for; of any number of tensors there are several."""
    last = spec.inputs[-1]
    more = len(inputs) - len(spec.inputs)
    return zip((*spec.inputs, *[last] * more), inputs, strict=True)


def _broken(spec: OpSpec, inputs: Inputs) -> Iterator[Broken]:
    for at, item in _declared(spec, inputs):
        for how, value in _of_one(inputs[at]):
            yield Broken(f"{item.name} {how}", (*inputs[:at], value, *inputs[at + 1 :]))
    for how, change in (("less", _less), ("more", _more)):
        changed = (change(v) if isinstance(v, Tensor) else v for v in inputs)
        yield Broken(f"all one dim {how}", tuple(changed))
    most = max((v.ndim for v in inputs if isinstance(v, Tensor)), default=0)
    for how, change in (("less", _less), ("more", _more)):
        changed = (
            change(v) if isinstance(v, Tensor) and v.ndim == most else v for v in inputs
        )
        yield Broken(f"the largest one dim {how}", tuple(changed))
    yield from _of_names(spec, inputs)


def _of_one(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    for dim in range(value.ndim):
        if value.shape[dim]:
            yield f"{dim}=1", value.narrow(dim, 0, 1)
    yield "one dim less", _less(value)
    yield "one dim more", _more(value)
    yield "a dim of 1 more", value[None]
    if value.numel():
        yield "of shape (1,)", value.flatten()[:1]
        yield "of shape ()", value.flatten()[0]


def _less(value: Tensor) -> Tensor:
    return value[0] if value.ndim and len(value) else value


def _more(value: Tensor) -> Tensor:
    return torch.stack([value, value])


def _of_names(spec: OpSpec, inputs: Inputs) -> Iterator[Broken]:
    """A named size is 1 in all inputs but one."""
    declared = [(at, item.dims or ()) for at, item in _declared(spec, inputs)]
    for name in dict.fromkeys(dim for _, dims in declared for dim in dims):
        if not is_size_name(name):
            continue
        small = list(inputs)
        for at, dims in declared:
            for place, dim in enumerate(dims):
                if dim == name:
                    axis = place - len(dims) if leading(dims[:place]) else place
                    small[at] = small[at].narrow(axis, 0, 1)
        for at, _ in declared:
            one = (*small[:at], inputs[at], *small[at + 1 :])
            yield Broken(f"{name}=1 but in input {at}", one)


def outcome(
    function: Any,
    plain: Call,
    call: Broken,
    needs: Sequence[bool],
    count: int | None = None,
) -> tuple[Outcome, str]:
    """What an op of `count` outputs does with a call that PyTorch takes, and the message of what is raised."""
    try:
        with torch.no_grad():
            function.apply(*call.inputs)
    except REFUSALS as error:
        if "has shape" in str(error):
            return "guard", str(error)
        return "refused", str(error)
    expected = _expected(plain, call, needs)
    if not isinstance(expected, list):
        return expected
    recorded, returned = recorder(function)
    ours = with_needs(call.inputs, needs)
    try:
        actual = _gradients(run(recorded.apply, ours)[:count], ours, needs)
    except REFUSALS as error:
        return "refused", str(error)
    for one, two in zip(actual, expected, strict=True):
        if not torch.allclose(one, two, rtol=1e-5, atol=1e-8):
            return "wrong", ""
    for gradient, value in zip(returned[0] if returned else (), call.inputs):
        if gradient is not None and gradient.shape != value.shape:
            return "summed", f"{tuple(gradient.shape)} for {tuple(value.shape)}"
    return "right", ""


def _expected(
    plain: Call, call: Broken, needs: Sequence[bool]
) -> list[Tensor] | tuple[Outcome, str]:
    """The gradients of autograd; what PyTorch refuses, or makes no numbers of, cannot be wrong."""
    theirs = with_needs(call.inputs, needs)
    try:
        results = run(plain, theirs)
        gradients = _gradients(results, theirs, needs)
    except REFUSALS as error:
        return "refused", str(error)
    every = (*(result for result in results if isinstance(result, Tensor)), *gradients)
    if not all(bool(torch.isfinite(value).all()) for value in every):
        return "not finite", ""
    return gradients


def _gradients(
    results: Sequence[Any], inputs: Sequence[Any], needs: Sequence[bool]
) -> list[Tensor]:
    ends = [item for item in results if isinstance(item, Tensor) and item.requires_grad]
    wanted = [item for item, need in zip(inputs, needs, strict=True) if need]
    if not ends:
        return [torch.zeros_like(item) for item in wanted]
    generator = torch.Generator().manual_seed(SEED)
    weights = [
        torch.randn(item.shape, generator=generator, dtype=torch.double).to(item.dtype)
        for item in ends
    ]
    found = torch.autograd.grad(ends, wanted, weights, materialize_grads=True)
    return list(found)
