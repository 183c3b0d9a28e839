"""What `backward` does where its gradients are differentiated though they cannot be: it raises.

In: an `OpSpec`, its `Derivation` and the body of a backward that is once differentiable. Out: the body that refuses to be
differentiated. Invariant: neither a gradient penalty nor `torch.func.grad` of itself gets a
second derivative of 0.

`torch.autograd.function.once_differentiable` raises only where an output gradient itself needs a gradient. Of the usual one, which
is a tensor of ones, it returns a gradient that is a constant to autograd: what is differentiated again has no second derivative.
"""

from collections.abc import Sequence

from scaffold.derive import Derivation
from scaffold.formula.names import fresh
from scaffold.render.typing import typed_call
from scaffold.spec import OpSpec

GUARD = "_OnceDifferentiable"


def guards(derivation: Derivation) -> bool:
    """Whether the gradients go through a Function that raises where they are differentiated."""
    return (
        derivation.once_differentiable
        and derivation.style == "setup-context"
        and bool(derivation.saved)
        and not derivation.missing
    )


def leads_back(spec: OpSpec, derivation: Derivation) -> bool:
    """Whether only the intermediates lead from a gradient back to every input: then they are differentiable outputs."""
    if not guards(derivation):
        return False
    inputs = {item.origin for item in derivation.saved if item.source == "input"}
    output = any(item.source == "output" for item in derivation.saved)
    return not output and not inputs >= {item.name for item in spec.differentiable}


def decorated(derivation: Derivation) -> bool:
    """Whether PyTorch's decorator stands there: in combined style, and where it is enough, as a gradient that reads nothing of the forward is linear in the output's."""
    once = derivation.once_differentiable
    return once and derivation.style != "library" and not guards(derivation)


def refusal(spec: OpSpec) -> str:
    """The statement that raises."""
    return f'raise RuntimeError("{spec.name} is differentiable once")'


def second_order_note(derivation: Derivation) -> str:
    """What becomes of a second derivative, for the docstring of the op."""
    if decorated(derivation):
        return (
            "the gradient must not be part of a loss, since autograd may drop "
            "the second derivative without an error"
        )
    if derivation.style != "setup-context":
        return "a backward with ``create_graph=True`` is an error"
    return "to differentiate its gradient is an error"


def once_only(
    spec: OpSpec, derivation: Derivation, body: Sequence[str], read: Sequence[str]
) -> list[str]:
    """The computation of the gradients, which raises where they are differentiated; `read` are the tensors that it reads."""
    if not guards(derivation):
        return list(body)
    *before, last = body
    value = last.removeprefix("return ")
    if len(spec.inputs) == 1 and not value.startswith("tuple("):
        return _of_one(spec, before, value, read)
    return _of_several(spec, before, value, read)


def refused_at_once(spec: OpSpec, derivation: Derivation) -> list[str]:
    """What stands first in the backward of an op that is registered: it is not for `torch.func`, so where a graph of it is recorded, a second derivative is wanted."""
    if not derivation.once_differentiable or derivation.style != "library":
        return []
    return ["if torch.is_grad_enabled():", f"    {refusal(spec)}"]


def _of_one(
    spec: OpSpec, before: Sequence[str], value: str, read: Sequence[str]
) -> list[str]:
    name = f"grad_{spec.inputs[0].name}"
    taken = {item.name for item in spec.inputs}
    typed, once = typed_call(spec, "once", f"{GUARD}.apply", "Tensor", taken)
    assigned = [] if value == name else [f"{name} = {value}"]
    return [
        "with torch.no_grad():",
        *(f"    {line}" for line in (*before, *assigned)),
        "if torch.is_grad_enabled():",
        *(f"    {line}" for line in typed),
        f"    {name} = {once}({name}, {', '.join(read)})",
        f"return {name}",
    ]


def _of_several(
    spec: OpSpec, before: Sequence[str], value: str, read: Sequence[str]
) -> list[str]:
    taken = {item.name for item in spec.inputs}
    typed, once = typed_call(spec, "once", f"{GUARD}.apply", "Tensor", taken)
    grads = fresh("grads", taken)
    whole = value if value.startswith("tuple(") else f"({value})"
    several = f"{once}(grad, {', '.join(read)})"
    return [
        "with torch.no_grad():",
        *(f"    {line}" for line in (*before, f"{grads} = {whole}")),
        "if not torch.is_grad_enabled():",
        f"    return {grads}",
        *typed,
        f"return tuple(None if grad is None else {several} for grad in {grads})",
    ]
