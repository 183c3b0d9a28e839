"""Results of the forward: tensors of its own, each returned once.

In: the statements and results of a forward. Out: results with a clone where one could be an input, another result or
a saved local. Invariant: same values; surely new tensors are not cloned.

`body` asks for `own_results` at first; once it is known what is saved, `live_forward` asks for the function of the
op's style. Words: a variadic input or output is any number of tensors. Two values share memory if one may be a view
of the other, or the same tensor. A `Trace` tells whose memory a name has: `copied` follows only `y = x` (surely the
same tensor), `same_tensor` also `x.to(dtype)` (perhaps), none of them every view. A value is kept apart if it is made
to share no memory with others; `own` results are tensors of the forward's own. An input is returned `as_is` if the
very tensor is.
"""

from dataclasses import replace

from scaffold.derive.derivation import Saved
from scaffold.derive.library import leaves
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    Trace,
    copied,
    same_tensor,
)
from scaffold.spec import OpSpec, Output


def own_results(
    spec: OpSpec, graph: Graph, lines: Lines, results: tuple[Node, ...]
) -> tuple[Lines, tuple[Node, ...]]:
    """Clone results as needed: PyTorch wants none to be an input, and none to be returned twice.

    `return x, y, y` -> `return x.clone(), y, y.clone()`. Return the statements, changed where a clone in one branch
    is enough, and the results.
    """
    inputs = frozenset(item.name for item in spec.tensors) - set(spec.dirty)
    variadic = frozenset(item.name for item in spec.tensors if item.variadic)
    for value in results:
        if value.kind == "name" and Trace(lines, copied).of(value.label) & inputs:
            # Of a variadic input, which is a tuple, there is no clone.
            lines = _cloned_in_branches(graph, lines, value, inputs - variadic)
    exact, perhaps = Trace(lines, copied), Trace(lines, same_tensor)
    returned: frozenset[str] = frozenset()
    own = []
    for output, value in zip(spec.outputs, results, strict=True):
        if output.variadic:
            own.append(_own_elements(graph, value, inputs, variadic))
            continue
        memory = perhaps.of_value(value)
        if memory & returned:  # perhaps a tensor returned before
            own.append(cloned(graph, value))
        else:
            own.append(_own(graph, value, exact, inputs, variadic))
        returned |= memory
    return lines, tuple(own)


def _cloned_in_branches(
    graph: Graph, lines: Lines, result: Node, inputs: frozenset[str]
) -> Lines:
    """Replace `y = x` in a branch by `y = x.clone()`, at no cost in the other branches; `result` is `y`, a name of the result.

    Only in branches: on a line of its own, `y = x` is left to a clone in the `return`.
    """

    def one(item: Statement) -> Statement:
        """Return a statement with a copy of an input to the result cloned, in its branches too: `y = x` -> `y = x.clone()`."""
        if isinstance(item, If):
            body = tuple(one(inner) for inner in item.body)
            return replace(item, body=body, orelse=tuple(map(one, item.orelse)))
        is_input = item.value.kind == "name" and item.value.label in inputs
        # `y += x` leaves y the memory it had, so it is no copy.
        if item.target is result and is_input and not item.operator:
            return replace(item, value=cloned(graph, item.value))
        return item

    return tuple(one(item) if isinstance(item, If) else item for item in lines)


def _own(
    graph: Graph,
    value: Node,
    exact: Trace,
    inputs: frozenset[str],
    variadic: frozenset[str],
) -> Node:
    """Return a result, cloned if it is an input or an element of a variadic one: PyTorch wants it cloned or marked dirty.

    `exact` tells whose memory a value surely has. `x if t else y` is cloned in its branches.
    """
    if value.kind == "conditional":
        test, *branches = value.args
        values = (_own(graph, branch, exact, inputs, variadic) for branch in branches)
        return graph.node("conditional", "", (test, *values))
    is_input = value.kind == "name" and exact.of_value(value) & inputs
    is_element = value.kind == "subscript" and value.args[0].label in variadic
    return cloned(graph, value) if is_input or is_element else value


