"""The lines of the forward that are needed: by its results, and, with names of their own, for what the backward saves.

In: an `OpSpec` and its `Maths`, and which locals are saved. Out: the forward as it will stand. Invariant: the same results; a local that
only some branches assign is saved as an empty tensor where none did.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from scaffold.derive.analysis.activity import (
    calls_unknown,
    is_random,
)
from scaffold.derive.analysis.live_variables import without_dead
from scaffold.derive.derivation import Forward, Maths, Saved
from scaffold.derive.forward.body import write_forward
from scaffold.derive.forward.outputs import (
    kept_apart,
    registered_apart,
    saved_apart,
)
from scaffold.derive.plan.recomputation import Reuse, unsure
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    Lines,
    Node,
    written,
)
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec

LEFT_OUT = "something to save where no branch assigns it"


class ReturningForward(NamedTuple):
    """The statements of the forward as it will stand, what it returns, and what it returns besides to be saved."""

    forward: Lines | None  # None: not written yet
    results: tuple[Node, ...]
    extra: tuple[Node, ...]  # the locals that it returns as well, for setup_context


def forward_that_saves(
    spec: OpSpec, maths: Maths, reuse: Reuse, saved: tuple[Saved, ...]
) -> ReturningForward:
    """The forward that also returns the locals which are saved, or copies them."""
    if maths.forward is None:
        return ReturningForward(None, (), ())
    graph, results, statements = maths.graph, maths.forward.results, reuse.forward
    kept = tuple(item.origin for item in saved if item.source == "intermediate")
    begun = [
        Assign(graph.name(name), _nothing(spec, graph), "", (LEFT_OUT,))
        for name in unsure(statements, kept)
    ]
    live = reuse.described.union(kept, *(value.names() for value in results))
    statements = without_dead(graph, statements, live, effects(spec))
    statements, extra = (*begun, *statements), tuple[Node, ...]()
    if spec.style == "setup-context" or maths.incoming.handed:
        results, extra = kept_apart(spec, graph, statements, results, saved)
        if spec.style == "combined":
            names = tuple(map(graph.name, kept))
            pairs = zip(names, extra, strict=True)
            # What is saved is what is returned.
            copies = (Assign(name, own) for name, own in pairs if own is not name)
            statements, extra = (*statements, *copies), names
    elif spec.is_library:
        results, extra = registered_apart(spec, graph, statements, results, saved)
    else:
        statements = saved_apart(graph, statements, results, saved)
    if extra:
        statements, results = _choices_named(spec, graph, statements, results)
    return ReturningForward(statements, results, extra)


def _choices_named(
    spec: OpSpec, graph: Graph, statements: Lines, results: tuple[Node, ...]
) -> tuple[Lines, tuple[Node, ...]]:
    """The forward with a line for a result that is a choice, which is misread among several."""
    taken = written(*statements) | {item.name for item in spec.inputs}
    lines, named = list(statements), list[Node]()
    for output, value in zip(spec.outputs, results, strict=True):
        if value.kind == "conditional":
            name = graph.name(fresh(output.name, taken))
            taken |= {name.label}
            lines.append(Assign(name, value))
            value = name
        named.append(value)
    return tuple(lines), tuple(named)


def _nothing(spec: OpSpec, graph: Graph) -> Node:
    """What to save of a local that a branch has left out: an empty tensor, on the device of an input."""
    sure = [item for item in spec.tensors if not (item.variadic or item.optional)]
    owner, maker = (sure[0].name, "new_empty") if sure else ("torch", "empty")
    function = graph.node("attribute", maker, (graph.name(owner),))
    return graph.node("call", "", (function, graph.constant("0")))


@lru_cache(maxsize=8)  # what a test claims asks it of one forward a dozen times
def live_forward(spec: OpSpec, formula: Formula, ends: bool = False) -> Forward:
    """The forward without the lines that its results do not need; `ends`: those results that have a gradient."""
    forward = write_forward(spec, formula)
    if ends and not formula.kept:
        pairs = zip(spec.outputs, forward.results, strict=True)
        results = tuple(value for output, value in pairs if output.differentiable)
        forward = forward._replace(results=results)
    live = frozenset().union(*(value.names() for value in forward.results))
    lines = without_dead(formula.graph, forward.statements, live, effects(spec))
    return forward._replace(statements=lines)


def effects(spec: OpSpec) -> Callable[[Node], bool]:
    """Whether an expression does more than to compute its value, as far as one can see."""
    unknown = spec.foreign | {item.name for item in spec.attributes}
    return lambda node: is_random(node) or calls_unknown(node, unknown)
