"""Calls that have no rule, as templates over their tensors.

In: a call's expression. Out: the same with placeholders, `<0>`, for its tensors. Invariant: Python values stay as they are written.
"""

from collections.abc import Callable

from scaffold.derive.vjp.ir import Kind, Op
from scaffold.derive.vjp.written import UnsupportedError, dotted
from scaffold.formula import WELL_KNOWN, Graph, Node

TO_REAL = frozenset({"irfft", "irfft2", "irfftn", "hfft", "hfft2", "hfftn"})
TO_COMPLEX = frozenset({"stft", "polar", "complex", "eig", "eigvals"})


def template_of(
    graph: Graph, node: Node, tensor: Callable[[Node], Op | None]
) -> tuple[Node, list[Op]]:
    """The template of a call and its tensors, each once; `tensor` tells what an argument is."""
    if node.kind not in ("call", "binary", "attribute"):
        raise UnsupportedError(f"'{node.label}' has no rule")
    args: list[Op] = []
    method = node.args[0] if node.kind == "call" else None

    def placed(item: Node) -> Node | None:
        if item is node or item.kind in ("tuple", "list", "slice", "constant"):
            return None
        if _is_function(item):
            return item
        if item is method:
            return None
        op = tensor(item)
        if op is None:
            return item
        if op not in args:
            args.append(op)
        return graph.name(f"<{args.index(op)}>")

    return graph.rewrite(node, placed), args


def _is_function(node: Node) -> bool:
    """Whether it is a function of torch's or of Python's maths: `F.conv2d`."""
    path = dotted(node) if node.kind == "attribute" else None
    return path is not None and path.partition(".")[0] in WELL_KNOWN


def kind_of_call(node: Node, args: list[Op]) -> Kind:
    """Whether the result is complex, as far as the name tells."""
    name = (dotted(node.args[0]) or node.args[0].label) if node.args else ""
    last = name.rpartition(".")[2]
    if last in TO_REAL:
        return "real"
    if ".fft." in name or last in TO_COMPLEX:
        return "complex"
    return "complex" if any(arg.kind == "complex" for arg in args) else "real"
