"""A forward that stays as the user wrote it, and which forwards cannot: those that change an input, or take more than tensors.

In: an `OpSpec` and its kept forward. Out: a `Forward` whose results are that body, or an error. Invariant: it changes no input, and
PyTorch can call it with tensors alone, as autograd of it needs.
"""

from scaffold.derive.aliasing import Change, Trace
from scaffold.derive.derivation import Forward
from scaffold.errors import ScaffoldError
from scaffold.formula import Formula, Kept, emit, same_tensor, sharing, written
from scaffold.spec import OpSpec


def kept_forward(spec: OpSpec, formula: Formula, kept: Kept) -> Forward:
    """The forward of an op as it stands."""
    assert formula.result is not None  # the body
    if spec.style == "combined" and not spec.style_is_free:
        message = f"{kept.reason}, which a combined forward cannot hold"
        hint = "leave out the style, so that forward is a function of its inputs"
        raise ScaffoldError(message, kept.location, hint)
    _refuse_changes(spec, kept)
    _refuse_inputs(spec, kept)
    return Forward((), (formula.result,) * len(spec.outputs), (), {}, {})


def writes_in_place(kept: Kept) -> bool:
    """Whether it changes a tensor, or a number, that has a name."""
    return bool(_changes(kept))


def _refuse_changes(spec: OpSpec, kept: Kept) -> None:
    tensors = {item.name for item in spec.tensors} - set(spec.dirty)
    changed = frozenset().union(*(item.outside for item in _changes(kept)))
    for name in sorted(changed & tensors):
        message = f"the forward changes its input '{name}' in place"
        raise ScaffoldError(message, kept.location, f"work on {name}.clone()")


def _refuse_inputs(spec: OpSpec, kept: Kept) -> None:
    """PyTorch takes no input that is saved and returned as it is."""
    assigned = written(*kept.statements)
    tensors = {item.name for item in spec.tensors} - assigned - set(spec.dirty)
    for value in kept.returned:
        values = value.args if value.kind == "tuple" else (value,)
        for part in values:
            for name in sorted(same_tensor(part) & tensors):
                how = "returns" if part.kind == "name" else "may return"
                message = f"the forward {how} its input '{name}' itself"
                text = emit(part)
                if part.kind not in ("name", "call", "attribute", "subscript"):
                    text = f"({text})"
                hint = f"return a tensor of its own: {text}.clone()"
                raise ScaffoldError(message, kept.location, hint)


def _changes(kept: Kept) -> list[Change]:
    return Trace(kept.statements, sharing).changes
