"""Reads of a tensor's metadata: its shape, dtype, device, or its presence.

In: expressions. Out: the names read as data, or only for metadata; and the same expressions over `ctx.x_shape`.
Invariant: the rewritten expression has the value of the old one.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from scaffold.formula import Graph, Node
from scaffold.primitives.calls import by_shape
from scaffold.primitives.python_values import METADATA, METADATA_METHODS

FORMS = frozenset({"attribute", "call", "compare"})  # nodes that read it
TYPES = {"shape": "torch.Size", "dtype": "torch.dtype", "device": "torch.device"}
TYPES |= {"ndim": "int", "presence": "bool"}  # in Python, of each facet


class Read(NamedTuple):
    """One read of a name: its facets (`shape`, `dtype`, `device`, `presence`), none for data."""

    name: str
    facets: tuple[str, ...] = ()
    element: bool = False  # of an element of a variadic input: `tensors[i].shape`


@lru_cache(maxsize=8192)  # a cache, since the passes repeat this for each expression
def reads(node: Node) -> tuple[Read, ...]:
    """Return every read of a name in an expression; a shared part counts once."""
    found, seen, waiting = list[Read](), set[int](), [node]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        read = metadata_read(item)
        if read is not None:
            found.append(read)
            waiting += _besides(item)
            continue
        if item.kind == "name":
            found.append(Read(item.label))
        waiting += item.args
    return tuple(found)


def metadata_read(node: Node) -> Read | None:
    """Return the read of a node of a metadata form, which needs no data; None for other nodes."""
    if node.kind not in FORMS:  # before patterns, since most nodes are none
        return None
    match node:
        case Node("attribute", label, (value,)) if label in METADATA:
            return _of(value, label)
        case Node("call", _, (Node("attribute", label, (value,)), *_)) if (
            label in METADATA_METHODS
        ):
            return _of(value, METADATA_METHODS[label])
        case Node("call", _, (Node("attribute", label), value)) if by_shape(
            label, creates=False
        ):
            return _of(value, "shape")
        case Node(
            "call", _, (Node("attribute", label, (Node("name", "torch"),)), value)
        ) if by_shape(label, creates=True):
            return _of(value, "shape", "dtype", "device")
        case Node("call", _, (Node("name", "len"), Node("name", name))):
            return Read(name, ("length",))
        case Node(
            "compare", "is" | "is not", (Node("name", name), Node("constant", "None"))
        ):
            return Read(name, ("presence",))
    return None


def _of(value: Node, *facets: str) -> Read | None:
    match value:
        case Node("name", name):
            return Read(name, facets)
        case Node("subscript", _, (Node("name", name), _)):
            return Read(name, facets, element=True)
    return None


def _besides(node: Node) -> tuple[Node, ...]:
    """Return the parts of a metadata read that are read as data: arguments, an index, a receiver."""
    match node:
        case Node("attribute", _, (Node("subscript", _, (_, index)),)):
            return (index,)
        case Node(
            "call", _, (Node("attribute", label, (receiver,)), value)
        ) if by_shape(label, creates=False):
            return (receiver, *value.args[1:])
        case Node("call", _, (Node("attribute", label), value)) if by_shape(
            label, creates=True
        ):
            return value.args[1:]
        case Node(
            "call",
            _,
            (Node("attribute", _, (Node("subscript", _, (_, index)),)), *rest),
        ):
            return (index, *rest)
        case Node("call", _, (Node("attribute"), *rest)):
            return tuple(rest)
    return ()


NameOf = Callable[[str, str], str]  # input and facet -> the name on ctx


def kept_name(name: str, facet: str) -> str:
    """Return the usual name on ctx: `x_shape`, `has_bias`, `tensors_count`."""
    special = {"presence": f"has_{name}", "length": f"{name}_count"}
    return special.get(facet, f"{name}_{facet}")


def kept_form(
    graph: Graph, node: Node, read: Read, name_of: NameOf, gradient: str | None
) -> Node:
    """Return the same value read from ctx; zeros and ones start from an output's gradient, for its device and vmap levels."""

    def facet(name: str) -> Node:
        """Return `ctx.x_shape`, or `ctx.tensors_shape[i]` for the element of a variadic input."""
        on_ctx = graph.node("attribute", name_of(read.name, name), (graph.name("ctx"),))
        return _element(graph, on_ctx, node) if read.element else on_ctx

    first = facet(read.facets[0])
    match node:
        case Node("compare", "is"):
            return graph.node("unary", "not", (first,))
        case Node("call", _, (Node("attribute", "numel" | "nelement"), *_)):
            return _call(graph, graph.node("attribute", "numel", (first,)))
        case Node("call", _, (Node("attribute", "size"), dim)):
            return graph.node("subscript", "", (first, dim))
        case Node(
            "call", _, (Node("attribute", label, (receiver,)), _)
        ) if said := by_shape(label, creates=False):
            method = graph.node("attribute", said, (receiver,))
            return _call(graph, method, first)
        case Node("call", _, (Node("attribute", label), _)) if kind := by_shape(
            label, creates=True
        ):
            owner = ("torch", kind) if gradient is None else (gradient, f"new_{kind}")
            maker = graph.node("attribute", owner[1], (graph.name(owner[0]),))
            args = (maker, first, facet("dtype"), facet("device"))
            return graph.node("call", "", args, ("dtype", "device"))
    return first


def _element(graph: Graph, on_ctx: Node, node: Node) -> Node:
    """Return the entry of a list on ctx for the element read by a node."""
    for item in node.walk():
        if item.kind == "subscript" and item.args[0].kind == "name":
            return graph.node("subscript", "", (on_ctx, item.args[1]))
    raise AssertionError("an element is read through a subscript")


def _call(graph: Graph, callee: Node, *args: Node) -> Node:
    return graph.node("call", "", (callee, *args))
