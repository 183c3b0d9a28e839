"""Outputs detached by the forward itself: `return x * y, (x - y).detach()`.

In: an `OpSpec`. Out: these outputs, and the spec with them declared non-differentiable. Invariant: returned from the
same forward in plain PyTorch they would not require grad; in doubt an output has a gradient.

The pipeline asks first of all, so that the op marks such an output as PyTorch would; proofs ask for
`perhaps_detached`. Words: an `active` name carries a gradient in a call with gradients; a flat step (`flat=True`) as
`torch.sign` counts too, since its result requires grad in PyTorch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from scaffold.derive.analysis.activity import active_locals, carries_gradient
from scaffold.derive.forward.body import write_forward
from scaffold.derive.forward.live_forward import live_forward
from scaffold.formula import Formula, If, Node, Statement, raises, written
from scaffold.spec import OpSpec

Names = frozenset[str]


def detached_outputs(spec: OpSpec) -> Names:
    """Return the differentiable outputs without a gradient in PyTorch; none, if no other output with one would be left.

    An output is detached if its value carries no gradient, and no formula of the user's reads its gradient. For an op
    without any gradient there would be nothing to derive.
    """
    if not _can_be_followed(spec) or spec.forward is None:
        return frozenset()
    forward = write_forward(spec, spec.forward)
    inputs = frozenset(item.name for item in spec.differentiable)
    active = inputs | active_locals(forward.statements, inputs, flat=True)
    read = frozenset().union(*(formula.names() for formula in _stated(spec)))
    found = frozenset(
        output.name
        for output, result in zip(spec.outputs, forward.results, strict=True)
        if output.differentiable and not output.variadic
        if not carries_gradient(result, active, flat=True)
        and f"grad_{output.name}" not in read
    )
    others = {item.name for item in spec.outputs if item.differentiable} - found
    return found if others else frozenset()


def without_gradient(spec: OpSpec, outputs: Names) -> OpSpec:
    """Return the spec with these outputs declared non-differentiable, so later passes derive no gradient through them."""
    if not outputs:
        return spec
    declared = tuple(
        item._replace(const=True) if item.name in outputs else item
        for item in spec.outputs
    )
    return replace(spec, outputs=declared)


def perhaps_detached(spec: OpSpec) -> bool:
    """Return whether an output may have no gradient in PyTorch in some calls: detached in a branch, or of an absent input alone.

    A proof then does not ask that the outputs require grad. True for a kept forward, not looked into.
    """
    if spec.kept is not None:
        return True
    if spec.forward is None:
        return False
    forward = live_forward(spec, spec.forward, ends=True)
    present = frozenset(item.name for item in spec.differentiable if not item.optional)
    active = _surely_active(forward.statements, present)
    if active is None:  # every branch raises, so there is no output
        return False
    return not all(_surely_carries(item, active) for item in forward.results)


def _surely_active(statements: Iterable[Statement], active: Names) -> Names | None:
    """Return the names that carry a gradient whichever branch is taken; None if every branch raises.

    `active` names carry one before the statements. A branch that raises returns nothing, so it does not count.
    """
    for item in statements:
        if isinstance(item, If):
            ways = [_surely_active(way, active) for way in (item.body, item.orelse)]
            returning = [way for way in ways if way is not None]
            if not returning:
                return None
            active = frozenset.intersection(*returning)
        elif raises((item,)):
            return None
        elif _surely_carries(item.value, active):
            active |= written(item)
        # `h += 1` and `h[0] = 1` leave h with the gradient it had.
        elif not item.operator and item.target.kind != "subscript":
            active -= item.target.names()
    return active


def _surely_carries(node: Node, active: Names) -> bool:
    """Return whether the value requires grad in PyTorch if the `active` names do, for any choice of a conditional.

    `x if t else 0` carries one in some calls only.
    """
    ways = (
        way
        for item in node.walk()
        if item.kind == "conditional"
        for way in item.args[1:]
    )
    return carries_gradient(node, active, flat=True) and all(
        carries_gradient(way, active, flat=True) for way in ways
    )


def _can_be_followed(spec: OpSpec) -> bool:
    """Return whether the gradient is derived from a forward with several outputs, line by line.

    A sole output cannot be detached: the op would have no gradient.
    """
    several = len(spec.outputs) > 1
    return several and spec.derive and not (spec.kept or spec.surrogate or spec.dirty)


def _stated(spec: OpSpec) -> Iterator[Formula]:
    yield from (formula for _, formula in spec.gradients)
    if spec.backward is not None:
        yield spec.backward
