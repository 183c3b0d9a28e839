"""Live statements of the forward: needed by its results, or by the values saved for the backward.

In: an `OpSpec` and its `Maths`, and the saved locals. Out: the final forward. Invariant: same results; a local that
only some branches assign is saved as an empty tensor if none of them ran.

`forward_that_saves` ends the pipeline's work on the forward; `live_forward` is the plain one, for tests and proofs.
Words: an intermediate is a local of the forward that is saved. In `setup_context` style PyTorch saves only inputs and
what forward returns, in combined style whatever forward puts on ctx; a library-style op is registered with torch.
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
from scaffold.formula.names import take
from scaffold.spec import OpSpec

LEFT_OUT = "something to save where no branch assigns it"


class ReturningForward(NamedTuple):
    """The final forward's statements and results, and the extra values returned to be saved."""

    forward: Lines | None  # None: not written yet
    results: tuple[Node, ...]
    extra: tuple[Node, ...]  # locals also returned, for setup_context


def forward_that_saves(
    spec: OpSpec, maths: Maths, reuse: Reuse, saved: tuple[Saved, ...]
) -> ReturningForward:
    """Return the forward returning the saved locals too, or copies of them if they share memory with a result.

    In `setup_context` style PyTorch saves only inputs and what forward returns; a combined forward saves locals itself.
    """
    if maths.forward is None:
        return ReturningForward(None, (), ())
    graph, results, statements = maths.graph, maths.forward.results, reuse.forward
    kept = tuple(item.origin for item in saved if item.source == "intermediate")
    placeholders = [
        Assign(graph.name(name), _nothing(spec, graph), "", (LEFT_OUT,))
        for name in unsure(statements, kept)
    ]
    # `described` locals are read for their shape, by the lines that fill ctx.
    live = reuse.described.union(kept, *(value.names() for value in results))
    statements = without_dead(graph, statements, live, effects(spec))
    # First of all lines: a branch that runs assigns the name again.
    statements, extra = (*placeholders, *statements), tuple[Node, ...]()
    # `handed`: the saved locals are differentiable outputs, so returned in any style.
    if spec.style == "setup-context" or maths.incoming.handed:
        results, extra = kept_apart(spec, graph, statements, results, saved)
        if spec.style == "combined":
            # A combined forward saves locals by their names, so the copies get them.
            names = tuple(map(graph.name, kept))
            pairs = zip(names, extra, strict=True)
            # Save the very tensor that is returned.
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
    """Assign each conditional result to a name first: `a if t else b` is easily misread within a tuple.

    `return a if t else b, h` -> `y = a if t else b`, `return y, h`. Return the statements, and the results over these
    names.
    """
    taken = {*written(*statements), *(item.name for item in spec.inputs)}
    lines, named = list(statements), list[Node]()
    for output, value in zip(spec.outputs, results, strict=True):
        if value.kind == "conditional":
            name = graph.name(take(taken, output.name))
            lines.append(Assign(name, value))
            value = name
        named.append(value)
    return tuple(lines), tuple(named)


def _nothing(spec: OpSpec, graph: Graph) -> Node:
    """Return the placeholder saved for a local its branch did not assign: an empty tensor on an input's device, `x.new_empty(0)`."""
    present = [item for item in spec.tensors if not (item.variadic or item.optional)]
    owner, maker = (present[0].name, "new_empty") if present else ("torch", "empty")
    function = graph.node("attribute", maker, (graph.name(owner),))
    return graph.node("call", "", (function, graph.constant("0")))


@lru_cache(maxsize=8)  # a test's claims ask for one forward a dozen times
def live_forward(spec: OpSpec, formula: Formula, ends: bool = False) -> Forward:
    """Return the forward without dead lines, as tests compare with and read it; no local is saved.

    With `ends`, keep only lines needed by differentiable results.
    """
    forward = write_forward(spec, formula)
    if ends and not formula.kept:  # one kept as it is has one body for all results
        pairs = zip(spec.outputs, forward.results, strict=True)
        results = tuple(value for output, value in pairs if output.differentiable)
        forward = forward._replace(results=results)
    live = frozenset().union(*(value.names() for value in forward.results))
    lines = without_dead(formula.graph, forward.statements, live, effects(spec))
    return forward._replace(statements=lines)


def effects(spec: OpSpec) -> Callable[[Node], bool]:
    """Return a predicate for dead code elimination: does an expression have side effects, as far as is known?

    A random draw has (later draws depend on it), and a call of a function from outside torch, or of one passed as an
    attribute.
    """
    unknown = spec.foreign | {item.name for item in spec.attributes}
    return lambda node: is_random(node) or calls_unknown(node, unknown)
