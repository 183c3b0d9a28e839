"""Name values inside the forward's expressions, so the backward can read them, or save them.

`return f(x) * y` -> `a = f(x)`, `return a * y`; `write/statements` chooses the values and the names.

In: a forward, where its values are written, and a name for each value that is to have one. Out: the forward with an assignment for
each. Invariant: same results; a value is computed where it was, once.

Words: the place of a value is a statement, by its position, and an expression in it; behind the last statement stand the results. A
call with several results is unpacked on one line, which names all of them. `here` are the expressions of a value in one statement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.derivation import Forward
from scaffold.derive.graph.op import Op
from scaffold.formula import Assign, Graph, If, Node, Statement, rewritten


class Place(NamedTuple):
    """Where a value is written: the statement (after the last one: the results) and the expression."""

    position: int
    node: Node


Places = Mapping[Op, Sequence[Place]]


def named_apart(
    graph: Graph, forward: Forward, places: Places, names: Mapping[Op, str]
) -> Forward:
    """Return the forward with each value in `names` assigned to its name first: `return f(x) * y` -> `a = f(x)`, `return a * y`.

    `places` has the expressions of each value; all of them are replaced by the name. A call with several results gets one line for
    all its names, `values, index = x.max(0)`.
    """
    parts = [op for op in names if op.rule == "item" and op.args[0] in places]
    # A call with a name of its own, for the tuple, is not unpacked.
    calls = dict.fromkeys(op.args[0] for op in parts if op.args[0] not in names)
    # By serial: an inner value gets its name first, so that an outer one reads it.
    ops = sorted(names.keys() - {*parts} | calls.keys(), key=lambda op: op.serial)
    lines: list[Statement] = []
    results = forward.results
    # Behind the last statement `item` is None: the place of the results.
    for position, item in enumerate((*forward.statements, None)):
        change: dict[Node, str] = {}  # expressions here -> their names so far
        for op in ops:
            here = [place.node for place in places[op] if place.position == position]
            first = here and places[op][0].position == position
            # None where the value is written again: it has its name already.
            value = _changed(graph, here[0], change) if first else None
            if op in calls:
                pairs = _results_of(op, names, places, position, item)
                if value is not None:
                    targets = tuple(graph.name(name) for name, _ in pairs)
                    lines.append(Assign(graph.node("tuple", "", targets), value))
                change |= {node: name for name, nodes in pairs for node in nodes}
                continue
            if value is not None:
                lines.append(Assign(graph.name(names[op]), value))
            change |= dict.fromkeys(here, names[op])
        if item is None:
            results = tuple(_changed(graph, node, change) for node in results)
        elif not _is_named_with_its_call(item, change):
            lines.append(_with_names(graph, item, change))
    return forward._replace(statements=tuple(lines), results=results)


def respelled(graph: Graph, forward: Forward, change: Mapping[Node, Node]) -> Forward:
    """Return the forward with some expressions replaced by others of the same value, as `change` says."""
    if not change:
        return forward
    return forward._replace(
        statements=rewritten(graph, forward.statements, change.get),
        results=tuple(graph.rewrite(node, change.get) for node in forward.results),
    )


def _results_of(
    call: Op,
    names: Mapping[Op, str],
    places: Places,
    position: int,
    statement: Statement | None,
) -> list[tuple[str, list[Node]]]:
    """Return the name of each result of a call with several, and the expressions of it in a statement: `x.max(-1)[0]`.

    The names are those of the line that unpacks the call: `_indices` for an unused result; a result that `statement` itself assigns
    keeps that name. `position` is the statement's.
    """
    found = []
    # Each result that the forward reads or that gets a name, by its position among the results.
    items = {op.position: op for op in (*places, *names) if call in op.args[:1]}
    for at, result in enumerate(call.facts.results):
        several = places.get(items[at], ()) if at in items else ()
        nodes = [place.node for place in several if place.position == position]
        name = names.get(items[at]) if at in items else None
        if name is None and isinstance(statement, Assign) and statement.value in nodes:
            name = _target(statement)
        # Without a name, `x.max(-1)[1]` stays as it is written: `_indices` is not read.
        found.append((name or f"_{result}", nodes if name else []))
    return found


def _is_named_with_its_call(statement: Statement, change: Mapping[Node, str]) -> bool:
    """Return whether a statement is redundant, as its name is assigned where the call is unpacked: `v = x.max(-1)[0]`.

    It stands behind `v, _indices = x.max(-1)`.
    """
    if not isinstance(statement, Assign):
        return False
    # "" for a value without a new name: it equals no target, as None might.
    return change.get(statement.value, "") == _target(statement)


def _target(statement: Statement) -> str | None:
    """Return the single name a statement assigns; None for several, an index or an `x += y`."""
    is_plain = isinstance(statement, Assign) and not statement.operator
    target = statement.target if isinstance(statement, Assign) and is_plain else None
    return target.label if target is not None and target.kind == "name" else None


def _with_names(graph: Graph, item: Statement, change: Mapping[Node, str]) -> Statement:
    """Return a statement with the expressions in `change` replaced by their names, but no target: `h[0] = h[0].exp()` -> `h[0] = a.exp()`."""
    if isinstance(item, Assign):
        return replace(item, value=_changed(graph, item.value, change))
    body = tuple(_with_names(graph, line, change) for line in item.body)
    orelse = tuple(_with_names(graph, line, change) for line in item.orelse)
    return If(_changed(graph, item.test, change), body, orelse, item.comments)


def _changed(graph: Graph, node: Node, change: Mapping[Node, str]) -> Node:
    """Return an expression with those in `change` replaced by their names, the largest ones where one is within another."""

    def named(part: Node) -> Node | None:
        return graph.name(change[part]) if part in change else None

    return graph.rewrite(node, named)
