"""Python values of the forward: sizes, attributes, tests, and arithmetic on them.

In: expressions that are no tensor. Out: static ops. Invariant: a value is written down over names that still mean the same when
the backward runs.
"""

from collections.abc import Iterable

from scaffold.derive.activity import READ_OUT
from scaffold.derive.kinds import Kinds
from scaffold.derive.vjp.apply import constant
from scaffold.derive.vjp.ir import Op, Program, literal, tensors
from scaffold.derive.vjp.precision import source_of
from scaffold.derive.vjp.sizes import size_at
from scaffold.derive.vjp.written import UnsupportedError, static_node
from scaffold.formula import Node


class PythonValues:
    """What expressions need to know of Python values."""

    program: Program
    kinds: Kinds
    env: dict[str, Op]
    writes: dict[str, int]

    def value(self, node: Node) -> Op:
        """The op of an expression."""
        raise NotImplementedError

    def test(self, node: Node) -> Node:
        """A condition, if it is fixed for a call."""
        if not self.is_static(node):
            raise UnsupportedError("a condition depends on the data of a tensor")
        return self.fixed(node)

    def is_static(self, node: Node) -> bool:
        """Whether an expression has one value throughout a call, whatever the data."""
        scalar = self.kinds.of(node) == "scalar"
        return scalar and not any(item.label in READ_OUT for item in node.walk())

    def several(self, nodes: Iterable[Node]) -> list[Op]:
        """The values of arguments, those of `*sizes` one by one."""
        found: list[Op] = []
        for node in nodes:
            if node.kind != "starred":
                found.append(self.value(node))
                continue
            inner = self.value(node.args[0])
            found += inner.args if inner.rule == "list" else [self._starred(inner)]
        return found

    def _starred(self, inner: Op) -> Op:
        if inner.kind != "static":
            raise UnsupportedError("a star before tensors")
        return self.program.op("starred", (inner,))

    def _static(self, node: Node) -> Op:
        match node:
            case Node("attribute", "shape", (inner,)) if not self.is_static(inner):
                return self.program.op("shape", (), self.value(inner).shape)
            case Node("subscript", _, (Node("attribute", "shape", (inner,)), index)):
                return self._size(node, inner, index)
            case Node("call", _, (Node("attribute", "size", (inner,)), index)):
                return self._size(node, inner, index)
            case Node("call", _, (Node("attribute", "size", (inner,)),)):
                if not self.is_static(inner):
                    return self.program.op("shape", (), self.value(inner).shape)
            case Node("attribute", "dtype", (inner,)) if not self.is_static(inner):
                return self._dtype(node, self.value(inner))
            case Node("call", _, (Node("attribute", "type", (inner,)),)):
                op = self.program.static(self.fixed(node))
                self.program.dtypes[op] = self.value(inner).kind
                return op
        op = self.program.static(self.fixed(node))
        self._note_fraction(node, op)
        match node:
            case Node("binary", "+", (one, Node("constant", text))) if text.isdigit():
                self.program.offsets[op] = self.value(one), int(text)
        return op

    def _dtype(self, node: Node, value: Op) -> Op:
        """The dtype of a tensor, read where it can be."""
        if not self._changes(node):
            op = self.program.static(node)
        else:
            told = self._told_by_input(value, "dtype")
            op = told or self.program.op("dtype", (value,))
        self.program.dtypes[op] = value.kind
        return op

    def _note_fraction(self, node: Node, op: Op) -> None:
        """`x.shape[-1] // 2` is no more than the size."""
        match node:
            case Node("binary", "//", (whole, part)):
                size, count = self.value(whole), literal(self.value(part))
                if size.rule == "size" and isinstance(count, int) and count >= 1:
                    self.program.fractions[op] = str(size.data)

    def _size(self, node: Node, inner: Node, index: Node) -> Op:
        at = constant(self.program, index)
        value = None if at is None else literal(at)
        if not isinstance(value, int) or self.is_static(inner):
            return self._cut(inner, index) or self.program.static(self.fixed(node))
        return size_at(self.program, self.value(inner).shape, value)

    def _cut(self, inner: Node, index: Node) -> Op | None:
        """`x.shape[:-1]`, size by size."""
        if index.kind != "slice" or self.is_static(inner):
            return None
        parts = list[int | None]()
        for item in index.args:
            part = None if item.kind == "absent" else literal(self.value(item))
            if part is not None and not isinstance(part, int):
                return None
            parts.append(part)
        shape = self.value(inner).shape
        if shape.rank is None:
            return None
        places = range(shape.rank)[slice(*parts)]
        return self.program.op(
            "list", [size_at(self.program, shape, at) for at in places]
        )

    def fixed(self, node: Node) -> Node:
        """The expression over names that are assigned once; sizes of others are read where they can be."""

        def placed(item: Node) -> Node | None:
            if not self._changes(item):
                return item if item is not node else None
            found = self._metadata(item)
            return None if found is None else static_node(self.program, found)

        if not self._changes(node):
            return node
        done = self.program.graph.rewrite(node, placed)
        for name in done.names():
            if self.writes.get(name, 0) > 1:
                raise UnsupportedError(
                    f"'{name}' is assigned twice, and read as a Python value"
                )
        return done

    def _changes(self, node: Node) -> bool:
        return any(self.writes.get(name, 0) > 1 for name in node.names())

    def _metadata(self, node: Node) -> Op | None:
        """A name of a Python value, or what a tensor tells without its data."""
        match node:
            case Node("name", name) if name in self.env:
                op = self.env[name]
                return op if op.kind == "static" else None
            case Node("attribute", "shape" | "ndim" as label, (inner,)):
                shape = self.value(inner).shape
                return self.program.op(
                    "shape" if label == "shape" else "rank", (), shape
                )
            case Node("subscript", _, (Node("attribute", "shape", (inner,)), index)):
                return self._size(node, inner, index)
            case Node("call", _, (Node("attribute", "size", (inner,)), index)):
                return self._size(node, inner, index)
            case Node("call", _, (Node("attribute", "numel" | "nelement", (inner,)),)):
                return self.program.op("count", (), self.value(inner).shape)
            case Node("call", _, (Node("attribute", "dim" | "ndimension", (inner,)),)):
                return self.program.op("rank", (), self.value(inner).shape)
            case Node("attribute", "dtype" | "device" as label, (inner,)):
                return self._told_by_input(self.value(inner), label)
        return None

    def _told_by_input(self, value: Op, label: str) -> Op | None:
        """The dtype or the device of a tensor, where an input has the same."""
        source = source_of(value)
        if source is None and label == "device":
            inputs = (op for op in value.walk() if op.rule == "input")
            source = max(inputs, key=lambda op: op.shape.least, default=None)
            if any(op.rule == "call" and any(tensors(op.args)) for op in value.walk()):
                source = None  # it may be on another one
        if source is None or source in self.program.optional:
            return None
        graph = self.program.graph
        node = graph.node("attribute", label, (graph.name(str(source.data)),))
        return self.program.static(node)
