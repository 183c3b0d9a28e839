"""Derivatives of a call: gradients from `backward`, tangents from `jvp`, and the expected ones.

The comparisons of a proof (`checking.py`, `function_checks.py`) get both sides from here. In: the module of checks (`checks`: OPERATOR,
the op; REFERENCE, plain PyTorch, or None) and the inputs of a call. Out: gradients, in the order of the inputs or by name: by autograd of
the reference, by central differences if there is none, or by autograd of the user's own text. Tangents come in pairs, one for each
differentiable output.
Invariant: a returned gradient is as backward returned it, before autograd sums or casts it; the output gradients are the same for all of
them, those of `checks.gradients`, and so are the tangents of the inputs.
Words: *own* is the user's text as written, before our parser read it; *needed* are the inputs requiring grad; *ends* are outputs that
autograd can start at; a gradient is *returned* by backward itself, *expected* by the reference.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd import forward_ad

from scaffold.verify.child.fast_torch import seed_generator
from scaffold.verify.child.function_questions import needing

Tangents = list[Tensor | None]
STEP = 1e-6  # of central differences, to either side


def numeric_gradients(
    checks: Any, inputs: Sequence[Any], step: float = STEP
) -> list[Tensor]:
    """Return gradients of the inputs requiring grad by central differences: two calls for each element and direction."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    weights = _grad_outputs(checks, inputs)
    return [_gradient(checks, inputs, value, weights, step) for value in needed]


