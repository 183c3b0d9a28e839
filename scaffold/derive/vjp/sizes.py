"""Sizes by their names.

In: a shape and a dim. Out: a static op. Invariant: a size that has a name, or an expression of its own, is that.
"""

from scaffold.derive.vjp.ir import Op, Program
from scaffold.derive.vjp.shapes import Shape, position
from scaffold.formula import Node


def size_at(program: Program, shape: Shape, dim: int) -> Op:
    """The size of a shape at a dim."""
    at = position(shape, dim)
    if at is not None and shape.dims is not None:
        size = shape.dims[at]
        if isinstance(size, int):
            return program.const(size)
        if size in program.sizes:
            return program.sizes[size]
        if not size.startswith("?"):
            return program.op("size", (), size)
    return program.op("size", (program.const(dim),), shape)


def is_length(op: Op) -> bool:
    """Whether a Python value is a size, or is computed of one, so that it may be 0."""
    if op.rule in ("size", "count", "ratio"):
        return True
    return isinstance(op.data, Node) and any(
        node.kind == "name" and node.label.startswith("<") for node in op.data.walk()
    )
