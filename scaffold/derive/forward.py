"""The forward as it will stand in the op: the user's words, with what PyTorch needs changed.

In: an `OpSpec` with a forward. Out: its statements and one result an output.
Invariant: same values; a conditional on an absent optional becomes an `if`, no input is returned as it is, and no
assignment hides an input that the backward reads.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.derive.activity import callee
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    If,
    Node,
    Statement,
    changed_in_place,
    renaming,
    rewritten,
    written,
)
from scaffold.spec import OpSpec

TUPLES = frozenset(
    {
        "chunk",
        "dsplit",
        "hsplit",
        "split",
        "split_with_sizes",
        "tensor_split",
        "tuple",
        "unbind",
    }
    | {"unsafe_chunk", "unsafe_split", "vsplit"}
)
STEMS = {"+": "total", "-": "difference", "*": "product"}


@dataclass(frozen=True, slots=True)
class Forward:
    """The body of forward: statements, and what it returns, one node for each output."""

    statements: tuple[Statement, ...]
    results: tuple[Node, ...]
    comments: tuple[str, ...]


def write_forward(spec: OpSpec, formula: Formula) -> Forward:
    """The forward of an op from its formula."""
    assert formula.result is not None  # the parser saw to it
    statements, result = _input_safe(formula, spec)
    writer = _Unfolder(formula.graph, _taken(spec, statements))
    body = writer.block(statements)
    before, results = _results(spec, formula, result, writer)
    return Forward((*body, *before), results, formula.comments)


def _taken(spec: OpSpec, statements: tuple[Statement, ...]) -> set[str]:
    names = {item.name for item in spec.inputs} | {item.name for item in spec.outputs}
    return names.union(*(written(item) for item in statements)) if statements else names


def _results(
    spec: OpSpec, formula: Formula, result: Node, writer: "_Unfolder"
) -> tuple[tuple[Statement, ...], tuple[Node, ...]]:
    graph = formula.graph
    if len(spec.outputs) > 1:
        return _several(spec, formula, result, writer)
    output = spec.outputs[0]
    if output.variadic:
        return (), (_as_tuple(graph, result),)
    if (name := _changed_input(spec, result)) is not None:
        effect = Assign(graph.node("absent"), result)
        return (effect,), (graph.name(name),)
    before, value = writer.result(output.name, result)
    return before, (_own(spec, graph, value),)


def _changed_input(spec: OpSpec, result: Node) -> str | None:
    """The dirty input that the result is: PyTorch must see that very tensor returned."""
    changed = [name for name in changed_in_place(result) if name in spec.dirty]
    return changed[0] if (callee(result) or "").endswith("_") and changed else None


def _several(
    spec: OpSpec, formula: Formula, result: Node, writer: "_Unfolder"
) -> tuple[tuple[Statement, ...], tuple[Node, ...]]:
    graph, names = formula.graph, tuple(output.name for output in spec.outputs)
    if result.kind != "tuple":
        targets = tuple(graph.name(name) for name in names)
        unpack = Assign(graph.node("tuple", "", targets), result)
        return (unpack,), targets
    if len(result.args) != len(names):
        message = (
            f"the forward returns {len(result.args)} values for {len(names)} outputs"
        )
        raise ScaffoldError(
            message, formula.location, f"declared outputs: {', '.join(names)}"
        )
    before: list[Statement] = []
    values = []
    for name, item in zip(names, result.args, strict=True):
        lines, value = writer.result(name, item)
        before += lines
        values.append(_own(spec, graph, value))
    return tuple(before), tuple(values)


def _own(spec: OpSpec, graph: Graph, value: Node) -> Node:
    """A tensor of the op's own: an input that is returned as it is must be cloned or marked dirty."""
    inputs = {item.name for item in spec.tensors} - set(spec.dirty)
    if value.kind == "name" and value.label in inputs:
        return graph.node("call", "", (graph.node("attribute", "clone", (value,)),))
    if value.kind == "conditional":
        test, body, orelse = value.args
        parts = (test, _own(spec, graph, body), _own(spec, graph, orelse))
        return graph.node("conditional", "", parts)
    return value


def _as_tuple(graph: Graph, result: Node) -> Node:
    if result.kind in ("tuple", "name") or callee(result) in TUPLES:
        return result
    if result.kind == "list":
        return graph.node("tuple", "", result.args)
    return graph.node("call", "", (graph.name("tuple"), result))


