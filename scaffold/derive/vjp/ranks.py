"""Code for tensors whose rank nobody declared.

In: a value, and the operand on whose rank it depends. Out: an op that is right for any. Invariant: where the rank is known, or is
known to be large enough, nothing is asked of it.
"""

from typing import Protocol

from scaffold.derive.vjp import shapes
from scaffold.derive.vjp.infer import dims_of
from scaffold.derive.vjp.ir import UNKNOWN, Op, Program, literal
from scaffold.derive.vjp.shapes import SCALAR, Shape
from scaffold.derive.vjp.written import static_node


class Make(Protocol):
    """What makes ops."""

    program: Program

    def __call__(self, name: str, *args: Op) -> Op: ...


def unless_vector(program: Program, value: Op, other: Op, operand: Op) -> Op:
    """A value, and another where an operand of a product is a vector."""
    args = (value, other, program.op("rank", (), operand.shape))
    shape = shapes.unknown("matrix", value.shape, other.shape, operand.shape)
    return program.op("unless_vector", args, kind=value.kind, shape=shape)


def as_matrix(make: Make, value: Op, operand: Op, dim: int) -> Op:
    """A value with a dim more where an operand of a product is a vector."""
    if operand.shape.least > 1:
        return value
    program = make.program
    wide = make("unsqueeze", value, program.const(dim))
    if operand.shape.rank == 1:
        return wide
    return unless_vector(program, value, wide, operand)


def restored(make: Make, g: Op, x: Op, dim: Op) -> Op:
    """The cotangent of a reduction with the dim that it took; a scalar has none, whatever dim is named."""
    wide = make("unsqueeze", g, dim)
    if wide.rule == "neg" and g.rule == "neg":
        return make("neg", restored(make, g.args[0], x, dim))
    if wide.rule != "unsqueeze" or not may_be_scalar(x.shape, dim):
        return wide
    program = make.program
    args = (wide, g, program.op("rank", (), x.shape))
    shape = shapes.reduced(x.shape, dims_of(dim), True)
    return program.op("unless_scalar", args, kind=g.kind, shape=shape)


def length(program: Program, size: Op, x: Op, dim: Op) -> Op:
    """The size along a dim; a scalar is one element, whatever dim is named."""
    if not may_be_scalar(x.shape, dim):
        return size
    ndim = program.op("rank", (), x.shape)
    parts = (static_node(program, op) for op in (ndim, size, program.const(1)))
    return program.static(program.graph.node("conditional", "", tuple(parts)))


def may_be_scalar(shape: Shape, dim: Op) -> bool:
    """Whether an input as nobody declared it, or a value of its shape, may be without dims."""
    return literal(dim) in (0, -1, UNKNOWN) and shape != SCALAR and _is_open(shape)


def _is_open(shape: Shape) -> bool:
    if shape.dims is not None:
        return shape.lead is not None and len(shape.dims) == 1
    match shape.key:
        case ("input", _):
            return True
        case ("broadcast", tuple() as parts):
            return all(map(_is_open, parts))
        case ("drop", Shape() as base, tuple() as dims):
            return base.least <= len(dims) and _is_open(base)
        case ("keep", Shape() as base, tuple()):
            return base.least < 1 and _is_open(base)
    return False