def _own_elements(
    graph: Graph, value: Node, inputs: frozenset[str], variadic: frozenset[str]
) -> Node:
    """Return a variadic result, each of its tensors cloned if it is an input.

    `tensors` -> `tuple(tensor.clone() for tensor in tensors)`, `(x, y + 1)` -> `(x.clone(), y + 1)`.
    """
    if value.kind == "name" and value.label in variadic:
        return graph.constant(f"tuple(tensor.clone() for tensor in {value.label})")
    if value.kind == "tuple":
        values = (
            # Not for `x.t()`: a view may be returned.
            cloned(graph, part) if copied(part) & inputs else part
            for part in value.args
        )
        return graph.node("tuple", "", tuple(values))
    return value


def cloned(graph: Graph, value: Node) -> Node:
    """Return `value.clone()`."""
    return graph.node("call", "", (graph.node("attribute", "clone", (value,)),))


def kept_apart(
    spec: OpSpec,
    graph: Graph,
    statements: Lines,
    results: tuple[Node, ...],
    saved: tuple[Saved, ...],
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return, for `setup_context`, the results and the saved locals to return after them.

    A saved local is returned as non-differentiable, so it must be neither a result's tensor nor a view of it: else it
    is cloned. One that is an input is returned as a view. PyTorch also refuses to save an input that is returned
    unchanged.
    """
    same, views = Trace(statements, same_tensor), Trace(statements)
    inputs = frozenset(item.name for item in spec.tensors) - set(spec.dirty)
    returned = frozenset().union(*(views.of_value(value) for value in results)) - inputs
    extra = []
    for name in (item.origin for item in saved if item.source == "intermediate"):
        named, memory = graph.name(name), views.of(name) - inputs
        if memory & returned:
            extra.append(cloned(graph, named))
        else:
            # An input under another name: PyTorch would take it for an input returned as it is.
            extra.append(_as_view(graph, named) if same.of(name) & inputs else named)
        returned |= memory
    apart = []
    for output, value in zip(spec.outputs, results, strict=True):
        as_is = same.of_value(value) & inputs
        refused = _is_saved(output, as_is, saved)
        apart.append(cloned(graph, value) if refused else value)
    return tuple(apart), tuple(extra)


def registered_apart(
    spec: OpSpec,
    graph: Graph,
    statements: Lines,
    results: tuple[Node, ...],
    saved: tuple[Saved, ...],
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Clone the results and saved locals of a registered op where they might share memory with inputs or each other.

    PyTorch demands that they share none. Of an op that leaves PyTorch, all are made contiguous: its fake assumes that.
    """
    views = Trace(statements)
    held_memory = frozenset(item.name for item in spec.tensors)
    # A kept forward stays as the user wrote it.
    leaves_pytorch = spec.kept is None and leaves(spec, statements, results)
    kept = (item.origin for item in saved if item.source == "intermediate")
    apart = []
    for value in (*results, *map(graph.name, kept)):
        memory = views.of_value(value)
        apart.append(cloned(graph, value) if memory & held_memory else value)
        if leaves_pytorch:  # match the fake's layout, whatever layout a kernel returns
            method = graph.node("attribute", "contiguous", (apart[-1],))
            apart[-1] = graph.node("call", "", (method,))
        held_memory |= memory
    return tuple(apart[: len(results)]), tuple(apart[len(results) :])


def saved_apart(
    graph: Graph,
    statements: Lines,
    results: tuple[Node, ...],
    saved: tuple[Saved, ...],
) -> Lines:
    """Clone saved locals that are views of a result in a combined forward: autograd would see them as changed.

    Adds `h = h.clone()` at the end of the statements.
    """
    views = Trace(statements)
    returned = frozenset().union(*(views.of_value(value) for value in results))
    copies = []
    for name in (item.origin for item in saved if item.source == "intermediate"):
        if views.of(name) & returned:
            named = graph.name(name)
            copies.append(Assign(named, cloned(graph, named)))
    return (*statements, *copies)


def _is_saved(output: Output, as_is: frozenset[str], saved: tuple[Saved, ...]) -> bool:
    """Return whether the backward reads an output possibly being an input (one of `as_is`), or this input: PyTorch refuses either."""
    # A tuple of tensors has no clone: `_own_elements` clones the inputs in it.
    if output.variadic or not as_is:
        return False
    either = {("output", output.name), *(("input", name) for name in as_is)}
    return any((item.source, item.origin) in either for item in saved)


def _as_view(graph: Graph, named: Node) -> Node:
    """Return `h.view_as(h)`: another tensor than `h`, at no cost."""
    method = graph.node("attribute", "view_as", (named,))
    return graph.node("call", "", (method, named))
