"""Autograd of one call: the fallback for what has no formula.

In: a call of the forward and the cotangent of its result. Out: pairs of an argument and its gradient. Invariant: a tensor that
PyTorch does not differentiate the call by is left alone.
"""

from collections.abc import Collection

from scaffold.derive.vjp.apply import Applier, constant
from scaffold.derive.vjp.ir import Op, tensors
from scaffold.derive.vjp.written import dotted
from scaffold.formula import Node, keywords


def pulled_back(
    applier: Applier, op: Op, g: Op, optional: Collection[Op]
) -> list[tuple[Op, Op]]:
    """The gradients of a call, apart for each argument that may be absent."""
    program, left = applier.program, _without_gradient(applier, op)
    active = (arg for arg in tensors(op.args) if arg.active and arg not in left)
    args = list(dict.fromkeys(active))
    sure = tuple(arg for arg in args if arg not in optional)
    several = [sure, *((arg,) for arg in args if arg in optional)]
    pairs = []
    for some in filter(None, several):
        data = (op, some)
        pulled = program.op("vjp", (g, *op.args), data, kind="group")
        for at, arg in enumerate(some):
            item = program.op("item", (pulled,), at, kind=arg.kind, shape=arg.shape)
            pairs.append((arg, item))
    return pairs


def _without_gradient(applier: Applier, op: Op) -> set[Op]:
    """The tensors that get no gradient, as a rule for this call or another of its name says."""
    if op.rule == "call":
        return _of_spelling(applier, op)
    rule = applier.table.rule(op.rule)
    pairs = zip(rule.parameters, op.args, strict=True)
    return {arg for item, arg in pairs if item.name in rule.nondiff}


def _of_spelling(applier: Applier, op: Op) -> set[Op]:
    node = op.data
    if not isinstance(node, Node) or node.kind != "call":
        return set()
    callee, *args = node.args
    name = dotted(callee) or ""
    named = keywords(node)
    plain = args[: len(args) - len(named)]

    def value(item: Node) -> Op:
        if item.kind == "name" and item.label.startswith("<"):
            return op.args[int(item.label[1:-1])]
        return constant(applier.program, item) or applier.program.static(item)

    positional = [value(item) for item in plain]
    keyed = {key: value(item) for key, item in named.items()}
    for found in applier.table.find("function", name):
        bound = applier.bound(found, positional, keyed)
        if bound is not None:
            return {bound[item] for item in found.rule.nondiff if item in bound}
    return set()
