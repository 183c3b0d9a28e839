"""What goes to the backward: tensors saved, values on ctx, and the program rewritten to read them.

In: the lines of the backward. Out: the same lines over `ctx`, the `Saved` and the `Kept`.
Invariant: a tensor is saved only for gradients that read its data; for its shape, dtype or presence a value is kept.
"""

from dataclasses import dataclass, replace

from scaffold.derive.metadata import Read, kept_form, kept_name, metadata_read
from scaffold.derive.model import Kept, Saved, Source
from scaffold.derive.program import Line, free_reads
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Graph, Node, rewritten, written
from scaffold.spec import OpSpec, TensorInput


@dataclass(frozen=True, slots=True)
class Transfer:
    """What forward hands to backward, and the lines that read it."""

    lines: tuple[Line, ...]
    saved: tuple[Saved, ...]
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True)
class Origins:
    """Where a name in the backward comes from: outputs and saved locals of the forward."""

    outputs: dict[str, str]  # name in the formulas -> output
    intermediates: tuple[str, ...]


def transfer(
    spec: OpSpec,
    graph: Graph,
    lines: tuple[Line, ...],
    origins: Origins,
    place: Location,
) -> Transfer:
    """Decide how each free name of the backward reaches it, and rewrite the lines."""
    found = _free(lines)
    _attributes_stay(spec, lines, place)
    data = _data_readers(spec, found, origins)
    saved = tuple(
        Saved(name, source, data[name], origin)
        for name, source, origin in _tensors(spec, origins)
        if data.get(name)
    )
    rewriter = _Rewriter(spec, graph, origins, data)
    renewed = tuple(rewriter.line(line) for line in lines)
    return Transfer(renewed, saved, tuple(rewriter.kept.values()))


def _free(lines: tuple[Line, ...]) -> list[tuple[Read, frozenset[str]]]:
    statements = tuple(line.statement for line in lines)
    return [(read, lines[position].serves) for read, position in free_reads(statements)]


def _attributes_stay(spec: OpSpec, lines: tuple[Line, ...], place: Location) -> None:
    names = {item.name for item in spec.attributes}
    for line in lines:
        for name in sorted(names & written(line.statement)):
            hint = "give the new value a name of its own"
            raise ScaffoldError(
                f"the backward assigns the attribute '{name}'", place, hint
            )


def _tensors(spec: OpSpec, origins: Origins) -> list[tuple[str, Source, str]]:
    """Every tensor that can be saved, in the order in which they are; variadic ones come last."""
    single = [item.name for item in spec.tensors if not item.variadic]
    several = [item.name for item in spec.tensors if item.variadic]
    outputs = list(origins.outputs.items())
    found: list[tuple[str, Source, str]] = [(name, "input", name) for name in single]
    found += [(name, "output", origin) for name, origin in outputs]
    found += [(name, "intermediate", name) for name in origins.intermediates]
    return found + [(name, "input", name) for name in several]


def _data_readers(
    spec: OpSpec, found: list[tuple[Read, frozenset[str]]], origins: Origins
) -> dict[str, frozenset[str]]:
    """The gradients that read each tensor's data."""
    tensors = {name for name, _, _ in _tensors(spec, origins)}
    variadic = {item.name for item in spec.tensors if item.variadic}
    readers: dict[str, frozenset[str]] = {}
    for read, serves in found:
        slice_of_tensor = read.element and read.name not in variadic
        needs_tensor = (
            not read.facets or slice_of_tensor or read.name in origins.intermediates
        )
        if read.name in tensors and needs_tensor:
            readers[read.name] = readers.get(read.name, frozenset()) | serves
    return readers


class _Rewriter:
    """Replaces attributes by `ctx.eps`, and metadata of tensors that are not there by `ctx.x_shape`."""

    def __init__(
        self,
        spec: OpSpec,
        graph: Graph,
        origins: Origins,
        data: dict[str, frozenset[str]],
    ) -> None:
        self.graph, self.data, self.origins = graph, data, origins
        self.spec = spec
        self.attributes = {item.name for item in spec.attributes}
        self.inputs = {item.name: item for item in spec.tensors}
        self.kept: dict[str, Kept] = {}

    def line(self, line: Line) -> Line:
        def change(node: Node) -> Node | None:
            return self._changed(node, line.serves)

        (statement,) = rewritten(self.graph, (line.statement,), change)
        return replace(line, statement=statement)

    def _changed(self, node: Node, serves: frozenset[str]) -> Node | None:
        if node.kind == "name" and node.label in self.attributes:
            self.kept[node.label] = Kept(node.label, node.label)
            return self.graph.node("attribute", node.label, (self.graph.name("ctx"),))
        read = metadata_read(node)
        if read is None or serves <= self.data.get(read.name, frozenset()):
            return None
        if read.name in self.origins.outputs:
            return self._of_gradient(node, read)
        if read.name not in self.inputs:
            return None
        self._keep(read, self.inputs[read.name])
        form = kept_form(self.graph, node, read)
        return self.graph.rewrite(form, lambda part: self._below(part, form, serves))

    def _below(self, part: Node, form: Node, serves: frozenset[str]) -> Node | None:
        """Rewrite inside the new form, which may hold attributes or further metadata."""
        if part is form or part.kind != "name" and metadata_read(part) is None:
            return None
        return self._changed(part, serves)

    def _of_gradient(self, node: Node, read: Read) -> Node:
        """An output's metadata is that of its gradient."""
        outputs = self.spec.outputs
        origin = self.origins.outputs[read.name]
        name = "grad_output" if len(outputs) == 1 else f"grad_{origin}"
        gradient = self.graph.name(name)
        named = self.graph.name(read.name)
        return self.graph.rewrite(
            node, lambda part: gradient if part is named else None
        )

    def _keep(self, read: Read, item: TensorInput) -> None:
        for facet in read.facets:
            name = kept_name(read.name, facet)
            self.kept[name] = Kept(name, _expression(item, facet))


def _expression(item: TensorInput, facet: str) -> str:
    if facet == "presence":
        return f"{item.name} is not None"
    if facet == "length":
        return f"len({item.name})"
    if item.variadic:
        return f"[tensor.{facet} for tensor in {item.name}]"
    value = f"{item.name}.{facet}"
    return f"{value} if {item.name} is not None else None" if item.optional else value
