"""A forward that stays as the user wrote it: what may not be in it, and what PyTorch can make of it.

In: an `OpSpec` and its kept forward. Out: a `Forward` whose results are that body, or an error. Invariant: it changes no input, and
PyTorch can call it with tensors alone, as autograd of it needs.
"""

from collections.abc import Iterator

from scaffold.derive.activity import callee
from scaffold.derive.filling import FACTORIES
from scaffold.derive.kinds import Kinds
from scaffold.derive.memory import Change, Trace
from scaffold.derive.model import Forward
from scaffold.derive.selecting import selects_by_data
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    Formula,
    If,
    Kept,
    Node,
    Statement,
    emit,
    expressions,
    is_check,
    same_tensor,
    sharing,
    written,
)
from scaffold.spec import OpSpec

READ = frozenset({"bool", "float", "int", "range"})  # Python's own, which want numbers


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


def is_steady(spec: OpSpec) -> bool:
    """Whether the same steps are run for any data, and no batch is written into what has none.

    Else neither vmap nor a compiler can run the forward for several samples, or once for all.
    """
    formula = spec.forward
    if formula is None:
        return True
    kept = formula.kept
    statements = kept.statements if kept else formula.statements
    plain = [item.name for item in spec.attributes]
    several = [item.name for item in spec.tensors if item.variadic]
    kinds = Kinds(plain, several).after(statements)
    values = [node for item in statements for node in expressions(item)]
    if kept is None and formula.result is not None:
        values.append(formula.result)
    nodes = [inner for node in values for inner in node.walk()]
    tests = [test for item in statements for test in _tests(item)]
    if any(kinds.of(test) == "tensor" for test in tests):
        return False
    masks = [item.name for item in spec.tensors if item.dtype == "bool"]
    if selects_by_data(statements, values, masks):
        return False
    if any(_reads_data(node, kinds) for node in nodes):
        return False
    made = any(callee(node) in FACTORIES for node in nodes)
    return kept is None or not (made and writes_in_place(kept))


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
        parts = value.args if value.kind == "tuple" else (value,)
        for part in parts:
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


def _tests(item: Statement) -> Iterator[Node]:
    if isinstance(item, If):
        yield item.test
        for inner in (*item.body, *item.orelse):
            yield from _tests(inner)
    elif is_check(item) and item.value.label == "assert":
        yield item.value.args[0]


def _reads_data(node: Node, kinds: Kinds) -> bool:
    """Whether a choice or a number in an expression depends on what is in a tensor."""
    if node.kind == "conditional":
        return kinds.of(node.args[0]) == "tensor"
    if node.kind != "call" or node.args[0].kind != "name":
        return False
    number = callee(node) in READ
    return number and any(kinds.of(arg) == "tensor" for arg in node.args[1:])
