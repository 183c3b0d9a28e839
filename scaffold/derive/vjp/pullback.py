"""Autograd of a function inside the backward: `pullback = torch.func.vjp(f, x)[1]`.

In: the function and its arguments as expressions. Out: a statement. Invariant: what `torch.func.vjp` returns is not unpacked, since
a type checker takes it for two values or three.
"""

from collections.abc import Iterable

from scaffold.formula import Assign, Graph, Node


def pullback_of(
    graph: Graph, name: Node, function: Node, args: Iterable[Node], comment: str
) -> Assign:
    """The statement that assigns what gives gradients for cotangents."""
    functional = graph.node("attribute", "func", (graph.name("torch"),))
    vjp = graph.node("attribute", "vjp", (functional,))
    both = graph.node("call", "", (vjp, function, *args))
    second = graph.node("subscript", "", (both, graph.constant("1")))
    return Assign(name, second, "", (comment,))
