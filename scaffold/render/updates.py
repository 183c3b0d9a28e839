"""How a module's buffers change in training.

In: an `OpSpec` and its module's updates. Out: lines of its `forward`. Invariant: every update reads the buffers as they
were before the call.
"""

from collections.abc import Callable

from scaffold.derive import apart_from, fresh
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    Node,
    Statement,
    emit,
    emit_lines,
    expressions,
    rewritten,
    written,
)
from scaffold.spec import ModuleSpec, OpSpec

Lines = tuple[Statement, ...]
RESULT = "output"  # what the module keeps its result as


def update_lines(spec: OpSpec, module: ModuleSpec) -> list[str]:
    """Statements that set each updated buffer; the new values first where one reads another buffer."""
    bodies = [_of_module(spec, module, formula) for _, formula in module.updates]
    names = [name for name, _ in module.updates]
    taken = {item.name for item in spec.inputs}
    taken |= written(*(item for body in bodies for item in body))
    together = any(
        _reads(body, earlier)
        for position, body in enumerate(bodies)
        for earlier in names[:position]
    )
    lines, copies = list[str](), list[str]()
    for name, body in zip(names, bodies, strict=True):
        *before, last = body
        assert isinstance(last, Assign)
        value = emit(last.value)
        lines += emit_lines(before)
        if together:
            new = fresh(f"new_{name}", taken)
            lines.append(f"{new} = {value}")
            copies.append(f"self.{name}.copy_({new})")
        else:
            lines.append(f"self.{name}.copy_({value})")
    return lines + copies


def _of_module(spec: OpSpec, module: ModuleSpec, formula: Formula) -> Lines:
    """The statements and the value of an update over `self`; its locals hide nothing."""
    assert formula.result is not None
    graph = formula.graph
    body: Lines = (*formula.statements, Assign(graph.node("absent"), formula.result))
    items = (*spec.attributes, *module.attributes)
    owned = {*module.parameters, *module.buffers, *(item.name for item in items)}
    outer = owned | {item.name for item in spec.inputs} | {spec.name, RESULT}
    outer |= {item.binding for item in spec.imports}
    body, _ = apart_from(graph, body, outer, outer | written(*body))
    return rewritten(graph, body, _over_self(graph, owned))


def _over_self(graph: Graph, owned: set[str]) -> Callable[[Node], Node | None]:
    def change(node: Node) -> Node | None:
        if node.kind == "name" and node.label in owned:
            return graph.node("attribute", node.label, (graph.name("self"),))
        return None

    return change


def _reads(body: Lines, name: str) -> bool:
    """Whether a body reads `self.name`."""
    return any(
        inner.kind == "attribute"
        and inner.label == name
        and inner.args[0].label == "self"
        for item in body
        for node in expressions(item)
        for inner in node.walk()
    )
