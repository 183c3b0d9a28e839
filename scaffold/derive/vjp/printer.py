"""Ops -> expressions.

In: an op, and the names of values that have one. Out: a formula's node. Invariant: it has the op's value; each primitive is
spelled as its rule says, without the arguments that are defaults.
"""

from collections.abc import Callable

from scaffold.derive.vjp.chains import ChainPrinter
from scaffold.derive.vjp.ir import Op, is_number, literal
from scaffold.derive.vjp.shapes import Shape
from scaffold.derive.vjp.spelling import Parameter, Spelling
from scaffold.derive.vjp.unsliced import unsliced
from scaffold.derive.vjp.written import UnsupportedError
from scaffold.formula import Node

POSITIONAL = frozenset({"dim", "dims", "dim0", "dim1", "alpha", "shape"})


class Printer(ChainPrinter):
    """Writes ops down."""

    def node(self, op: Op) -> Node:
        """The expression of an op: its name if it has one."""
        if op in self.names:
            return self.graph.name(self.names[op])
        return self.expression(op)

    def expression(self, op: Op) -> Node:
        """The expression, name or not."""
        if self.in_place is not None and (over := self.in_place(op)) is not None:
            return over
        own = WRITERS.get(op.rule)
        return self.by_rule(op) if own is None else own(self, op)

    def by_rule(self, op: Op) -> Node:
        """The expression as the op's rule spells it."""
        rule = self.applier.table.of_op(op.rule)
        if rule is None:
            raise UnsupportedError(f"{op.rule} cannot be written down")
        return self.spelled(rule.spelled, op.args)

    def _expanded(self, op: Op) -> Node:
        assert isinstance(op.data, Shape)
        shape = self.shape(op.data)
        value = self.node(op.args[0])
        if shape.kind == "attribute" and shape.label == "shape":
            return self.method(value, "expand_as", shape.args[0])
        return self.method(value, "expand", shape)

    def _reshaped(self, op: Op) -> Node:
        assert isinstance(op.data, Shape)
        shape = self.shape(op.data)
        return self.method(self.node(op.args[0]), "reshape", shape)

    def _summed_to(self, op: Op) -> Node:
        assert isinstance(op.data, tuple)
        shape, like = op.data
        return self.method(
            self.node(op.args[0]), "sum_to_size", self.shape(shape, like)
        )

    def _fitted_to(self, op: Op) -> Node:
        """`g.expand(torch.broadcast_shapes(g.shape, x.shape)).sum_to_size(x.shape)`."""
        assert isinstance(op.data, tuple)
        value, shape = self.node(op.args[0]), self.shape(*op.data)
        own = self._attribute(value, "shape")
        both = self.function("torch.broadcast_shapes", own, shape)
        return self.method(self.method(value, "expand", both), "sum_to_size", shape)

    def _shaped_like(self, op: Op) -> Node:
        g, like = op.args
        shape = self._attribute(self._anew(like), "shape")
        return self.method(self.node(g), "reshape", shape)

    def _indices(self, op: Op) -> Node:
        """A list of indices as a tensor."""
        values, like = op.args
        device = self._attribute(self._named_like(like), "device")
        return self.function(
            "torch.tensor", self.node(values), device, keywords=("device",)
        )

    def _zeros(self, op: Op) -> Node:
        assert isinstance(op.data, Shape)
        shape = self.shape(op.data)
        like = self._named_like(op.args[0])
        if shape.kind == "attribute" and shape.args[0] is like:
            return self.function("torch.zeros_like", like)
        return self.method(like, "new_zeros", shape)

    def _named_like(self, op: Op) -> Node:
        """A tensor that has a name, of the same dtype."""
        if op in self.names or op.rule in ("input", "cotangent"):
            return self.node(op)
        for other in self.holders.sure:
            if other.rule == "cotangent" and other.kind == op.kind:
                return self.node(other)
        return self.node(op)

    def _starred(self, op: Op) -> Node:
        return self.graph.node("starred", "", (self.node(op.args[0]),))

    def _same(self, op: Op) -> Node:
        return self.node(op.args[0])

    def _cast(self, op: Op) -> Node:
        value, like = op.args
        return self.method(
            self.node(value), "to", self._attribute(self.node(like), "dtype")
        )

    def _item(self, op: Op) -> Node:
        index = self.graph.constant(str(op.data))
        return self.graph.node("subscript", "", (self.node(op.args[0]), index))

    def _cond(self, op: Op) -> Node:
        assert isinstance(op.data, Node)
        body, orelse = (self.branch(op, arg) for arg in op.args)
        return self.graph.node("conditional", "", (self.placed(op.data), body, orelse))

    def branch(self, choice: Op, value: Op) -> Node:
        """The value of a branch; a tensor where the other branch has one: `grad_output.new_zeros(x.shape)`."""
        if is_number(value, 0) and choice.is_tensor:
            for other in self.holders.sure:
                if other.rule == "cotangent" and other.kind == choice.kind:
                    shape = self._shape_or_none(choice)
                    return self.method(self.node(other), "new_zeros", shape)
        return self.node(value)

    def _shape_or_none(self, op: Op) -> Node:
        """The shape of a value; of one that nothing tells, that of a number, which broadcasts."""
        try:
            return self.shape(op.shape)
        except UnsupportedError:
            return self.graph.node("tuple")

    def _lead_dims(self, op: Op) -> Node:
        """All dims but the last."""
        assert isinstance(op.data, Shape) or op.data is None
        rank = op.shape.rank if op.data is None else op.data.rank
        if rank is not None:
            numbers = (self.graph.constant(str(at)) for at in range(rank - 1))
            return self.graph.node("list", "", tuple(numbers))
        ndim = self._of_tensor(op, "ndim")
        last = self.graph.node("binary", "-", (ndim, self.graph.constant("1")))
        dims = self.graph.node("call", "", (self.graph.name("range"), last))
        return self.graph.node("call", "", (self.graph.name("list"), dims))

    def _unless_vector(self, op: Op) -> Node:
        """`g.unsqueeze(-2) if x.ndim == 1 else g`."""
        value, other, ndim = map(self.node, op.args)
        test = self.graph.node("compare", "==", (ndim, self.graph.constant("1")))
        return self.graph.node("conditional", "", (test, other, value))

    def _unless_scalar(self, op: Op) -> Node:
        """`g.unsqueeze(-1) if x.ndim else g`."""
        value, other, ndim = map(self.node, op.args)
        return self.graph.node("conditional", "", (ndim, value, other))

    def _contracted(self, op: Op) -> Node:
        left, right, *dims = map(self.node, op.args)
        pair = self.graph.node("tuple", "", tuple(dims))
        return self.function("torch.tensordot", left, right, pair, keywords=("dims",))

    def _where(self, op: Op) -> Node:
        return self.function("torch.where", *map(self.node, op.args))

    def _einsum(self, op: Op) -> Node:
        equation, operands = op.args
        return self.function(
            "torch.einsum", self.node(equation), *map(self.node, operands.args)
        )

    # Indexing

    def _slice(self, op: Op) -> Node:
        value, dim, *bounds = op.args
        return self._subscripted(value, literal(dim), self._range(bounds))

    def _range(self, bounds: list[Op]) -> Node:
        absent = self.graph.node("absent")
        parts = (
            absent if literal(item) is None else self.node(item) for item in bounds
        )
        return self.graph.node("slice", "", tuple(parts))

    def _select(self, op: Op) -> Node:
        value, dim, index = op.args
        return self._subscripted(value, literal(dim), self.node(index))

    def _subscripted(self, value: Op, dim: object, part: Node) -> Node:
        if not isinstance(dim, int):
            raise UnsupportedError("an index at a dim that is not written out")
        absent = self.graph.node("absent")
        whole = self.graph.node("slice", "", (absent,) * 3)
        dots = self.graph.constant("...")
        parts = (
            [*[whole] * dim, part] if dim >= 0 else [dots, part, *[whole] * (-dim - 1)]
        )
        index = (
            parts[0] if len(parts) == 1 else self.graph.node("tuple", "", tuple(parts))
        )
        return self.graph.node("subscript", "", (self.node(value), index))

    def _index(self, op: Op) -> Node:
        value, *parts = op.args
        nodes = tuple(
            self._range(list(part.args)) if part.rule == "range" else self.node(part)
            for part in parts
        )
        index = nodes[0] if len(nodes) == 1 else self.graph.node("tuple", "", nodes)
        return self.graph.node("subscript", "", (self.node(value), index))

    def _unsliced(self, op: Op) -> Node:
        return unsliced(self, op)

    def _call(self, op: Op) -> Node:
        assert isinstance(op.data, Node)

        def filled(node: Node) -> Node | None:
            if node.kind == "name" and node.label.startswith("<:"):
                return self.node(op.args[int(node.label[2:-1])])
            return self._placeholder(node)

        return self.graph.rewrite(op.data, filled)

    # Rules

    def spelled(self, spelling: Spelling, args: tuple[Op, ...]) -> Node:
        """A primitive as its rule prints it."""
        if spelling.kind == "operator":
            nodes = tuple(map(self.node, args))
            if len(nodes) == 1:
                return self._signed(spelling.name, nodes[0])
            kind = (
                "compare"
                if spelling.name in ("==", "!=", "<", "<=", ">", ">=")
                else "binary"
            )
            return self.graph.node(kind, spelling.name, nodes)  # type: ignore[arg-type]
        if spelling.kind == "attribute":
            return self._attribute(self.node(args[0]), spelling.name)
        pairs = list(zip(spelling.parameters, args, strict=True))
        if spelling.kind == "method":
            callee = self._attribute(self.node(args[0]), spelling.name)
            return self._called(callee, pairs[1:])
        callee = self.function(spelling.name).args[0]
        return self._called(callee, pairs, spelling.name.startswith("torch.linalg."))

    def _signed(self, label: str, value: Node) -> Node:
        """A sign at the first factor of a product, where it needs no parentheses; two are none."""
        if label == "-" and value.kind == "unary" and value.label == "-":
            return value.args[0]
        if label == "-" and value.kind == "binary" and value.label in ("*", "/"):
            left, right = value.args
            return self.graph.node(
                "binary", value.label, (self._signed("-", left), right)
            )
        return self.graph.node("unary", label, (value,))

    def _called(
        self, callee: Node, pairs: list[tuple[Parameter, Op]], by_name: bool = False
    ) -> Node:
        """A call without the arguments that are defaults; with `by_name` options have their names."""
        args, named, skipped = list[Node](), list[tuple[str, Node]](), False
        bounds = [op for parameter, op in pairs if parameter.name in ("min", "max")]
        both = len(bounds) == 2 and all(literal(op) is not None for op in bounds)
        owner = callee.args[0].label if callee.args else ""
        by_name = by_name or owner == "linalg"
        for parameter, op in pairs:
            if parameter.starred and op.rule == "list" and op.args:
                args += map(self.node, op.args)
            elif parameter.default is not None and self._is_default(
                parameter.default, op
            ):
                skipped = True
            elif (
                skipped
                or named
                or parameter.keyword
                or isinstance(literal(op), bool)
                or (
                    parameter.default is not None
                    and (by_name or parameter.name not in POSITIONAL)
                    and not both
                )
            ):
                named.append((parameter.name, self.node(op)))
            else:
                args.append(self.node(op))
        names = tuple(name for name, _ in named)
        return self.graph.node(
            "call", "", (callee, *args, *(node for _, node in named)), names
        )

    def _is_default(self, default: Node, op: Op) -> bool:
        value = literal(self.applier.default(default))
        own = literal(op)
        return type(value) is type(own) and value == own


