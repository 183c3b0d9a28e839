"""A diagram of an op: the lines of forward and backward, the saved values between them, and their dependencies.

In: an `OpSpec` and its `Derivation`. Out: a `Diagram` with items in topological order.
Invariant: the lines are those of the generated Function; a line no gradient needs is neither in its backward nor
here.

For `scaffold diagram`, which draws it. Words: an item is a box of the drawing; it reads the items whose values it
uses.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from scaffold.derive.derivation import Derivation
from scaffold.derive.explain import Explanation, Tensors, explain, total
from scaffold.derive.forward.body import grad_name
from scaffold.formula import (
    Node,
    Statement,
    emit,
    emit_lines,
    expressions,
    written,
)
from scaffold.spec import OpSpec

UNKNOWN = "?"  # an undeclared shape
Part = Literal["forward", "saved", "backward"]
Kind = Literal["input", "line", "output", "saved", "gradient"]


class Item(NamedTuple):
    """A box of the diagram: its text, and the positions of the items it reads."""

    part: Part
    kind: Kind
    lines: tuple[str, ...]  # code, as in the Function
    detail: tuple[str, ...]  # a shape, bytes, the gradients it is for
    reads: tuple[int, ...]


class Diagram(NamedTuple):
    """Forward and backward of an op as a graph."""

    name: str
    items: tuple[Item, ...]
    here: str  # bytes that the op keeps: `4 * (N*D)`; "" if unknown
    eager: str  # bytes that plain autograd keeps


def diagram(
    spec: OpSpec,
    derivation: Derivation,
    bytes_of: Callable[[Sequence[Tensors]], str] = total,
) -> Diagram:
    """Return the diagram of an op; `bytes_of` gives the size of tensors as text, for the comparison with eager PyTorch.

    Without a forward there are no sizes, only lines.
    """
    explained = explain(spec, derivation) if spec.forward is not None else None
    drawing = _Drawing(spec, derivation, explained, bytes_of)
    # In this order: an arrow begins at the latest box that wrote the name.
    drawing.draw_forward()
    drawing.draw_saved()
    drawing.draw_backward()
    here = bytes_of([tensors for _, tensors in explained.saved]) if explained else ""
    eager = bytes_of(explained.eager) if explained else ""
    return Diagram(spec.name, tuple(drawing.items), here, eager)


class _Drawing:
    """A diagram in the making: boxes are added from the inputs to the gradients."""

    def __init__(
        self,
        spec: OpSpec,
        derivation: Derivation,
        found: Explanation | None,
        bytes_of: Callable[[Sequence[Tensors]], str],
    ) -> None:
        """Begin a drawing without items; `found` has shapes and sizes, None if the forward is not understood.

        `bytes_of` gives the size of tensors as text.
        """
        self.spec, self.derivation, self.bytes_of = spec, derivation, bytes_of
        self.items: list[Item] = []
        self.latest: dict[str, int] = {}  # name -> its last writer
        self.shapes = found.shapes if found else {}
        self.sizes: dict[str, Tensors] = (
            {item.name: tensors for item, tensors in found.saved} if found else {}
        )

    def draw_forward(self) -> None:
        """Add inputs, then the lines of forward; a line assigning an output becomes an output.

        A returned expression of no such line gets a box of its own.
        """
        outputs = {item.name for item in self.spec.outputs}
        for item in self.spec.tensors:
            dims = self.spec.dims(item.name)
            shape = f"[{', '.join(map(str, dims))}]" if dims else ""
            optional = "may be None" if item.optional else ""
            detail = (shape, optional)
            self._add("forward", "input", (item.name,), detail, (), [item.name])
        for statement in self.derivation.forward or ():
            names = written(statement)
            kind: Kind = "output" if names & outputs else "line"
            self._add_statement("forward", kind, statement)
        # There are no results yet if the forward is to be written.
        for output, result in zip(
            self.spec.outputs, self.derivation.results, strict=False
        ):
            # A result that a line assigned under the output's name has its box.
            if emit(result) != output.name or output.name not in self.latest:
                self._add_result(output.name, result)

    def _add_result(self, name: str, result: Node) -> None:
        """Add the box of a returned value, `y = x + 1`; no statement of the forward assigns it to the output's name."""
        lines = tuple(emit(result).splitlines())
        if len(lines) == 1:
            lines = (f"{name} = {lines[0]}",)
        shape, reads = self.shapes.get(name, ""), self._at(_names((result,)))
        self._add("forward", "output", lines, (shape,), reads, [name])

    def draw_saved(self) -> None:
        """Add the values on ctx: tensors with their bytes, and values computed from shapes.

        Arrows lead to them from their writers in the forward. Attributes of the op get no box.
        """
        forward = dict(self.latest)  # a saved tensor has the same name here
        for item in self.derivation.saved:
            tensors = self.sizes.get(item.name)
            size = f"{self.bytes_of([tensors])} bytes" if tensors else ""
            served = ", ".join(f"grad_{name}" for name in sorted(item.serves))
            detail = (size, f"for {served}")
            reads = [forward[item.origin]] if item.origin in forward else []
            self._add("saved", "saved", (item.name,), detail, reads, [item.name])
        attributes = {item.name for item in self.spec.attributes}
        for kept in self.derivation.kept:
            if kept.expression in attributes:  # an input of the op, of no shape
                continue
            # The tensor in `x.shape` or `len(tensors)`.
            name = kept.expression.split(".")[0].split("(")[-1]
            origin = kept.output or name
            line = f"ctx.{kept.name} = {kept.expression}"
            reads = [forward[origin]] if origin in forward else []
            self._add("saved", "saved", (line,), ("no tensor",), reads, [kept.name])

    def draw_backward(self) -> None:
        """Add the gradients of the outputs, then the lines of backward; a line assigning the gradient of an input is marked as such."""
        for output in self.spec.outputs:
            name = grad_name(self.spec, output.name)
            self._add("backward", "input", (name,), (), (), [name])
        targets = {f"grad_{item.name}" for item in self.spec.differentiable}
        for statement in self.derivation.lines:
            kind: Kind = "gradient" if written(statement) & targets else "line"
            self._add_statement("backward", kind, statement)

    def _add_statement(self, part: Part, kind: Kind, statement: Statement) -> None:
        """Add the box of a statement, in the forward with the shape of the value it makes."""
        bare = replace(statement, comments=())  # for lack of room
        lines = tuple(emit_lines([bare]))
        names = written(statement)
        shape = next((self.shapes[n] for n in sorted(names) if n in self.shapes), "")
        detail = (shape,) if part == "forward" else ()
        reads = self._at(_names(expressions(statement)))
        self._add(part, kind, lines, detail, reads, sorted(names))

    def _at(self, names: Iterable[str]) -> Iterator[int]:
        """Return the items that wrote the names last; a name without one, as an attribute's, is left out."""
        return (self.latest[name] for name in names if name in self.latest)

    def _add(
        self,
        part: Part,
        kind: Kind,
        lines: tuple[str, ...],
        detail: Iterable[str],
        reads: Iterable[int],
        writes: Iterable[str],
    ) -> None:
        """Add one item, and make it the last writer of the names in `writes`.

        `lines` is its code, `detail` further text, without what is unknown; `reads` are the items with arrows to it.
        """
        said = tuple(line for line in detail if line not in ("", UNKNOWN))
        self.items.append(Item(part, kind, lines, said, tuple(sorted(set(reads)))))
        self.latest |= dict.fromkeys(writes, len(self.items) - 1)


def _names(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the names in expressions, including labels of values and attributes of ctx: `x`, and `x_shape` of `ctx.x_shape`.

    The items that wrote these are read by the line.
    """
    for node in nodes:
        for part in node.walk():
            # `ctx.x_shape` has a box of its own, as it is kept on ctx.
            on_ctx = part.kind == "attribute" and part.args[0].label == "ctx"
            if on_ctx or part.kind in ("name", "value"):
                yield part.label
