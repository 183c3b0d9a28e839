"""The reference of generated tests: the forward in plain PyTorch.

Tests and proofs compare the op with it: outputs, and gradients by autograd. In: an `OpSpec` and its `Derivation`. Out: the body of a
function of the op's inputs, or None.
Words: a *surrogate* is a function whose gradient the op has instead of its derivative; a *stated* gradient is one by the user's formula;
a forward is *kept* if it stays as the user wrote it.
Invariant: autograd can differentiate it: it calls no code outside PyTorch, and no function with a gradient by a rule but without one by
autograd.
"""

from collections.abc import Collection, Iterator

from scaffold.derive import Derivation, live_forward
from scaffold.derive.analysis.activity import is_undifferentiated, leaves_torch
from scaffold.derive.derivation import Forward
from scaffold.formula import (
    Assign,
    Graph,
    Lines,
    Node,
    Statement,
    emit,
    emit_lines,
    sharing,
)
from scaffold.render.kept_forward import kept_lines
from scaffold.render.typing import annotated_body
from scaffold.spec import OpSpec


def reference_lines(spec: OpSpec, derivation: Derivation) -> tuple[str, ...] | None:
    """Return the reference as statements and a return; None if there is none that autograd could differentiate.

    Of an op with a surrogate, it is the function with the surrogate's gradient.
    """
    if spec.surrogate is not None:
        stated = spec.surrogate.forward
        forward = live_forward(spec, stated) if stated else None
    else:
        forward = live_forward(spec, spec.forward) if spec.forward else None
        # If gradients were derived, the rules know all calls in it.
        found = forward.expressions() if forward and not derivation.derived else ()
        if any(leaves_torch(node, spec.foreign) for node in found):
            return None  # for NumPy, or a kernel, whose calls autograd does not see
    if forward is None or _has_a_rule_that_autograd_lacks(spec, forward):
        return None
    forward = forward._replace(statements=_out_of_place(spec, forward.statements))
    tensors = frozenset(item.name for item in spec.tensors)
    # `kept` is the op's own forward, never that of a surrogate.
    if spec.surrogate is None and spec.kept is not None:
        return tuple(kept_lines(spec, spec.kept, tensors))
    if len(forward.results) == 1 and not spec.outputs[0].variadic:
        name = spec.outputs[0].name
        lines, value = annotated_body(
            forward.statements,
            forward.results[0],
            tensors,
            name,
            strict=spec.strict_types,
        )
        return (*lines, f"return {value}")
    values = [emit(result) for result in forward.results]
    if spec.outputs[-1].variadic and len(values) > 1:
        values[-1] = f"*{values[-1]}"  # alone it is the whole list to return
    return (*emit_lines(forward.statements), f"return {', '.join(values)}")


def stated_lines(spec: OpSpec, derivation: Derivation) -> tuple[str, ...]:
    """Return the body of a function of the inputs and `grad_output` that returns the gradients as the user stated them.

    A test compares backward with it at kinks, where autograd's gradient may be another one. () unless each is one expression of these, of
    an op with a single output. () also for optional or variadic inputs, changes in place, and random numbers.
    """
    formulas = dict(spec.gradients)
    known = {item.name for item in spec.inputs} | {"grad_output", "torch", "F", "math"}
    varying = any(item.optional or item.variadic for item in spec.tensors)
    if varying or spec.dirty or derivation.random or len(spec.outputs) > 1:
        return ()
    values = []
    for item in spec.differentiable:
        formula = formulas.get(item.name)
        # A formula may read a local of the forward, which this function does not have.
        if formula is None or formula.statements or not formula.names() <= known:
            return ()
        assert formula.result is not None
        values.append(f"{emit(formula.result)},")
    return (f"return ({' '.join(values)})",)


def _out_of_place(spec: OpSpec, statements: Lines) -> Lines:
    """Return the statements, with an in-place change reading its own input done out of place: `x = x.div(1 + x.abs())`.

    Autograd cannot differentiate `x.div_(1 + x.abs())`, as the saved tensor is overwritten.
    """
    if not spec.dirty or spec.forward is None:
        return statements
    # Imported late: the engine takes a while, and an op without such inputs does not need it.
    from scaffold.derive.lower.mutation import changes_of_a_name

    assigned = [item for item in statements if isinstance(item, Assign)]
    shared = {
        name
        for item in assigned
        # A bare call, `x.mul_(2)`, gives the memory no other name.
        if item.target.kind != "absent"
        for name in sharing(item.value)
    }
    if len(assigned) < len(statements):  # branches: left as they are
        return statements
    graph, found = spec.forward.graph, list[Statement]()
    for item in assigned:
        calls, made = changes_of_a_name(item), item  # its in-place calls
        read = [node.label for node in _names(item.value)]
        for name in spec.dirty if calls else ():
            # Read beside the change, and no other name shares its memory.
            if read.count(name) > 1 and name not in shared:
                target = graph.node("name", name)
                made = Assign(target, _not_in_place(graph, item.value, calls))
        found.append(made)
    return tuple(found)


def _names(node: Node) -> Iterator[Node]:
    """Yield each occurrence of a name in an expression."""
    if node.kind == "name":
        yield node
    for arg in node.args:
        yield from _names(arg)


def _not_in_place(graph: Graph, node: Node, calls: Collection[Node]) -> Node:
    """Return an expression with each in-place call among `calls` done out of place."""
    from scaffold.derive.lower.mutation import made_anew

    found = (made_anew(graph, node) if node in calls else None) or node
    args = tuple(_not_in_place(graph, arg, calls) for arg in found.args)
    return graph.node(found.kind, found.label, args, found.keywords) if args else found


def _has_a_rule_that_autograd_lacks(spec: OpSpec, forward: Forward) -> bool:
    """Return whether a called function has a rule but no gradient by autograd: `torch.special.bessel_j0`, a user's kernel.

    Then there is no reference: autograd could not differentiate it.
    """
    called = [
        item.args[0]
        for node in forward.expressions()
        for item in node.walk()
        # A table of the user's may say so of any function.
        if item.kind == "call" and (spec.rules or is_undifferentiated(item))
    ]
    if not called:
        return False
    from scaffold.derive.graph.static_values import dotted  # the engine
    from scaffold.derive.rules.team_tables import table_of

    table = table_of(spec)
    return any(
        found.rule.undifferentiated
        for callee in called
        for found in table.find("function", dotted(callee) or "")
    )
