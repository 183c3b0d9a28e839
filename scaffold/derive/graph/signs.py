"""The sign that the numbers of a value surely have: of tensors and of Python's numbers, as far as the graph tells it.

In: an op. Out: whether none of its numbers is below zero, or none above. Invariant: it holds in every call; what is not sure is not
said.
"""

from collections.abc import Collection

from scaffold.derive.graph.op import Op, is_number, number
from scaffold.primitives.calls import has_shape


def is_nonnegative(op: Op, bounded: Collection[str] = ()) -> bool:
    """Whether no number is below zero; of the `bounded` inputs none is."""
    if op.kind == "complex":
        return False
    if op.rule == "list":
        return all(is_nonnegative(item, bounded) for item in op.args)
    if op.rule == "input":
        return op.name in bounded
    if op.rule == "const":
        value = number(op)
        return isinstance(value, int | float) and value >= 0
    if op.facts.operator == "**":
        return any(is_number(op.args[1], even) for even in (2, 4, 6))
    if op.rule in ("mul", "div"):
        one, two = op.args
        return one is two or is_nonnegative(one, bounded) and is_nonnegative(two)
    if op.rule in ("sum", "mean") or "moves" in op.facts.flags:
        return is_nonnegative(op.args[0], bounded)
    positions = "positions" in op.facts.flags or counts_up(op)
    return positions or op.facts.sign == "nonnegative"


def is_nonpositive(op: Op) -> bool:
    """Whether no number is above zero: of `-x.abs()`, `-(x * x)`, `-x * x`."""
    if op.rule == "neg":
        return is_nonnegative(op.args[0])
    if op.rule in ("mul", "div"):
        one, two = op.args
        turned = one.rule == "neg" and one.args[0] is two and op.rule == "mul"
        return (
            turned
            or (is_nonpositive(one) and is_nonnegative(two))
            or (is_nonnegative(one) and is_nonpositive(two))
        )
    value = number(op)
    known = isinstance(value, int | float) and value <= 0
    return known or op.facts.sign == "nonpositive"


def counts_up(op: Op) -> bool:
    """Whether it is `torch.arange(n)`: 0, 1, 2, with nothing below zero."""
    node = op.template.node if op.rule == "call" else None
    if node is None or len(node.args) - len(node.keywords) != 2:
        return False  # the function, and one argument by position
    return has_shape(node.args[0].label, "range")
