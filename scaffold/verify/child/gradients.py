"""The gradients of a call: those that `backward` returned, and those that are expected.

In: the module of checks and the inputs of a call. Out: gradients, in the order of the inputs or by name.
Invariant: what backward returned is as it returned it, before autograd sums or casts it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.fast_torch import seed_generator
from scaffold.verify.child.numeric import numeric_gradients


def returned_gradients(
    checks: Any, inputs: Sequence[Any]
) -> tuple[tuple[Any, ...] | None, Exception | None]:
    """What backward returned first, and what autograd or backward itself raised."""
    import verified_op  # type: ignore[import-not-found, unused-ignore]

    function = checks.function_of(verified_op)
    returned: list[tuple[Any, ...]] = []

    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        result = function.backward(ctx, *grad_outputs)
        returned.append((result,) if checks.BARE else tuple(result))
        return result

    recorder = type("Recorder", (function,), {"backward": staticmethod(backward)})
    seed_generator(2)
    outputs = checks.call_recorder(recorder, tuple(inputs))
    error = None
    try:
        checks.gradients(outputs, tuple(inputs))
    except Exception as raised:  # noqa: BLE001 (whatever the user's code raises)
        error = raised
    return (returned[0] if returned else None), error


def expected_gradients(
    checks: Any, inputs: Sequence[Any], names: Sequence[str]
) -> dict[str, Tensor]:
    """The gradients by autograd of the reference, or by differences where there is none."""
    needed = [
        (name, value)
        for name, value in zip(names, inputs, strict=True)
        if isinstance(value, Tensor) and value.requires_grad
    ]
    if checks.REFERENCE is None:
        if checks.SURROGATE:
            return {}
        found = numeric_gradients(checks, inputs)
        return {name: grad for (name, _), grad in zip(needed, found, strict=True)}
    outputs = checks.REFERENCE(*inputs)
    if not any(output.requires_grad for output in as_tuple(outputs)):
        return {name: torch.zeros_like(value) for name, value in needed}
    if isinstance(outputs, tuple):
        outputs = tuple(map(_as_end, outputs))
    found = checks.gradients(outputs, tuple(inputs))
    return {name: grad.detach() for (name, _), grad in zip(needed, found, strict=True)}


def _as_end(output: Tensor) -> Tensor:
    """An output that gradients can begin at, though it may depend on no input that needs one."""
    plain = output.is_floating_point() or output.is_complex()
    if output.requires_grad or not plain:
        return output
    return output.detach().requires_grad_()


def as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)
