"""What is known of values without computing them.

In: an op. Out: a fact about it. Invariant: true in exact arithmetic wherever the values are finite; what is not known is not true.
"""

from scaffold.derive.vjp import shapes
from scaffold.derive.vjp.infer import dims_of
from scaffold.derive.vjp.ir import Op, literal
from scaffold.derive.vjp.shapes import Dims, Shape


def along(op: Op) -> Dims | None:
    """The dims of a reduction that keeps them, where they are written out."""
    _, *rest = op.args
    if len(rest) < 2 or literal(rest[1]) is not True:
        return None
    return dims_of(rest[0]) or None


def is_constant_along(op: Op, left: Shape) -> bool:
    """Whether a value is the same along the dims that are 1 in a shape."""
    return not op.is_tensor or shapes.fits(op.shape, left)


def sums_to_zero(op: Op, dims: Dims) -> bool:
    """Whether its sum along the dims is zero: it is centred there, or a multiple of what is."""
    left = shapes.reduced(op.shape, dims, True)
    if op.rule == "neg":
        return sums_to_zero(op.args[0], dims)
    if op.rule == "sub":
        x, mean = op.args
        centred = mean.rule == "mean" and len(mean.args) == 3
        return centred and mean.args[0] is x and along(mean) == dims
    if op.rule in ("mul", "div"):
        one, two = op.args
        pairs = [(one, two)] if op.rule == "div" else [(one, two), (two, one)]
        return any(
            part.shape == op.shape
            and is_constant_along(other, left)
            and sums_to_zero(part, dims)
            for part, other in pairs
        )
    return False
