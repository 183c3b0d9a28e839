"""Names in the forward for values inside its expressions, so that the backward can read them.

In: a forward, where its values are written, and a name for each value that is to have one. Out: the forward with an
assignment for each. Invariant: same results; a value is computed where it was, once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from scaffold.derive.derivation import Forward
from scaffold.derive.graph.op import Op
from scaffold.formula import Assign, Graph, Node, Statement, rewritten


class Place(NamedTuple):
    """Where a value is written: the statement (after the last one: the results) and the expression."""

    position: int
    node: Node


Places = Mapping[Op, Sequence[Place]]


def named_apart(
    graph: Graph, forward: Forward, places: Places, names: Mapping[Op, str]
) -> Forward:
    """The forward with statements that assign those names."""
    ops = sorted(names, key=lambda op: op.serial)
    lines: list[Statement] = []
    results = forward.results
    for position in range(len(forward.statements) + 1):
        change: dict[Node, str] = {}
        for op in ops:
            here = [place.node for place in places[op] if place.position == position]
            if here and places[op][0].position == position:
                value = _changed(graph, here[0], change)
                lines.append(Assign(graph.name(names[op]), value))
            change |= dict.fromkeys(here, names[op])
        if position < len(forward.statements):
            item = forward.statements[position]
            lines.append(_renewed(graph, item, change))
        else:
            results = tuple(_changed(graph, node, change) for node in results)
    return forward._replace(statements=tuple(lines), results=results)


def _renewed(graph: Graph, item: Statement, change: Mapping[Node, str]) -> Statement:
    """The statement over the names; what it assigns stays, since that is no value."""
    if isinstance(item, Assign):
        return replace(item, value=_changed(graph, item.value, change))
    return rewritten(graph, (item,), partial(_name, graph, change))[0]


def _changed(graph: Graph, node: Node, change: Mapping[Node, str]) -> Node:
    return graph.rewrite(node, partial(_name, graph, change))


def _name(graph: Graph, change: Mapping[Node, str], node: Node) -> Node | None:
    return graph.name(change[node]) if node in change else None
