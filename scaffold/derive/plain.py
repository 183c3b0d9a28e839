"""Changes in place of what nothing else holds, as plain calls: `(a - b).clamp_(0)`, `h.mul_(y)` on a local.

In: a forward. Out: the same with new tensors in their place. Invariant: the same values; a change that another name could see
stays one.
"""

from collections.abc import Iterator

from scaffold.derive.model import Forward
from scaffold.derive.memory import Trace
from scaffold.derive.program import read_names
from scaffold.formula import (
    Assign,
    Graph,
    Node,
    Statement,
    changed_in_place,
    expressions,
    sharing,
)

# Methods that give what their namesake with `_` makes of a tensor.
PLAIN = frozenset(
    {"abs", "add", "addcdiv", "addcmul", "addmm", "baddbmm", "ceil", "clamp", "clip"}
    | {"clamp_max", "clamp_min", "cos", "div", "divide", "exp", "expm1", "floor"}
    | {"index_add", "index_fill", "lerp", "log", "log1p", "log2", "masked_fill", "mul"}
    | {"multiply", "neg", "pow", "reciprocal", "relu", "round", "rsqrt", "scatter"}
    | {"scatter_add", "sigmoid", "sin", "sqrt", "square", "sub", "subtract", "tanh"}
    | {"tril", "triu", "trunc"}
)


def out_of_place(graph: Graph, forward: Forward) -> Forward:
    """The forward without the changes that only the line itself can see."""
    if not any(_is_change(node) for node in _nodes(forward)):
        return forward
    absent = graph.node("absent")
    ends = [Assign(absent, value) for value in forward.results]
    lines: tuple[Statement, ...] = (*forward.statements, *ends)
    shared = {
        change.position
        for change in Trace(lines, sharing).changes
        if len(change.holders) > 1 or change.outside
    }
    done = list[Statement]()
    for position, item in enumerate(lines):
        later = frozenset[str]().union(*map(read_names, lines[position + 1 :]))
        if isinstance(item, Assign) and position not in shared:
            item = _plain(graph, item, later, position >= len(forward.statements))
        done.append(item)
    count = len(forward.statements)
    results = tuple(item.value for item in done[count:] if isinstance(item, Assign))
    return forward._replace(statements=tuple(done[:count]), results=results)


def _nodes(forward: Forward) -> Iterator[Node]:
    """All expressions of the forward, and what stands in them."""
    whole = [node for item in forward.statements for node in expressions(item)]
    return (part for node in (*whole, *forward.results) for part in node.walk())


def _plain(graph: Graph, item: Assign, later: frozenset[str], result: bool) -> Assign:
    """One assignment, if no other line reads what it changes."""
    calls = [node for node in item.value.walk() if _is_change(node)]
    if not calls or not all(_has_namesake(node) for node in calls):
        return item
    names = frozenset(changed_in_place(item.value))
    if any(_count(item.value, name) > 1 for name in names):
        return item
    target, value = item.target, _renamed(graph, item.value)
    if target.kind == "absent" and not result:
        name = _changed(item.value)
        return item if name is None else Assign(name, value, "", item.comments)
    kept = names & later - (target.names() if not item.operator else frozenset())
    return item if kept else Assign(target, value, item.operator, item.comments)


def _is_change(node: Node) -> bool:
    label = node.args[0].label if node.kind == "call" else ""
    return label.endswith("_") and not label.startswith("_")


def _has_namesake(call: Node) -> bool:
    callee = call.args[0]
    method = callee.kind == "attribute" and callee.args[0].label not in ("torch", "F")
    return method and callee.label.removesuffix("_") in PLAIN


def _changed(value: Node) -> Node | None:
    """The name that a line of changes is about: `h.mul_(x).add_(y)`."""
    while _is_change(value):
        value = value.args[0].args[0]
    return value if value.kind == "name" else None


def _count(value: Node, name: str) -> int:
    own = value.kind == "name" and value.label == name
    return own + sum(_count(arg, name) for arg in value.args)


def _renamed(graph: Graph, value: Node) -> Node:
    """The value with the plain calls."""

    def change(node: Node) -> Node | None:
        if not _is_change(node):
            return None
        callee, *args = node.args
        owner = graph.rewrite(callee.args[0], change)
        method = graph.node("attribute", callee.label.removesuffix("_"), (owner,))
        rest = tuple(graph.rewrite(arg, change) for arg in args)
        return graph.node("call", node.label, (method, *rest), node.keywords)

    return graph.rewrite(value, change)
