"""Reads of a tensor that need no tensor: its shape, dtype, device, or whether it is there.

In: expressions. Out: which names are read as data, which only so; and the same expressions over `ctx.x_shape`.
Invariant: the rewritten expression has the value of the old one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.formula import Graph, Node

ATTRIBUTES = {"shape": "shape", "dtype": "dtype", "device": "device", "ndim": "shape"}
METHODS = {
    "size": "shape",
    "dim": "shape",
    "ndimension": "shape",
    "numel": "shape",
    "nelement": "shape",
}
LIKE_METHODS = {"expand_as": "expand", "reshape_as": "reshape", "view_as": "view"}
LIKE_FUNCTIONS = {"zeros_like": "zeros", "ones_like": "ones", "empty_like": "empty"}


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a name: the facets of it (`shape`, `dtype`, `device`, `presence`), none for data."""

    name: str
    facets: tuple[str, ...] = ()
    element: bool = False  # of an element of a variadic input: `tensors[i].shape`


def reads(node: Node) -> Iterator[Read]:
    """Every read of a name in an expression."""
    found = metadata_read(node)
    if found is None:
        if node.kind == "name":
            yield Read(node.label)
        for arg in node.args:
            yield from reads(arg)
        return
    yield found
    for arg in _besides(node):
        yield from reads(arg)


def metadata_read(node: Node) -> Read | None:
    """What the node reads, where it is one of the forms that need no data."""
    match node:
        case Node("attribute", label, (value,)) if label in ATTRIBUTES:
            return _of(value, ATTRIBUTES[label])
        case Node("call", _, (Node("attribute", label, (value,)), *_)) if (
            label in METHODS
        ):
            return _of(value, METHODS[label])
        case Node("call", _, (Node("attribute", label), value)) if (
            label in LIKE_METHODS
        ):
            return _of(value, "shape")
        case Node(
            "call", _, (Node("attribute", label, (Node("name", "torch"),)), value)
        ) if (label in LIKE_FUNCTIONS):
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
    """The parts of a metadata read that are read themselves: arguments, an index, a receiver."""
    match node:
        case Node("attribute", _, (Node("subscript", _, (_, index)),)):
            return (index,)
        case Node("call", _, (Node("attribute", label, (receiver,)), value)) if (
            label in LIKE_METHODS
        ):
            return (receiver, *value.args[1:])
        case Node("call", _, (Node("attribute", label), value)) if (
            label in LIKE_FUNCTIONS
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


def kept_name(name: str, facet: str) -> str:
    """The name on ctx: `x_shape`, `has_bias`, `tensors_count`."""
    special = {"presence": f"has_{name}", "length": f"{name}_count"}
    return special.get(facet, f"{name}_{facet}")


def facet(graph: Graph, read: Read, name: str, node: Node) -> Node:
    """`ctx.x_shape`, or `ctx.tensors_shape[i]` for the element of a variadic input."""
    kept = graph.node("attribute", kept_name(read.name, name), (graph.name("ctx"),))
    return graph.node("subscript", "", (kept, _index(node))) if read.element else kept


def _index(node: Node) -> Node:
    for item in node.walk():
        if item.kind == "subscript" and item.args[0].kind == "name":
            return item.args[1]
    raise AssertionError("an element is read through a subscript")


def kept_form(graph: Graph, node: Node, read: Read) -> Node:
    """The same value from what is on ctx."""
    presence = read.facets in (("presence",), ("length",))
    shape = (
        facet(graph, read, read.facets[0], node)
        if presence
        else facet(graph, read, "shape", node)
    )
    match node:
        case Node("compare", "is"):
            return graph.node("unary", "not", (shape,))
        case Node("attribute", "dtype" | "device" as label):
            return facet(graph, read, label, node)
        case Node("attribute", "ndim"):
            return _call(graph, graph.name("len"), shape)
        case Node("call", _, (Node("attribute", "dim" | "ndimension"), *_)):
            return _call(graph, graph.name("len"), shape)
        case Node("call", _, (Node("attribute", "numel" | "nelement"), *_)):
            return _call(graph, graph.node("attribute", "numel", (shape,)))
        case Node("call", _, (Node("attribute", "size"), dim)):
            return graph.node("subscript", "", (shape, dim))
        case Node("call", _, (Node("attribute", label, (receiver,)), _)) if (
            label in LIKE_METHODS
        ):
            method = graph.node("attribute", LIKE_METHODS[label], (receiver,))
            return _call(graph, method, shape)
        case Node("call", _, (Node("attribute", label), _)) if label in LIKE_FUNCTIONS:
            maker = graph.node(
                "attribute", LIKE_FUNCTIONS[label], (graph.name("torch"),)
            )
            rest = (
                facet(graph, read, "dtype", node),
                facet(graph, read, "device", node),
            )
            return graph.node("call", "", (maker, shape, *rest), ("dtype", "device"))
    return shape


def _call(graph: Graph, callee: Node, *args: Node) -> Node:
    return graph.node("call", "", (callee, *args))
