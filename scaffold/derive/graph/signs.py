"""Certain signs of values: of tensors and of Python numbers, as far as the graph proves them.

In: an op. Out: whether all its numbers are nonnegative, positive or nonpositive. Invariant: a True holds in every
call; an unknown sign is False.

For formulas and advice that depend on a sign, and to find gradients that may be infinite.
An op is one application of a primitive in the graph; `facts` are those of the primitive in the table.
"""

from collections.abc import Collection

from scaffold.derive.graph.op import Op, number
from scaffold.primitives.calls import has_shape


def is_nonnegative(op: Op, bounded: Collection[str] = ()) -> bool:
    """Return whether no number of a value is below zero; `bounded` are names of inputs known not to be, as indices."""
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
        exponent = number(op.args[1])
        return isinstance(exponent, int | float) and exponent % 2 == 0
    if op.rule in ("mul", "div"):
        one, two = op.args
        # A square, or two values of which none is negative.
        return one is two or all(is_nonnegative(item, bounded) for item in op.args)
    # `moves`: its numbers are those of its argument, in other places.
    if op.rule in ("sum", "mean") or "moves" in op.facts.flags:
        return is_nonnegative(op.args[0], bounded)
    positions = "positions" in op.facts.flags or counts_up(op)
    return positions or op.facts.sign == "nonnegative"


def is_positive(op: Op) -> bool:
    """Return whether every number is above zero, ignoring underflow: `x.exp()`, `x * x + 1`.

    A Python value, as `eps` or a size, is assumed to be: the forward divides by it or adds it for that.
    """
    value = number(op)
    if value is not None:
        return isinstance(value, int | float) and value > 0
    # Of a complex x, `x.exp()` is not.
    if not op.is_tensor or op.facts.is_above_zero:
        return op.kind != "complex"
    if op.facts.operator == "+":
        return any(map(is_positive, op.args)) and all(
            is_positive(item) or is_nonnegative(item) for item in op.args
        )
    if op.facts.clamps_below:
        # `x.clamp(min)`: the second argument is the lower bound.
        return any(map(is_positive, op.args[1:2]))
    tensors = [item for item in op.args if item.is_tensor]
    return op.facts.stays_positive and all(map(is_positive, tensors))


def is_nonpositive(op: Op) -> bool:
    """Return whether no number is above zero: `-x.abs()`, `-(x * x)`, `-x * x`."""
    if op.rule == "neg":
        return is_nonnegative(op.args[0])
    if op.rule in ("mul", "div"):
        one, two = op.args
        return (
            # `-x * x`, of any sign of x.
            (one.rule == "neg" and one.args[0] is two)
            or (is_nonpositive(one) and is_nonnegative(two))
            or (is_nonnegative(one) and is_nonpositive(two))
        )
    value = number(op)
    known = isinstance(value, int | float) and value <= 0
    return known or op.facts.sign == "nonpositive"


def is_singular(op: Op) -> bool:
    """Return whether an op's gradient may be infinite or divide by zero at an argument of zero: `x.sqrt()`, `1 / x`.

    Not for `(x * x + eps).sqrt()`, whose argument is positive. 0 times such a gradient is NaN.
    """
    if not op.active or not op.is_tensor:
        return False
    if op.facts.operator == "/":
        return op.args[1].is_tensor and not is_positive(op.args[1])
    if op.facts.operator == "**":
        exponent = number(op.args[1])
        # The gradient of `x**p` has `x**(p - 1)`; that of `x**0` is 0.
        root = isinstance(exponent, int | float) and exponent < 1 and exponent != 0
        return root and not is_positive(op.args[0])
    return op.facts.singular == "zero" and not is_positive(op.args[0])


def counts_up(op: Op) -> bool:
    """Return whether it is `torch.arange(n)`, of 0, 1, 2 and so on: no number is negative."""
    node = op.template.node if op.rule == "call" else None
    if node is None or len(node.args) - len(node.keywords) != 2:
        return False  # the function, and one positional argument
    return has_shape(node.args[0].label, "range")
