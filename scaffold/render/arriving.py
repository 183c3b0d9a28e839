"""The output gradients as they come into `backward`.

In: an `OpSpec` and its `Derivation`. Out: its parameters, and the lines that deal with a gradient that is None.
Invariant: below those lines every gradient that a formula reads is a tensor.
"""

from scaffold.derive import Derivation, Filled, grad_name, variadic_names
from scaffold.render.imports import names_read
from scaffold.render.needs import needed
from scaffold.spec import Input, OpSpec, TensorInput


def backward_parameters(spec: OpSpec, derivation: Derivation, body: list[str]) -> str:
    """The output gradients, those that the body does not read with an underscore."""
    names = names_of(body)
    kind = "Tensor" if spec.materialize_grads else "Tensor | None"
    if _collects(spec, derivation):
        first = [grad_name(spec, output.name) for output in spec.outputs[:-1]]
        listed = [name if name in names else f"_{name}" for name in first]
        return ", ".join(f"{name}: {kind}" for name in (*listed, "*grads"))
    listed = []
    for name in grad_names(spec):
        read = derivation.missing or name.lstrip("*") in names
        star, bare = ("*", name[1:]) if name.startswith("*") else ("", name)
        listed.append(f"{star}{bare if read else '_' + bare}: {kind}")
    listed += [f"_grad_{name}: {kind}" for name in _extra(derivation)]
    return ", ".join(listed)


def _extra(derivation: Derivation) -> tuple[str, ...]:
    """The intermediates that forward returns."""
    return derivation.intermediates if derivation.extra else ()


def _collects(spec: OpSpec, derivation: Derivation) -> bool:
    """Whether the gradients of a variadic output come in as `*grads`, to be taken apart or filled."""
    if not spec.outputs[-1].variadic:
        return False
    name = spec.outputs[-1].name
    return bool(derivation.extra) or any(
        item.output == name for item in derivation.filled
    )


def _collected(derivation: Derivation) -> str:
    """The name of the gradients of a variadic output, some of which may be None."""
    return "some_grads" if derivation.extra else "grads"


def split_grads(
    spec: OpSpec, derivation: Derivation, names: frozenset[str]
) -> list[str]:
    """The gradients of a variadic output without those of intermediates."""
    if not (derivation.extra and _collects(spec, derivation)):
        return []
    name = grad_name(spec, spec.outputs[-1].name)
    if derivation.filled:
        name = _collected(derivation)
    extra = ", ".join(f"_grad_{item}" for item in _extra(derivation))
    return [f"*{name if name in names else f'_{name}'}, {extra} = grads"]


def grad_names(spec: OpSpec) -> tuple[str, ...]:
    """The names of the output gradients in the formulas, a variadic one with its star."""
    return tuple(
        ("*" if item.variadic else "") + grad_name(spec, item.name)
        for item in spec.outputs
    )


def absent_grads(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Guards for output gradients that are None because nothing downstream used them."""
    if not derivation.watched:
        return []
    several = variadic_names(spec)
    tests = [
        (
            f"all(grad is None for grad in {_collected(derivation)})"
            if name in several
            else f"{grad_name(spec, name)} is None"
        )
        for name in derivation.watched
    ]
    nothing = ", ".join(none_for(spec, item) for item in spec.inputs)
    comma = "," if nothing.startswith("*") and len(spec.inputs) == 1 else ""
    lines = [f"if {' and '.join(tests)}:", f"    return {nothing}{comma}"]
    for item in derivation.filled:
        name = grad_name(spec, item.output)
        if item.output in several:
            lines += _filled_each(name, _collected(derivation), item)
        else:
            lines += [f"if {name} is None:", f"    {name} = {_zeros(item)}"]
    return lines


def _zeros(item: Filled) -> str:
    facets = f"dtype=ctx.{item.dtype}, device=ctx.{item.device}"
    return f"torch.zeros(ctx.{item.shape}, {facets})"


def _filled_each(name: str, given: str, item: Filled) -> list[str]:
    facets = f"ctx.{item.shape}, ctx.{item.dtype}, ctx.{item.device}"
    zeros = "torch.zeros(shape, dtype=dtype, device=device)"
    return [
        f"{name} = tuple(",
        f"    {zeros} if grad is None else grad",
        "    for grad, shape, dtype, device in zip(",
        f"        {given}, {facets}, strict=True",
        "    )",
        ")",
    ]


def none_for(spec: OpSpec, item: Input) -> str:
    if isinstance(item, TensorInput) and item.variadic:
        return f"*(None for _ in {needed(spec, item.name)})"
    return "None"


def names_of(body: list[str]) -> frozenset[str]:
    """The names that the lines of a body read."""
    return names_read("\n".join(["def backward():", *(f"    {line}" for line in body)]))
