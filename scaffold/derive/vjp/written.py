"""Python values of a program as expressions.

In: static ops. Out: nodes. Invariant: a size is a placeholder, `<serial>`, until the printer knows where it can be read.
"""

import math

from scaffold.derive.vjp.ir import Op, Program
from scaffold.formula import Node

NO_SHAPE = "it needs a shape that no input tells; declare the dims of the inputs"


class UnsupportedError(Exception):
    """The forward holds something that cannot be differentiated piece by piece."""


def static_node(program: Program, op: Op) -> Node:
    """The expression of a static value."""
    graph = program.graph
    if op.rule == "static" and isinstance(op.data, Node):
        return op.data
    if op.rule == "const":
        return number_node(program, op.value)
    if op.rule == "list":
        return graph.node(
            "tuple", "", tuple(static_node(program, arg) for arg in op.args)
        )
    if op.rule == "starred":
        return graph.node("starred", "", (static_node(program, op.args[0]),))
    return graph.name(f"<{op.serial}>")  # the printer knows where a size can be read


def number_node(program: Program, value: object) -> Node:
    """A literal; a negative number is a minus and a number."""
    graph = program.graph
    if isinstance(value, float) and not math.isfinite(value):
        word = graph.node(
            "attribute", "nan" if math.isnan(value) else "inf", (graph.name("math"),)
        )
        return graph.node("unary", "-", (word,)) if value < 0 else word
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        return graph.node("unary", "-", (graph.constant(_short(-value)),))
    return graph.constant(_short(value))


def _short(value: object) -> str:
    """A literal as one writes it: `1e-6` rather than `1e-06`."""
    if not isinstance(value, float):
        return repr(value)
    digits, mark, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent)}" if mark else digits


def dotted(node: Node) -> str | None:
    """The path that a callee is, if it is one."""
    if node.kind == "name":
        return node.label
    if node.kind == "attribute":
        inner = dotted(node.args[0])
        return f"{inner}.{node.label}" if inner else None
    return None
