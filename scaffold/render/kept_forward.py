"""The body of a `forward` kept as the user wrote it, since the parser understands only its names.

A forward with code that the compiler cannot differentiate (a loop over data, a call into another library) stays as it is, and autograd
differentiates the whole. PyTorch accepts no input that a Function returns as it is, so such a result is copied.
In: an `OpSpec` and its kept forward. Out: the lines of a function's body. Invariant: the user's text, except for the name given to
an untyped result.
"""

from scaffold.formula import Kept, Node, Trace, assignments, emit, same_tensor, written
from scaffold.formula.names import fresh
from scaffold.render.typing import is_typed, typed_names
from scaffold.spec import OpSpec


def kept_lines(spec: OpSpec, kept: Kept, tensors: frozenset[str]) -> list[str]:
    """Return the body of a kept forward; an untyped result gets an annotated name for a type checker: `output: Tensor = sum(xs)`.

    `tensors` are the inputs that a type checker knows the types of.
    """
    last = kept.returned[-1]  # the expression of the last return
    value = _as_its_own(spec, kept)
    ends = [f"return {value}"]
    several = len(spec.outputs) > 1 or spec.outputs[0].variadic
    typed = _is_sum(last) or spec.strict_types  # the sum of no tensors is a number
    if (
        typed
        and not several
        and not is_typed(last, typed_names(kept.statements, tensors))
    ):
        taken = written(*kept.statements) | {item.name for item in spec.inputs}
        name = fresh(spec.outputs[0].name, taken)
        ignored = "  # type: ignore[assignment]" if _is_sum(last) else ""
        ends = [f"{name}: Tensor = {value}{ignored}", f"return {name}"]
    return "\n".join([kept.lines, *ends] if kept.lines else ends).split("\n")


def _as_its_own(spec: OpSpec, kept: Kept) -> str:
    """Return the returned expression, with a copy of each part that may be an input: `y, z` -> `(y.clone() if y is x else y), z`."""
    last = kept.returned[-1]
    parts = last.args if last.kind == "tuple" else (last,)
    copies = [_copy(spec, kept, part) for part in parts]
    if not any(copies):
        return kept.value
    several = len(copies) > 1
    texts = (
        f"({copy})" if copy and several else copy or emit(part)
        for copy, part in zip(copies, parts, strict=True)
    )
    # A tuple of one needs its comma: `(y,)`.
    return ", ".join(texts) + "," * (last.kind == "tuple" and not several)


def _copy(spec: OpSpec, kept: Kept, part: Node) -> str | None:
    """Return the expression of a copy of the result `part`, if it may be an input; else None.

    None too for an input by its own name, `return x`: the specification was refused for it before. If it can be only the one input `x`, a
    copy is made just then: `y.clone() if y is x else y`.
    """
    inputs = {item.name for item in spec.tensors} - set(spec.dirty)
    assigned = written(*kept.statements)
    if part.kind != "name" or part.label in inputs - assigned:
        return None
    # The inputs that the name may stand for after the statements.
    same = Trace(kept.statements, same_tensor).of(part.label) & inputs
    if not same:
        return None
    copy = f"{part.label}.clone()"
    one, *others = sorted(same)
    # An input's name that is assigned again no longer stands for the input.
    plain = not others and one not in assigned
    return f"{copy} if {part.label} is {one} else {part.label}" if plain else copy


def may_be_number(spec: OpSpec) -> bool:
    """Return whether the forward may return a number: `sum` of no tensors, or `total = 0` after no iterations of a loop."""
    if spec.kept is None:
        return False
    numbers = {
        name
        for item in assignments(spec.kept.statements)
        if item.value.kind == "constant" and not item.operator  # no `x += 1`
        for name in item.target.names()
    }
    return any(
        _is_sum(node) or node.kind == "name" and node.label in numbers
        for node in spec.kept.returned
    )


def _is_sum(node: Node) -> bool:
    """Return whether a node is a call of Python's `sum`."""
    match node:
        case Node("call", _, (Node("name", "sum"), *_)):
            return True
    return False
