"""Metadata of tensors: shape, dtype, device or presence, as the user's text reads it, and as the backward reads it from ctx.

In: expressions that read metadata. Out: the tensor, and the same expressions over `ctx.x_shape`. Invariant: the
rewritten expression has the value of the old one.

A backward that reads only `x.shape` need not save x: forward puts the shape on ctx. `saving` decides so, and rewrites
by `kept_form`. Words: a facet is one piece of metadata ("shape", "presence", "length"); a variadic input is a list of
any number of tensors, so ctx has a list of its facets.
"""

from collections.abc import Callable

from scaffold.formula import Graph, Node, Read
from scaffold.primitives.calls import by_shape

TYPES = {"shape": "torch.Size", "dtype": "torch.dtype", "device": "torch.device"}
TYPES |= {"ndim": "int", "presence": "bool"}  # in Python, of each facet


NameOf = Callable[[str, str], str]  # input and facet -> the name on ctx


def kept_name(name: str, facet: str) -> str:
    """Return the attribute of ctx for a facet of an input: x, "shape" -> `x_shape`; bias, "presence" -> `has_bias`.

    Also tensors, "length" -> `tensors_count`.
    """
    special = {"presence": f"has_{name}", "length": f"{name}_count"}
    return special.get(facet, f"{name}_{facet}")


def kept_form(
    graph: Graph, node: Node, read: Read, name_of: NameOf, gradient: str | None
) -> Node:
    """Return an expression about an input's metadata over ctx: `x.shape[0]` -> `ctx.x_shape[0]`, `bias is None` -> `not ctx.has_bias`.

    `node` is the expression, `read` says which input and facets it reads, `name_of` names a facet's attribute of ctx.
    Zeros and ones (`zeros_like(x)`) are made from `gradient`, the name of an output's gradient, for its device and
    vmap levels; without one by torch, in the saved dtype.
    """

    def facet(name: str) -> Node:
        """Return `ctx.x_shape` for "shape", or `ctx.tensors_shape[i]` for the element of a variadic input."""
        on_ctx = graph.node("attribute", name_of(read.name, name), (graph.name("ctx"),))
        return _element(graph, on_ctx, node) if read.element else on_ctx

    first = facet(read.facets[0])
    match node:
        case Node("compare", "is"):  # `bias is None`; `is not` is `ctx.has_bias` itself
            return graph.node("unary", "not", (first,))
        case Node("call", _, (Node("attribute", "numel" | "nelement"), *_)):
            return _call(graph, graph.node("attribute", "numel", (first,)))
        case Node("call", _, (Node("attribute", "size"), dim)):  # `x.size(0)`
            return graph.node("subscript", "", (first, dim))
        case Node(
            "call", _, (Node("attribute", label, (receiver,)), _)
        ) if shape_method := by_shape(label, creates=False):
            # `y.expand_as(x)`: `shape_method` is "expand".
            method = graph.node("attribute", shape_method, (receiver,))
            return _call(graph, method, first)
        case Node("call", _, (Node("attribute", label), _)) if kind := by_shape(
            label, creates=True
        ):
            # `torch.zeros_like(x)`: `kind` is "zeros".
            owner = ("torch", kind) if gradient is None else (gradient, f"new_{kind}")
            maker = graph.node("attribute", owner[1], (graph.name(owner[0]),))
            args = (maker, first, facet("dtype"), facet("device"))
            return graph.node("call", "", args, ("dtype", "device"))
    return first


def _element(graph: Graph, on_ctx: Node, node: Node) -> Node:
    """Return the entry of a list on ctx for the element of a variadic input `node` reads: `ctx.tensors_shape[i]` for `tensors[i].shape`."""
    for item in node.walk():
        if item.kind == "subscript" and item.args[0].kind == "name":
            return graph.node("subscript", "", (on_ctx, item.args[1]))
    raise AssertionError("an element is read through a subscript")


def _call(graph: Graph, callee: Node, *args: Node) -> Node:
    return graph.node("call", "", (callee, *args))


def shape_read(node: Node) -> Node | None:
    """Return `x` for `x.shape` or `x.size()`, so both spellings are treated as one; None for others."""
    match node:
        case Node("attribute", "shape", (x,)):
            return x
        case Node("call", _, (Node("attribute", "size", (x,)),)):
            return x
    return None


def size_read(node: Node) -> tuple[Node, Node] | None:
    """Return `x` and `dim` for `x.shape[dim]` or `x.size(dim)`, two spellings of one; None for others."""
    match node:
        case Node("call", _, (Node("attribute", "size", (x,)), dim)):
            return x, dim
        case Node("subscript", _, (of_all, dim)):
            tensor = shape_read(of_all)
            return None if tensor is None else (tensor, dim)
    return None
