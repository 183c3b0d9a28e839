"""The refusal of second derivatives: a once-differentiable `backward` raises if its gradients are differentiated.

Some backwards cannot be differentiated (a kernel, NumPy), or the user asks for none of that. Words: the *guard*, `_OnceDifferentiable`, is
a Function in the generated file that returns its first argument and whose backward raises.
In: an `OpSpec`, its `Derivation` and the body of a once-differentiable backward. Out: the body, refusing to be
differentiated. Invariant: neither a gradient penalty nor `torch.func.grad` of itself gets a second derivative of 0.

`torch.autograd.function.once_differentiable` raises only if an output gradient itself requires a gradient. For the usual one,
a tensor of ones, it returns a gradient constant to autograd: differentiated again, it silently has no second derivative.
"""

from collections.abc import Sequence

from scaffold.derive import Derivation
from scaffold.formula.names import fresh
from scaffold.render.typing import typed_call
from scaffold.spec import OpSpec

GUARD = "_OnceDifferentiable"


def guards(derivation: Derivation) -> bool:
    """Return whether the gradients pass through the guard, a Function raising if they are differentiated.

    Not without saved tensors: such a backward is linear in the output's gradient, and PyTorch's decorator does.
    """
    return (
        derivation.once_differentiable
        and derivation.style == "setup-context"
        and bool(derivation.saved)
        and not derivation.missing
    )


def leads_back(spec: OpSpec, derivation: Derivation) -> bool:
    """Return whether the backward depends on some input only by intermediates, locals of forward it saves.

    Then these are returned as differentiable outputs, and lead back to the input: else a second derivative by it would silently be 0, and the
    guard never asked. Only for a backward with the guard.
    """
    if not guards(derivation):
        return False
    inputs = {item.origin for item in derivation.saved if item.source == "input"}
    output = any(item.source == "output" for item in derivation.saved)
    return not output and not inputs >= {item.name for item in spec.differentiable}


def decorated(derivation: Derivation) -> bool:
    """Return whether the backward has PyTorch's decorator: in combined style, and where it suffices.

    It suffices if the gradient reads nothing of the forward, since it is then linear in the output's gradient.
    """
    once = derivation.once_differentiable
    return once and derivation.style != "library" and not guards(derivation)


def refusal(spec: OpSpec) -> str:
    """Return the statement raising for a second derivative."""
    return f'raise RuntimeError("{spec.name} is differentiable once")'


def second_order_note(derivation: Derivation) -> str:
    """Return a note on second derivatives for the docstring of an op without them: an error, or a silent loss.

    The decorator loses one silently, unless it suffices. A registered op raises as soon as its backward is recorded, whether the
    gradient is differentiated or not (`refused_at_once`); any other only if it is.
    """
    # An unwritten gradient may come to read something.
    if decorated(derivation) and (derivation.saved or derivation.missing):
        return (
            "the gradient must not be part of a loss, since autograd may drop "
            "the second derivative without an error"
        )
    if derivation.style == "library":
        return "a backward with ``create_graph=True`` is an error"
    return "to differentiate its gradient is an error"


def once_only(
    spec: OpSpec, derivation: Derivation, body: Sequence[str], read: Sequence[str]
) -> list[str]:
    """Return the body of backward, made to raise if its gradients are differentiated; as it is for an op without the guard.

    `body` ends with the return; `read` are the tensors it reads.
    """
    if not guards(derivation):
        return list(body)
    *before, last = body
    value = last.removeprefix("return ")
    # `tuple(grad_xs)` is what a sole variadic input returns: several gradients.
    if len(spec.inputs) == 1 and not value.startswith("tuple("):
        return _of_one(spec, before, value, read)
    return _of_several(spec, before, value, read)


def refused_at_once(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Return lines refusing a second derivative, for the top of a registered op's backward; none for other ops.

    Such an op is not for `torch.func`, so a recorded graph of its backward means a wanted second derivative.
    """
    if not derivation.once_differentiable or derivation.style != "library":
        return []
    return ["if torch.is_grad_enabled():", f"    {refusal(spec)}"]


def _of_one(
    spec: OpSpec, before: Sequence[str], value: str, read: Sequence[str]
) -> list[str]:
    """Return the lines to return one gradient, as a Function's result if autograd records: its backward raises.

    `before` are the lines computing `value`, the gradient; the Function takes the tensors `read` too, so that each is part of the graph.
    """
    name = f"grad_{spec.inputs[0].name}"
    taken = {item.name for item in spec.inputs}
    typed, once = typed_call(spec, "once", f"{GUARD}.apply", "Tensor", taken)
    assigned = [] if value == name else [f"{name} = {value}"]
    return [
        # Without a graph of these lines, the guard is the only way back to the inputs.
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
    """Return the lines to return several gradients, each as a result of the guard if autograd records: its backward raises.

    As in `_of_one`, `value` is the tuple of gradients, computed by `before`; the guard takes the tensors `read` too, and so is part of every
    path from a gradient back to them.
    """
    taken = {item.name for item in spec.inputs}
    typed, once = typed_call(spec, "once", f"{GUARD}.apply", "Tensor", taken)
    grads = fresh("grads", taken)
    result = value if value.startswith("tuple(") else f"({value})"
    several = f"{once}(grad, {', '.join(read)})"
    return [
        "with torch.no_grad():",
        *(f"    {line}" for line in (*before, f"{grads} = {result}")),
        "if not torch.is_grad_enabled():",
        f"    return {grads}",
        *typed,
        f"return tuple(None if grad is None else {several} for grad in {grads})",
    ]
