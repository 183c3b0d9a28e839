"""A forward that stays as the user wrote it, as lines of code.

In: an `OpSpec` and its kept forward. Out: the lines of the body of a function. Invariant: the user's words, but for a name that an
untyped result gets.
"""

from scaffold.derive import fresh
from scaffold.formula import Kept, Node, written
from scaffold.render.typing import is_typed, typed_names
from scaffold.spec import OpSpec


def kept_lines(spec: OpSpec, kept: Kept, tensors: frozenset[str]) -> list[str]:
    """The body, whose result has a type that a checker knows; it knows those of `tensors`."""
    last = kept.returned[-1]
    ends = [f"return {kept.value}"]
    several = len(spec.outputs) > 1 or spec.outputs[0].variadic
    if not several and not is_typed(last, typed_names(kept.statements, tensors)):
        taken = {name for item in kept.statements for name in written(item)}
        name = fresh(spec.outputs[0].name, taken | {item.name for item in spec.inputs})
        ignored = "  # type: ignore[assignment]" if _is_sum(last) else ""
        ends = [f"{name}: Tensor = {kept.value}{ignored}", f"return {name}"]
    return "\n".join([kept.lines, *ends] if kept.lines else ends).split("\n")


def _is_sum(node: Node) -> bool:
    """Whether it is a sum by Python, which of no tensors at all is the number 0."""
    match node:
        case Node("call", _, (Node("name", "sum"), *_)):
            return True
    return False
