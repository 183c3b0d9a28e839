"""Autograd of one call: the fallback for what has no formula.

In: a call of the forward and the cotangent of its result. Out: pairs of an argument and its gradient. Invariant: a tensor that
PyTorch does not differentiate the call by is left alone.
"""

from collections.abc import Collection, Iterator

from scaffold.derive.vjp.apply import Applier
from scaffold.derive.vjp.ir import Op, tensors
from scaffold.formula import Node, keywords

# What PyTorch raises for where it requires a gradient: the position and the name.
STATISTICS = ((1, "running_mean"), (2, "running_var"))
REFUSED = {
    "batch_norm": STATISTICS,
    "instance_norm": STATISTICS,
    "binary_cross_entropy": ((2, "weight"),),
    "cross_entropy": ((2, "weight"),),
    "nll_loss": ((2, "weight"),),
    "multi_margin_loss": ((4, "weight"),),
    "pinv": ((1, "rtol"), (2, "atol")),
}


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
    """The tensors of a call that get no gradient."""
    if op.rule == "call":
        assert isinstance(op.data, Node)
        classes = any(arg.kind == "int" for arg in op.args)
        return {op.args[at] for at in _refused(op.data, classes)}
    rule = applier.table.of_op(op.rule)
    if rule is None:
        return set()
    pairs = zip(rule.parameters, op.args, strict=True)
    return {arg for item, arg in pairs if item.name in rule.facts.nondiff}


def _refused(call: Node, classes: bool) -> Iterator[int]:
    """The tensors, by number, by which PyTorch does not differentiate a call without a rule."""
    if call.kind != "call" or call.args[0].label == "cross_entropy" and not classes:
        return  # of probabilities all is differentiable
    callee, *args = call.args
    named = keywords(call)
    for at, name in REFUSED.get(callee.label, ()):
        plain = args[: len(args) - len(named)]
        value = named.get(name) or (plain[at] if at < len(plain) else None)
        if value is not None and value.label.startswith("<:"):
            yield int(value.label[2:-1])
