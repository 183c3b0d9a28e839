"""The backward as one program: statements in order, each with the gradients it serves.

In: the statements of the backward. Out: `Line`s. Invariant: run in order, the lines of one gradient compute it; a line
serves a gradient exactly if leaving it out would change that gradient.

Words: a line serves an input if the gradient of that input needs it; a name is live at a line if a later line that is
needed reads it; `there` are names with a value from elsewhere, such as inputs; `kept` are the positions of needed lines.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from scaffold.formula import (
    Graph,
    Lines,
    Node,
    Statement,
    read_names,
    surely_written,
    written,
)
from scaffold.spec import OpSpec


class Line(NamedTuple):
    """A statement of the backward and the inputs whose gradients need it."""

    statement: Statement
    serves: frozenset[str]


def needed_for(
    statements: Sequence[Statement],
    names: Iterable[str],
    there: Collection[str] = frozenset(),
) -> frozenset[int]:
    """Return the positions of the statements that compute `names`, by liveness from the last one up.

    Names in `there` are available anyway and need not be computed.
    """
    live, kept = set(names).difference(there), set()
    for position in reversed(range(len(statements))):
        item = statements[position]
        if written(item) & live:
            kept.add(position)
            live = (live - surely_written(item)) | read_names(item).difference(there)
    return frozenset(kept)


def lines_of(statements: Lines, gradients: Iterable[str]) -> tuple[Line, ...]:
    """Return each statement with the inputs it serves: their gradients need it. Leave out statements serving none.

    So the writer puts each line under a test of just these: `if ctx.needs_input_grad[0]:`.
    """
    needed = {name: needed_for(statements, [f"grad_{name}"]) for name in gradients}
    lines = []
    for position, item in enumerate(statements):
        serves = frozenset(name for name, kept in needed.items() if position in kept)
        if serves:
            lines.append(Line(item, serves))
    return tuple(lines)


def needs_gradient(spec: OpSpec, graph: Graph, name: str) -> Node:
    """Return the expression `ctx.needs_input_grad[i]`, with `i` the position of the input `name`: is its gradient wanted?"""
    ctx = graph.name("ctx")
    needs = graph.node("attribute", "needs_input_grad", (ctx,))
    index = graph.constant(str(spec.index(name)))
    return graph.node("subscript", "", (needs, index))