def _grad_outputs(checks: Any, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    """Return the output gradients used by `checks.gradients`, which does not show them: they are its gradients for leaves as outputs.

    Zeros for outputs of integers or bools.
    """
    # The gradient of a leaf that is itself an output is its grad_output.
    outputs = _call(checks, inputs)
    leaves = tuple(x.clone().requires_grad_(is_inexact(x)) for x in outputs)
    # `gradients` takes what the op returns: a tuple, or one tensor.
    given = leaves if isinstance(checks.OPERATOR(*inputs), tuple) else leaves[0]
    found = iter(checks.gradients(given, leaves))
    return tuple(
        next(found) if leaf.requires_grad else torch.zeros_like(leaf) for leaf in leaves
    )


def _gradient(
    checks: Any,
    inputs: Sequence[Any],
    value: Tensor,
    weights: tuple[Tensor, ...],
    step: float,
) -> Tensor:
    """Return the gradient of the weighted sum of all outputs by one input, element by element; a complex element has two directions.

    `value` is that input, moved by `step` to both sides; `weights` has a tensor for each output.
    """
    gradient = torch.zeros_like(value).detach().contiguous()
    directions = (1.0, 1j) if value.is_complex() else (1.0,)
    flat = gradient.view(-1)
    for index in range(value.numel()):
        for direction in directions:
            sums = []
            for sign in (1, -1):
                moved = value.detach().clone(memory_format=torch.contiguous_format)
                moved.view(-1)[index] += sign * step * direction
                called = [moved if x is value else x for x in inputs]
                sums.append(_weighted(_call(checks, called), weights))
            flat[index] += direction * (sums[0] - sums[1]) / (2 * step)
    return gradient


def _weighted(outputs: tuple[Tensor, ...], weights: tuple[Tensor, ...]) -> float:
    """Return the real part of the sum of all outputs, each element times its conjugate weight: the number to differentiate."""
    pairs = zip(outputs, weights, strict=True)  # of other dtypes a weight is 0
    return sum(float((weight.conj() * output).sum().real) for output, weight in pairs)


def _call(checks: Any, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return as_tuple(checks.OPERATOR(*inputs))


def returned_gradients(
    checks: Any, inputs: Sequence[Any]
) -> tuple[tuple[Any, ...] | None, Exception | None]:
    """Return the gradients as the first call of backward returned them, None if none did; and the exception raised, or None.

    Autograd would sum and cast them afterwards, and hide a wrong shape or dtype. A Function is subclassed to record them; an op registered
    with `torch.library` gets a recording backward for the time of the call.
    """
    function, registered = checks.TESTS.function, checks.TESTS.registered
    # An op registered with `torch.library` is no Function: PyTorch keeps its backward in `_backward_fn`.
    own = function.backward if registered is None else registered._backward_fn
    returned: list[tuple[Any, ...]] = []

    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        result = own(ctx, *grad_outputs)
        returned.append(tuple(_flat(result)))
        return result

    seed_generator(2)
    recording: AbstractContextManager[Any] = nullcontext()
    if registered is None:
        recorder = type("Recorder", (function,), {"backward": staticmethod(backward)})
        outputs = checks.call_recorder(recorder, tuple(inputs))
    else:
        outputs = checks.OPERATOR(*inputs)
        recording = patch.object(registered, "_backward_fn", backward)
    error = None
    try:
        with recording:
            checks.gradients(outputs, tuple(inputs))
    except Exception as raised:  # noqa: BLE001 (whatever the user's code raises)
        error = raised
    return (returned[0] if returned else None), error


def expected_gradients(
    checks: Any, inputs: Sequence[Any], names: Sequence[str]
) -> dict[str, Tensor]:
    """Return gradients by input name, by autograd of the reference or by differences; {} for a surrogate without a reference."""
    if checks.REFERENCE is not None:
        found = gradients_of(checks, checks.REFERENCE(*inputs), inputs)
    elif checks.SURROGATE:
        return {}
    else:
        found = numeric_gradients(checks, inputs)
    return dict(zip(needing(names, inputs), found, strict=True))


def gradients_of(checks: Any, outputs: Any, inputs: Sequence[Any]) -> list[Tensor]:
    """Return autograd's gradients of the outputs of a call; zeros if none requires grad."""
    # Autograd would raise: no output depends on an input.
    if not any(output.requires_grad for output in as_tuple(outputs)):
        needed = (x for x in inputs if isinstance(x, Tensor) and x.requires_grad)
        return [torch.zeros_like(value) for value in needed]
    if isinstance(outputs, tuple):
        outputs = tuple(map(_as_end, outputs))
    return [grad.detach() for grad in checks.gradients(outputs, tuple(inputs))]


def own_values(own: Callable[..., Any] | None, inputs: Sequence[Any]) -> list[Tensor]:
    """Return the outputs of `own`, the user's text as written; [] if it does not accept the call, or is not known (None).

    It gets copies. The text may change its inputs, and accepts less than the parser: `x + bias` with an absent bias is no sum in Python.
    """
    try:
        called = (x.clone() if isinstance(x, Tensor) else x for x in inputs)
        found = [*_flat(own(*called))] if own is not None else []
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return []
    # A number among the outputs, as of `x.numel()`, cannot be compared.
    return found if all(isinstance(item, Tensor) for item in found) else []


def own_gradients(
    checks: Any, inputs: Sequence[Any], names: Sequence[str]
) -> dict[str, Tensor]:
    """Return autograd's gradients of the user's text as written, by input name; {} if it does not accept the call, or one is not finite."""
    outputs = own_values(checks.OWN_GRADIENT, inputs)
    try:
        found = gradients_of(checks, tuple(outputs), inputs) if outputs else []
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return {}
    if not found or not all(bool(grad.isfinite().all()) for grad in found):
        return {}
    return dict(zip(needing(names, inputs), found, strict=True))


def _flat(outputs: Any) -> Iterator[Any]:
    """Yield the outputs, or gradients, one after the other: one of them may be a list of tensors, for a variadic input."""
    if isinstance(outputs, tuple | list):
        for item in outputs:
            yield from _flat(item)
    else:
        yield outputs


def _as_end(output: Tensor) -> Tensor:
    """Return an output autograd can start at; a constant one is replaced by a leaf.

    For constant outputs too, backward of a Function is called with a grad_output, and `checks.gradients` draws one for each: the reference
    has to take as many.
    """
    if output.requires_grad or not is_inexact(output):
        return output
    return output.detach().requires_grad_()


def is_inexact(value: Tensor) -> bool:
    """Return whether a tensor may have a gradient, as integers and bools may not."""
    return value.is_floating_point() or value.is_complex()


def as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


# --- Tangents: if PyTorch has no forward mode for a call, its vjp, which is linear, is transposed instead.


def compared_tangents(
    checks: Any, inputs: Sequence[Any], chosen: Sequence[bool]
) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of the op's and the expected tangent for each differentiable output; [] if there is nothing to compare with.

    `chosen` tells which inputs get a random tangent. Without one for a tensor, without a reference, or without its tangents: [].
    """
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
    # What the op raises here is a finding of the caller's (`checking._attempt`).
    actual = pushed(checks.OPERATOR, given, tangents)
    expected = _expected(checks.REFERENCE, given, tangents)
    if expected is None:
        return []
    return [
        (_tensor(one, output), _tensor(two, output))
        for output, one, two in zip(
            as_tuple(checks.REFERENCE(*given)), actual, expected, strict=True
        )
        if is_inexact(output)
    ]


def _tensor(tangent: Tensor | None, output: Tensor) -> Tensor:
    """Return the tangent; for None, a constant, zeros like its output."""
    return torch.zeros_like(output) if tangent is None else tangent.detach()


def _expected(
    function: Callable[..., Any], inputs: Sequence[Any], tangents: Tangents
) -> Tangents | None:
    """Return the tangents of a function in plain PyTorch, by forward mode or by its vjp; None if PyTorch has neither."""
    for way in (pushed, _transposed):
        try:
            return way(function, inputs, tangents)
        except (NotImplementedError, RuntimeError):
            continue
    return None


def pushed(
    function: Callable[..., Any], inputs: Sequence[Any], tangents: Tangents
) -> Tangents:
    """Return the tangents of the outputs by forward mode (dual numbers); None in place of a tangent: a constant."""
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
    """Return the tangents of the outputs by transposing the vjp: it is linear in the cotangents, and its own vjp is the jvp.

    For a function that has no forward mode in PyTorch. None in place of a tangent: an output of integers or bools.
    """
    places = [at for at, tangent in enumerate(tangents) if tangent is not None]

    def differentiable(*moved: Tensor) -> tuple[Tensor, ...]:
        """Return the differentiable outputs, with these tensors in place of the inputs with a tangent."""
        called = [*inputs]
        for at, value in zip(places, moved, strict=True):
            called[at] = value
        return tuple(filter(is_inexact, as_tuple(function(*called))))

    # `values` only gives the cotangents a shape: a linear function has the same vjp anywhere.
    values, pull, *_ = torch.func.vjp(differentiable, *(inputs[at] for at in places))
    given = tuple(tangents[at] for at in places)
    found = iter(torch.func.vjp(pull, values)[1](given)[0])
    outputs = as_tuple(function(*inputs))
    return [next(found) if is_inexact(x) else None for x in outputs]
