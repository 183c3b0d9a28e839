"""Expressions of a kept forward: those of formulas, with comprehensions and the functions that loops go over.

In: an `ast` expression. Out: its node, and what the names of its comprehensions are drawn from. Invariant: the text stands as it is,
so nothing is dropped for an absent optional.
"""

import ast
from typing import Protocol

from scaffold.formula.checks import CheckedExpressions
from scaffold.formula.expression import Guarded, Source
from scaffold.formula.graph import Assign, Graph, Node

ITERATED = frozenset({"enumerate", "reversed", "zip"})
SAME_ITEMS = frozenset({"list", "reversed", "tuple"})


class KeptSource(Source, Protocol):
    """The text that an expression stands in."""

    drawn: list[Assign]  # what names of comprehensions are

    def target(self, item: ast.expr) -> Node:
        """What is assigned."""


class KeptExpressions(CheckedExpressions):
    """Parses expressions of one kept forward into one graph."""

    source: KeptSource

    def __init__(
        self, source: KeptSource, optional: frozenset[str], tensors: frozenset[str]
    ) -> None:
        super().__init__(source, optional, tensors)
        self.source = source

    def absent_name(self, item: ast.expr, present: Guarded) -> str | None:
        return None

    def _Name(self, item: ast.Name, present: Guarded) -> Node:
        if item.id in ITERATED and item.id not in self.source.locals:
            return self.graph.name(item.id)
        return super()._Name(item, present)

    def _ListComp(self, item: ast.ListComp, present: Guarded) -> Node:
        return self._comprehension(item, present)

    def _GeneratorExp(self, item: ast.GeneratorExp, present: Guarded) -> Node:
        return self._comprehension(item, present)

    def _comprehension(
        self, item: ast.ListComp | ast.GeneratorExp, present: Guarded
    ) -> Node:
        """A list of the element, and of all that it is made from."""
        before = set(self.source.locals)
        parts = []
        for generator in item.generators:
            if generator.is_async:
                self.fail(generator.iter, "async is not allowed in a formula")
            items = self.parse(generator.iter, present)
            target = self.source.target(generator.target)
            self.source.drawn.append(Assign(target, drawn(self.graph, items)))
            parts += [items, *(self.parse(test, present) for test in generator.ifs)]
        element = self.parse(item.elt, present)
        self.source.locals -= self.source.locals - before
        return self.graph.node("list", "", (element, *parts))


def drawn(graph: Graph, items: Node) -> Node:
    """One element of what a loop goes over."""
    match items:
        case Node("call", _, (Node("name", "range"), *_)):
            return graph.constant("0")
        case Node("call", _, (Node("name", "enumerate"), value, *_)):
            pair = (graph.constant("0"), drawn(graph, value))
            return graph.node("tuple", "", pair)
        case Node("call", _, (Node("name", "zip"), *values)):
            each = tuple(drawn(graph, value) for value in values)
            return graph.node("tuple", "", each)
        case Node("call", _, (Node("name", name), value)) if name in SAME_ITEMS:
            return drawn(graph, value)
    return graph.node("subscript", "", (items, graph.constant("0")))
