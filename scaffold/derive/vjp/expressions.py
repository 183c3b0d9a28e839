"""Expressions of the forward as primitives.

In: an expression, and the op of each name in it. Out: its op. Invariant: an op has the value of the expression that it came
from; what is not understood is a call without a rule, or `UnsupportedError`.
"""

from scaffold.derive.activity import is_random
from scaffold.derive.kinds import kinds_of_inputs
from scaffold.derive.vjp import indexing
from scaffold.derive.vjp.apply import Applier, Bound, constant
from scaffold.derive.vjp.choices import choose
from scaffold.derive.vjp.dtypes import KINDS, kind_named
from scaffold.derive.vjp.ir import Kind, Op, Program, literal, tensors
from scaffold.derive.vjp.python_values import PythonValues
from scaffold.derive.vjp.shapes import Shape, unknown
from scaffold.derive.vjp.sizes import size_at
from scaffold.derive.vjp.tables import ruled_imports
from scaffold.derive.vjp.unruled import item_of_call
from scaffold.derive.vjp.written import UnsupportedError, dotted
from scaffold.formula import Node
from scaffold.spec import OpSpec, TensorInput


class Expressions(PythonValues):
    """Turns expressions into ops, with the op that each name has at that point."""

    def __init__(self, spec: OpSpec, applier: Applier, wanted: frozenset[str]) -> None:
        self.spec, self.applier = spec, applier
        self.program: Program = applier.program
        self.kinds = kinds_of_inputs(spec)
        self.ruled = ruled_imports(spec)
        self.imported = {item.binding for item in spec.imports} - self.ruled
        self.inputs = {
            item.name: self._input(item, item.name in wanted) for item in spec.tensors
        }
        self.env: dict[str, Op] = dict(self.inputs)
        self.program.optional |= {
            self.inputs[item.name] for item in spec.tensors if item.optional
        }
        for item in spec.attributes:
            self.env[item.name] = self.program.static(
                self.program.graph.name(item.name)
            )
        self.program.never_none |= {
            item.name
            for item in spec.attributes
            if "None" not in item.annotation and item.annotation != "object"
        }
        self.program.ints |= {
            item.name for item in spec.attributes if item.annotation == "int"
        }
        self.program.sequences |= {
            item.name
            for item in spec.attributes
            if item.annotation.startswith(("tuple", "list"))
        }
        self.writes: dict[str, int] = {}

    def _input(self, item: TensorInput, wanted: bool) -> Op:
        if item.dims is None:
            shape = unknown("input", item.name)
        else:
            dims = (f"...{item.name}" if dim == "..." else dim for dim in item.dims)
            shape = Shape(tuple(dims))
        kind: Kind = "group" if item.variadic else KINDS[item.dtype]
        return self.program.op(
            "input", (), item.name, kind=kind, shape=shape, active=wanted
        )

    def item(self, op: Op, position: int) -> Op:
        """One of several results."""
        if op.rule == "list":
            return op.args[position]
        if op.rule == "shape" and isinstance(op.data, Shape):
            return size_at(self.program, op.data, position)
        if op.kind == "static":
            node = self._static_node(op)
            index = self.program.graph.constant(str(position))
            return self.program.static(
                self.program.graph.node("subscript", "", (node, index))
            )
        if op.rule == "call" and not op.active:
            return item_of_call(self.program, op, position)
        if op.kind != "group" or op.rule in ("input", "call"):
            raise UnsupportedError("several results of a call that has no rule")
        shape, kind, active = indexing.item_of(self.program, self.applier, op, position)
        return self.program.op(
            "item", (op,), position, kind=kind, shape=shape, active=active
        )

    def chosen(self, test: Node, body: Op, orelse: Op) -> Op:
        """One of two values; of two tuples one by one."""
        if any(
            item.rule == "list" and any(tensors((item,))) for item in (body, orelse)
        ):
            return self._of_lists(test, body, orelse)
        return choose(self.program, test, body, orelse)

    def _of_lists(self, test: Node, body: Op, orelse: Op) -> Op:
        """One of two tuples; None stands for one that a branch leaves out."""
        count = max(len(body.args), len(orelse.args))
        several = [
            [item] * count if literal(item) is None else item.args
            for item in (body, orelse)
            if item.rule == "list" or literal(item) is None
        ]
        if [len(items) for items in several] != [count, count]:
            raise UnsupportedError("a choice between tuples of different lengths")
        pairs = zip(*several, strict=True)
        return self.program.op("list", [self.chosen(test, *pair) for pair in pairs])

    def value(self, node: Node) -> Op:
        """The op of an expression."""
        known = constant(self.program, node)
        if known is not None:
            return known
        if node.kind == "call" and is_random(node):
            return self._random(node)
        if node.kind in ("tuple", "list"):
            return self.program.op("list", self.several(node.args))
        if node.kind == "name" and node.label in self.env:
            return self.env[node.label]
        if node.kind == "attribute" and str(dotted(node)).startswith("torch."):
            return self._of_torch(node)
        if self.is_static(node):
            return self._static(node)
        method = getattr(self, f"_{node.kind}", None)
        if method is None:
            raise UnsupportedError(f"a {node.kind} in the forward")
        op: Op = method(node)
        return op

    def _of_torch(self, node: Node) -> Op:
        """A dtype, or the like."""
        op, kind = self.program.static(node), kind_named(node.label)
        if kind is not None:
            self.program.dtypes[op] = kind
        return op

    def _static_node(self, op: Op) -> Node:
        if op.rule == "static" and isinstance(op.data, Node):
            return op.data
        raise UnsupportedError("a part of a shape")

    def _random(self, node: Node) -> Op:
        raise UnsupportedError(
            "it draws random numbers inside an expression; give what it draws a line of its own, mask = ..."
        )

    def _name(self, node: Node) -> Op:
        if node.label not in ("bool", "int", "float"):
            raise UnsupportedError(f"'{node.label}'")
        return self._of_torch(node)

    def _unary(self, node: Node) -> Op:
        (inner,) = node.args
        value = self.value(inner)
        if node.label == "+":
            return value
        return self._operator(node, node.label, value)

    def _binary(self, node: Node) -> Op:
        left, right = map(self.value, node.args)
        return self._operator(node, node.label, left, right)

    def _compare(self, node: Node) -> Op:
        if "," in node.label:
            raise UnsupportedError("a chain of comparisons of tensors")
        left, right = map(self.value, node.args)
        return self._operator(node, node.label, left, right)

    def _operator(self, node: Node, label: str, *values: Op) -> Op:
        return self._applied(self.applier.found("operator", label, values), node)

    def _call(self, node: Node) -> Op:
        raise NotImplementedError

    def _unknown(self, node: Node) -> Op:
        raise NotImplementedError

    def _applied(self, bound: Bound | None, node: Node) -> Op:
        if bound is None:
            return self._unknown(node)
        return self.applier.apply(bound.rule, bound.args)

    def _conditional(self, node: Node) -> Op:
        test, body, orelse = node.args
        return self.chosen(self.test(test), self.value(body), self.value(orelse))

    def _attribute(self, node: Node) -> Op:
        (inner,) = node.args
        value = self.value(inner)
        if node.label in ("values", "indices") and value.kind == "group":
            return self._field(value, node.label)
        if node.label == "data":
            return self._applied(self.applier.found("method", "detach", (value,)), node)
        return self._applied(
            self.applier.found("attribute", node.label, (value,)), node
        )

    def _field(self, value: Op, name: str) -> Op:
        rule = self.applier.table.of_op(value.rule)
        if rule is None or name not in rule.results:
            raise UnsupportedError(f".{name}")
        return self.item(value, rule.results.index(name))

    def _subscript(self, node: Node) -> Op:
        inner, index = node.args
        value = self.value(inner)
        if value.kind == "group":
            at = constant(self.program, index)
            position = None if at is None else literal(at)
            if not isinstance(position, int) or position < 0:
                raise UnsupportedError("an index of a tuple")
            return self.item(value, position)
        if value.rule == "list":
            return self._of_list(value, index)
        parts = index.args if index.kind == "tuple" else (index,)
        return indexing.taken(self.applier, value, [self._part(part) for part in parts])

    def _of_list(self, several: Op, index: Node) -> Op:
        """One of values that are written out, or some."""
        at = self._part(index)
        if at.rule == "range":
            lower, upper, step = (self._bound(item) for item in at.args)
            return self.program.op("list", several.args[lower:upper:step])
        position = self._bound(at)
        count = len(several.args)
        if position is None or not -count <= position < count:
            raise UnsupportedError("an index of a tuple")
        return several.args[position]

    def _bound(self, op: Op) -> int | None:
        """Where a part of a tuple begins, or ends."""
        value = literal(op)
        if value is None or isinstance(value, int):
            return value
        raise UnsupportedError("an index of a tuple")

    def _part(self, node: Node) -> Op:
        """A part of an index."""
        if node.kind == "slice":
            none = self.program.const(None)
            return self.program.op(
                "range",
                [
                    none if part.kind == "absent" else self.value(part)
                    for part in node.args
                ],
            )
        part = self.value(node)
        if (
            part.kind == "group"
            or node.kind == "name"
            and node.label in self.program.sequences
        ):
            raise UnsupportedError("an index that is a tuple")
        return part
