"""The reference that generated tests compare with: the forward in plain PyTorch.

In: an `OpSpec` and its `Derivation`. Out: the body of a function of the op's inputs, or None.
Invariant: autograd can differentiate it, so nothing that leaves PyTorch is a reference.
"""

from scaffold.derive import Derivation, live_forward
from scaffold.formula import emit, emit_lines
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
    if forward is None:
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
