"""Functions of several tensors at once: Python's own (`abs(x)`, `sum(parts)`), and `torch.broadcast_tensors`.

In: a name and arguments. Out: an op, or None where Python decides on data, or does what no primitive does. Invariant: `sum` adds up
what it iterates over, which of a tensor is its first dim.
"""

from collections.abc import Sequence

from scaffold.derive.vjp.apply import Applier
from scaffold.derive.vjp.ir import Op
from scaffold.derive.vjp.shapes import broadcast

LIKE_METHODS = frozenset({"abs", "pow"})


def of_builtin(applier: Applier, name: str, values: Sequence[Op]) -> Op | None:
    """What a builtin function makes of tensors."""
    if name in LIKE_METHODS:
        bound = applier.found("method", name, values)
        return bound and applier.apply(bound.rule, bound.args)
    if name == "sum" and len(values) == 1:
        return _sum(applier, values[0])
    return None


def broadcast_together(applier: Applier, values: Sequence[Op]) -> Op:
    """Each of the tensors in the shape that they have together."""
    program = applier.program
    whole = broadcast(*(value.shape for value in values))
    shape = program.op("shape", (), whole)
    return program.op(
        "list",
        [
            value if value.shape == whole else applier.named("expand", value, shape)
            for value in values
        ],
    )


def _sum(applier: Applier, items: Op) -> Op | None:
    if items.is_tensor:
        return applier.named("sum", items, applier.program.const(0))
    if items.rule == "unbind":
        return applier.named("sum", *items.args)
    if items.rule != "list" or not items.args:
        return None
    first, *rest = items.args
    for item in rest:
        first = applier.named("add", first, item)
    return first
