"""Autograd of a function inside the backward: `pullback = torch.func.vjp(f, x)[1]`, and what it gives for a cotangent.

In: the function and its arguments as expressions. Out: the two statements. Invariant: what `torch.func.vjp` returns is not unpacked,
since a type checker takes it for two values or three.
"""

from typing import NamedTuple

from scaffold.formula import Assign, Graph, Node


class Pullback(NamedTuple):
    """What is differentiated, and under which name."""

    name: str
    function: Node
    args: tuple[Node, ...]
    comment: str

    def lines(
        self, graph: Graph, cotangent: Node, gradients: tuple[Node, ...]
    ) -> tuple[Assign, Assign]:
        """The statements that assign the gradients."""
        functional = graph.node("attribute", "func", (graph.name("torch"),))
        vjp = graph.node("attribute", "vjp", (functional,))
        both = graph.node("call", "", (vjp, self.function, *self.args))
        second = graph.node("subscript", "", (both, graph.constant("1")))
        name = graph.name(self.name)
        value = graph.node("call", "", (name, cotangent))
        made = Assign(name, second, "", (self.comment,))
        return made, Assign(graph.node("tuple", "", gradients), value)
