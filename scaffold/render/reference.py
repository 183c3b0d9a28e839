"""The reference that generated tests compare with: the forward in plain PyTorch.

In: an `OpSpec` and its `Derivation`. Out: the body of a function of the op's inputs, or None.
Invariant: autograd can differentiate it, so nothing that leaves PyTorch is a reference, and nothing that autograd takes for a constant
where a rule of the user's has its gradient.
"""

from scaffold.derive import Derivation, live_forward
from scaffold.derive.activity import is_undifferentiated
from scaffold.derive.derivation import Forward
from scaffold.derive.graph.static_values import dotted
from scaffold.derive.rules.tables import table_of
from scaffold.formula import emit, emit_lines, expressions
from scaffold.render.kept import kept_lines
from scaffold.render.typing import annotated_body
from scaffold.spec import OpSpec


def reference_lines(spec: OpSpec, derivation: Derivation) -> tuple[str, ...] | None:
    """Statements and a return; for a surrogate, those of the function whose derivative it takes."""
    if spec.surrogate is not None:
        stated = spec.surrogate.forward
        forward = live_forward(spec, stated) if stated else None
    else:
        forward = live_forward(spec, spec.forward) if spec.forward else None
        if derivation.opaque and not derivation.derived:  # NumPy, or a kernel
            return None
    if forward is None or _has_a_rule_that_autograd_lacks(spec, forward):
        return None
    tensors = frozenset(item.name for item in spec.tensors)
    if spec.surrogate is None and spec.kept is not None:
        return tuple(kept_lines(spec, spec.kept, tensors))
    if len(forward.results) == 1 and not spec.outputs[0].variadic:
        name = spec.outputs[0].name
        lines, value = annotated_body(
            forward.statements, forward.results[0], tensors, name
        )
        return (*lines, f"return {value}")
    values = [emit(result) for result in forward.results]
    if spec.outputs[-1].variadic and len(values) > 1:
        values[-1] = f"*{values[-1]}"
    return (*emit_lines(forward.statements), f"return {', '.join(values)}")


def _has_a_rule_that_autograd_lacks(spec: OpSpec, forward: Forward) -> bool:
    """Whether a rule of the user's is for a function that autograd has no gradient of: `torch.special.bessel_j0`."""
    if not spec.rules:
        return False
    nodes = (node for item in forward.statements for node in expressions(item))
    called = (
        dotted(item.args[0])
        for node in (*nodes, *forward.results)
        for item in node.walk()
        if is_undifferentiated(item)
    )
    table = table_of(spec)
    return any(name and table.find("function", name) for name in called)
