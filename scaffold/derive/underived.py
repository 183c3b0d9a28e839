"""Gradients that are not derived whatever the forward computes, and why.

In: an `OpSpec` and its forward. Out: a reason, if there is one.
Invariant: nothing is derived through what PyTorch does not see: NumPy, or a function of the user's.
"""

from collections.abc import Iterator

from scaffold.derive.activity import leaves_autograd
from scaffold.derive.derivation import Forward
from scaffold.formula import Node, expressions
from scaffold.spec import OpSpec

NOT_DERIVED = "the backward is not derived"
ADVICE = "state its gradient with --grad or --backward"


def refusal(spec: OpSpec, forward: Forward) -> str | None:
    """Why the user has to state the gradients: what of the forward PyTorch does not see."""
    outside = spec.foreign
    if outside and spec.rules:
        from scaffold.derive.rules.tables import ruled_imports

        outside -= ruled_imports(spec)
    for node in _nodes(forward):
        foreign = sorted(node.names() & outside)
        if foreign:
            return f"{NOT_DERIVED}: '{foreign[0]}' is not PyTorch's; {ADVICE}"
        if leaves_autograd(node, outside):
            return f"{NOT_DERIVED}: the forward leaves PyTorch; {ADVICE}"
    return None


def _nodes(forward: Forward) -> Iterator[Node]:
    for item in forward.statements:
        yield from expressions(item)
    yield from forward.results
