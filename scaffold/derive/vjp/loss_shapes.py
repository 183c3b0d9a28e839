"""The shapes of losses: a scalar, or one loss for each element or each example.

In: the arguments of a call by name. Out: the shape of its result, or None where that is not known.
"""

from collections.abc import Mapping

from scaffold.derive.vjp import shapes
from scaffold.derive.vjp.ir import Op, Program, literal, tensors
from scaffold.derive.vjp.shapes import SCALAR, Shape


def loss_shape(program: Program, args: Mapping[str, Op]) -> Shape | None:
    """A scalar, or one loss for each element."""
    reduction = literal(args["reduction"])
    if reduction in ("mean", "sum", "batchmean"):
        return SCALAR
    if reduction != "none" or "weight" in args:
        return None
    return shapes.broadcast(*(item.shape for item in tensors(args.values())))


def class_loss(program: Program, args: Mapping[str, Op]) -> Shape | None:
    """A scalar, or one loss for each example."""
    if literal(args["reduction"]) in ("mean", "sum"):
        return SCALAR
    x, target = list(tensors(args.values()))[:2]
    classes = x.shape.rank is not None and target.shape.rank == x.shape.rank - 1
    return target.shape if classes and literal(args["reduction"]) == "none" else None
