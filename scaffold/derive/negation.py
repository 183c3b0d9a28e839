"""Tests turned around, as one would write them: `p != 2` for `not p == 2`.

In: the test of an `if`. Out: its opposite. Invariant: just one of the two holds.
"""

from scaffold.formula import Graph, Node

OPPOSITES = {"==": "!=", "is": "is not", "in": "not in"}
OPPOSITES |= {after: before for before, after in OPPOSITES.items()}


def negated(graph: Graph, test: Node) -> Node:
    """The opposite of a test."""
    match test:
        case Node("unary", "not", (inner,)):
            return inner
        case Node("compare", label, args) if label in OPPOSITES:
            return graph.node("compare", OPPOSITES[label], args)
    return graph.node("unary", "not", (test,))


def are_opposite(one: Node, two: Node) -> bool:
    """Whether one test is the other turned around."""
    for test, other in ((one, two), (two, one)):
        match test:
            case Node("unary", "not", (inner,)) if inner is other:
                return True
            case Node("compare", label, args) if args == other.args:
                return other.kind == "compare" and OPPOSITES.get(label) == other.label
    return False
