"""What forward returns: tensors of its own, each of them once.

In: the statements and results of a forward. Out: results with a clone where one could be an input, another result or a saved
local. Invariant: same values; nothing is cloned that is surely new.
"""

from scaffold.derive.memory import Trace
from scaffold.derive.model import Saved
from scaffold.derive.unfold import Lines
from scaffold.formula import Assign, Graph, Node, copied, same_tensor, sharing
from scaffold.spec import OpSpec


def own_results(
    spec: OpSpec, graph: Graph, lines: Lines, results: tuple[Node, ...]
) -> tuple[Node, ...]:
    """Results that are tensors of the op's own: no input, and none of them twice."""
    exact, perhaps = Trace(lines, copied), Trace(lines, same_tensor)
    inputs = {item.name for item in spec.tensors} - set(spec.dirty)
    several = frozenset(item.name for item in spec.tensors if item.variadic)
    seen: frozenset[str] = frozenset()
    own = []
    for output, value in zip(spec.outputs, results, strict=True):
        if output.variadic:
            own.append(_own_elements(graph, value, frozenset(inputs), several))
            continue
        memory = perhaps.of_value(value)
        if memory & seen:
            own.append(_cloned(graph, value))
        else:
            own.append(_own(graph, value, exact, frozenset(inputs)))
        seen |= memory
    return tuple(own)


def _own(graph: Graph, value: Node, exact: Trace, inputs: frozenset[str]) -> Node:
    """An input that is returned as it is must be cloned or marked dirty."""
    if value.kind == "conditional":
        test, *branches = value.args
        parts = (_own(graph, branch, exact, inputs) for branch in branches)
        return graph.node("conditional", "", (test, *parts))
    if value.kind == "name" and exact.of_value(value) & inputs:
        return _cloned(graph, value)
    return value


def _own_elements(
    graph: Graph, value: Node, inputs: frozenset[str], several: frozenset[str]
) -> Node:
    if value.kind == "name" and value.label in several:
        return graph.constant(f"tuple(tensor.clone() for tensor in {value.label})")
    if value.kind == "tuple":
        parts = (
            _cloned(graph, part) if sharing(part) & inputs and copied(part) else part
            for part in value.args
        )
        return graph.node("tuple", "", tuple(parts))
    return value


def _cloned(graph: Graph, value: Node) -> Node:
    """`value.clone()`."""
    return graph.node("call", "", (graph.node("attribute", "clone", (value,)),))


def kept_apart(
    spec: OpSpec,
    graph: Graph,
    statements: Lines,
    results: tuple[Node, ...],
    saved: tuple[Saved, ...],
) -> tuple[Lines, tuple[Node, ...]]:
    """The forward with results and saved locals that are tensors apart, for `setup_context`.

    A saved local is returned as non-differentiable beside the results: none of them may be that very tensor. And
    PyTorch refuses to save an input that is returned as it is.
    """
    trace = Trace(statements, same_tensor)
    inputs = frozenset(item.name for item in spec.tensors)
    kept = [item.origin for item in saved if item.source == "intermediate"]
    of_kept = frozenset().union(*(trace.of(name) for name in kept))
    of_saved = {item.origin for item in saved if item.source == "input"}
    outputs = {item.origin for item in saved if item.source == "output"}
    apart = []
    for output, value in zip(spec.outputs, results, strict=True):
        memory = trace.of_value(value)
        as_is = memory & inputs - set(spec.dirty)
        clash = (
            memory & of_kept or as_is & of_saved or (as_is and output.name in outputs)
        )
        apart.append(_cloned(graph, value) if clash and not output.variadic else value)
    views = tuple(_as_view(graph, name) for name in kept if trace.of(name) & inputs)
    return (*statements, *views), tuple(apart)


def _as_view(graph: Graph, name: str) -> Assign:
    named = graph.name(name)
    method = graph.node("attribute", "view_as", (named,))
    return Assign(named, graph.node("call", "", (method, named)))