class _Unfolder:
    """Turns conditionals on an absent optional into statements where that reads better."""

    def __init__(self, graph: Graph, taken: set[str]) -> None:
        self.graph, self.taken = graph, taken

    def block(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(line for item in statements for line in self._statement(item))

    def result(self, name: str, value: Node) -> tuple[tuple[Statement, ...], Node]:
        """Statements and the value to return; a value that takes an `if` gets the output's name."""
        if _droppable(value) is None:
            return self._hoisted(value)
        target = self.graph.name(name)
        return self._assign(target, value, ()), target

    def _statement(self, item: Statement) -> tuple[Statement, ...]:
        if isinstance(item, If):
            return (
                If(
                    item.test,
                    self.block(item.body),
                    self.block(item.orelse),
                    item.comments,
                ),
            )
        if item.operator or item.target.kind != "name":
            before, value = self._hoisted(item.value)
            return (*before, Assign(item.target, value, item.operator, item.comments))
        return self._assign(item.target, item.value, item.comments)

    def _assign(
        self, target: Node, value: Node, comments: tuple[str, ...]
    ) -> tuple[Statement, ...]:
        """`target = alone`, then `if bias is not None: target = target + bias`."""
        parts = _droppable(value)
        if parts is None:
            before, plain = self._hoisted(value)
            return (*before, Assign(target, plain, "", comments))
        test, both, alone = parts
        before = self._assign(target, alone, comments)
        kept = tuple(target if arg is alone else arg for arg in both.args)
        given = Assign(target, self.graph.node("binary", both.label, kept))
        return (*before, If(test, (given,)))

    def _hoisted(self, value: Node) -> tuple[tuple[Statement, ...], Node]:
        """The value with every droppable conditional inside it under a name of its own."""
        before: list[Statement] = []

        def lift(node: Node) -> Node | None:
            parts = _droppable(node)
            if parts is None or node is value:
                return None
            target = self.graph.name(self._fresh(STEMS[parts[1].label]))
            before.extend(self._assign(target, node, ()))
            return target

        plain = self.graph.rewrite(value, lift)
        return tuple(before), plain

    def _fresh(self, stem: str) -> str:
        names = (stem, *(f"{stem}_{count}" for count in range(2, 1000)))
        name = next(name for name in names if name not in self.taken)
        self.taken.add(name)
        return name


def _droppable(node: Node) -> tuple[Node, Node, Node] | None:
    """Test, value with the optional and value without it, where the latter is worth a line of its own."""
    match node:
        case Node(
            "conditional", _, (test, Node("binary", "+" | "-" | "*") as both, alone)
        ):
            if alone.kind != "name" and any(arg is alone for arg in both.args):
                return test, both, alone
    return None


def _input_safe(formula: Formula, spec: OpSpec) -> tuple[tuple[Statement, ...], Node]:
    """The formula with a new name for every input that it assigns, so that the input stays readable."""
    result = formula.result
    assert result is not None
    _refuse_in_place(formula, spec)
    statements = formula.statements
    for name in (item.name for item in spec.inputs if item.name not in spec.dirty):
        if any(name in written(statement) for statement in statements):
            statements = _renamed(formula.graph, statements, name, f"new_{name}")
            result = formula.graph.rewrite(
                result, renaming(formula.graph, name, f"new_{name}")
            )
    return statements, result


def _refuse_in_place(formula: Formula, spec: OpSpec) -> None:
    """An input may be changed in place only if it is declared dirty."""
    tensors = {item.name for item in spec.tensors} - set(spec.dirty)
    changed = {name for item in formula.statements for name in _changed(item)}
    if formula.result is not None:
        changed |= set(changed_in_place(formula.result))
    for name in sorted(changed & tensors):
        message = f"the forward changes its input '{name}' in place"
        hint = f"work on {name}.clone(), or declare --dirty {name}"
        raise ScaffoldError(message, formula.location, hint)


def _changed(item: Statement) -> Iterator[str]:
    """The names whose tensors a statement changes in place."""
    if isinstance(item, If):
        for inner in (*item.body, *item.orelse):
            yield from _changed(inner)
        return
    if item.operator or item.target.kind == "subscript":
        yield from written(item)
    yield from changed_in_place(item.value)


def _renamed(
    graph: Graph, statements: tuple[Statement, ...], name: str, new: str
) -> tuple[Statement, ...]:
    """Statements in which the name means the input until it is first assigned, then `new`."""
    first = next(k for k, item in enumerate(statements) if name in written(item))
    change = renaming(graph, name, new)
    head = statements[first]
    if isinstance(head, If):  # the name may stay the input's value
        start = Assign(graph.name(new), graph.name(name))
        return (
            *statements[:first],
            start,
            *rewritten(graph, statements[first:], change),
        )
    target = graph.rewrite(head.target, change)
    begun = Assign(target, head.value, head.operator, head.comments)
    return (
        *statements[:first],
        begun,
        *rewritten(graph, statements[first + 1 :], change),
    )
