"""Gradients that are not derived whatever the forward computes, and why.

In: an `OpSpec`, its forward, and the inputs without a formula. Out: a reason for each that is left to the user.
Invariant: nothing is derived through what PyTorch does not see: NumPy, or a function of the user's.
"""

from collections.abc import Iterable, Iterator

from scaffold.derive.activity import leaves_torch
from scaffold.derive.forward import Forward
from scaffold.formula import Node, expressions
from scaffold.spec import OpSpec, TensorInput

NOT_DERIVED = "the backward is not derived"


def refusals(
    spec: OpSpec, forward: Forward, unstated: Iterable[TensorInput]
) -> dict[str, str]:
    """The inputs whose gradient the user has to state, each with the reason."""
    outside = _outside(spec, forward)
    if outside is not None:
        return {item.name: f"{NOT_DERIVED}: {outside}" for item in unstated}
    reason = "it is any number of tensors"
    return {
        item.name: f"grad_{item.name} is not derived: {reason}"
        for item in unstated
        if item.variadic
    }


def _outside(spec: OpSpec, forward: Forward) -> str | None:
    """What of the forward PyTorch does not see."""
    imported = frozenset(
        item.binding for item in spec.imports if item.module.split(".")[0] != "torch"
    )
    if imported and spec.rules:
        from scaffold.derive.vjp.tables import ruled_imports  # with all of the table

        imported -= ruled_imports(spec)
    for node in _nodes(forward):
        foreign = sorted(node.names() & imported)
        if foreign:
            return f"'{foreign[0]}' is not PyTorch's; state its gradient with --grad or --backward"
        if leaves_torch(node, imported):
            return "the forward leaves PyTorch; state its gradient with --grad or --backward"
    return None


def _nodes(forward: Forward) -> Iterator[Node]:
    for item in forward.statements:
        yield from expressions(item)
    yield from forward.results
