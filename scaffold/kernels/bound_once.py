"""Names bound once: the op with a name of its own for each value.

In: an `OpSpec`. Out: the op with `new_x = x + residual` for `x = x + residual`, and without names of numbers and dtypes, like
`dtype = x.dtype`. Invariant: it computes the same; a formula with branches or with other targets than names is left as it is.

Words: a value is *static* if it reads attributes, and of tensors only METADATA: no number of a tensor. A whole shape, `s = x.shape`, is
static and no number, so it keeps its line. To see what is static, `sized` puts a constant for METADATA, so that the names left in a value
are of attributes and of tensors whose numbers it reads. `word` is the new name of a bound one.
"""

from dataclasses import replace

from scaffold.formula import Assign, Node, written
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec

METADATA = ("shape", "size", "dtype")  # of a tensor, rather than its values


def bound_once(spec: OpSpec) -> OpSpec:
    """Return the op with each name assigned once: `x = x + y; x = x * 2` -> `new_x = x + y; new_x_2 = new_x * 2`.

    A name of a number or dtype, `n = x.shape[-1]`, is replaced by its value. An op with branches or `+=` is returned as it is.
    """
    formula = spec.forward
    assert formula is not None and formula.result is not None
    graph, lines = formula.graph, list[Assign]()
    attributes = frozenset(item.name for item in spec.attributes)
    bound = {item.name for item in spec.inputs}
    taken = bound | formula.names() | written(*formula.statements)
    current: dict[str, Node] = {}

    def change(node: Node) -> Node | None:
        return current.get(node.label) if node.kind == "name" else None

    def sized(node: Node) -> Node | None:
        of_tensor = node.kind == "attribute" and node.label in METADATA
        return graph.constant("0") if of_tensor else None

    for line in formula.statements:
        if not isinstance(line, Assign) or line.operator:
            return spec
        value, target = graph.rewrite(line.value, change), line.target
        names = target.args if target.kind == "tuple" else (target,)
        if any(item.kind != "name" for item in names):
            return spec
        static = graph.rewrite(value, sized).names() <= attributes
        if target.kind == "name" and static and value.label != "shape":
            current[target.label] = value
            continue
        for item in names:
            word = item.label
            if word in bound:
                word = fresh(f"new_{word}", taken)
                taken.add(word)
            bound.add(word)
            current[item.label] = graph.name(word)
        lines.append(Assign(graph.rewrite(target, change), value, "", line.comments))
    result = graph.rewrite(formula.result, change)
    return replace(spec, forward=replace(formula, statements=(*lines,), result=result))