# How each op is written that no rule of a table spells, or that is written otherwise.
WRITERS: dict[str, Callable[[Printer, Op], Node]] = {
    "expanded": Printer._expanded,
    "reshaped": Printer._reshaped,
    "summed_to": Printer._summed_to,
    "fitted_to": Printer._fitted_to,
    "shaped_like": Printer._shaped_like,
    "indices": Printer._indices,
    "zeros": Printer._zeros,
    "starred": Printer._starred,
    "same": Printer._same,
    "cast": Printer._cast,
    "item": Printer._item,
    "cond": Printer._cond,
    "lead_dims": Printer._lead_dims,
    "unless_vector": Printer._unless_vector,
    "unless_scalar": Printer._unless_scalar,
    "contracted": Printer._contracted,
    "where": Printer._where,
    "einsum": Printer._einsum,
    "slice": Printer._slice,
    "select": Printer._select,
    "index": Printer._index,
    "unsliced": Printer._unsliced,
    "call": Printer._call,
    "mul": Printer._mul,
    "unsqueeze": Printer._unsqueeze,
    "input": Printer._input,
    "const": Printer._const,
    "static": Printer._static,
    "list": Printer._list,
    "shape": Printer._shape,
    "size": Printer._size,
    "rank": Printer._rank,
    "dtype": Printer._dtype,
    "count": Printer._count,
    "ratio": Printer._ratio,
    "cotangent": Printer._cotangent,
}
