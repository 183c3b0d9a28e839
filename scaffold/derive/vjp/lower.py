"""The forward of an op as primitives.

In: its statements and results, as they will stand. Out: a `Lowered`. Invariant: an op has the value of the expression
that it came from; what is not understood is a call without a rule, or `UnsupportedError`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from scaffold.derive.activity import carries_gradient, is_random
from scaffold.derive.forward import Forward
from scaffold.derive.kinds import Kinds
from scaffold.derive.memory import Trace
from scaffold.derive.vjp import indexing
from scaffold.derive.vjp.apply import Applier, Bound, constant
from scaffold.derive.vjp.ir import Kind, Op, Program, literal
from scaffold.derive.vjp.shapes import SCALAR, Shape, unknown
from scaffold.derive.vjp.written import UnsupportedError, number_node, static_node
from scaffold.formula import (
    WELL_KNOWN,
    Assign,
    If,
    Node,
    Statement,
    changed_in_place,
    keywords,
    sharing,
    written,
)
from scaffold.spec import OpSpec, TensorInput

KINDS: Mapping[str, Kind] = {
    "float": "real",
    "complex": "complex",
    "int": "int",
    "index": "int",
    "bool": "bool",
}


class Lowered(NamedTuple):
    """The forward as a graph, and the names that hold its values in the end."""

    results: tuple[Op, ...]
    inputs: dict[str, Op]
    held: dict[Op, str]


def lower(
    spec: OpSpec, forward: Forward, applier: Applier, wanted: frozenset[str]
) -> Lowered:
    """The graph of a forward; only the wanted inputs are active."""
    lowering = Lowering(spec, applier, wanted)
    lowering.check(forward.statements)
    lowering.block(forward.statements)
    results = tuple(lowering.value(node) for node in forward.results)
    return Lowered(results, lowering.inputs, lowering.held())


class Lowering:
    """Walks the statements with the op that each name has at that point."""

    def __init__(self, spec: OpSpec, applier: Applier, wanted: frozenset[str]) -> None:
        self.spec, self.applier = spec, applier
        self.program: Program = applier.program
        plain = [
            item.name
            for item in spec.attributes
            if item.annotation != "object" and item.imported is None
        ]
        several = [item.name for item in spec.tensors if item.variadic]
        self.kinds = Kinds(plain, several)
        self.imported = {item.binding for item in spec.imports}
        self.inputs = {
            item.name: self._input(item, item.name in wanted) for item in spec.tensors
        }
        self.env: dict[str, Op] = dict(self.inputs)
        for item in spec.attributes:
            self.env[item.name] = self.program.static(
                self.program.graph.name(item.name)
            )
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

    def held(self) -> dict[Op, str]:
        """The names of values that can be read after the last statement; inputs go first."""
        found: dict[Op, str] = {}
        for name, op in self.env.items():
            if op.rule not in ("const", "list"):
                found.setdefault(op, name)
        return found

    def check(self, statements: tuple[Statement, ...]) -> None:
        """Refuse what changes tensors, other than `h += x` on a tensor of its own."""
        if self.spec.dirty:
            raise UnsupportedError("it changes an input in place")
        for change in Trace(statements, sharing).changes:
            if len(change.holders) > 1 or change.outside:
                raise UnsupportedError(f"'{change.name}' changes in place")
        for item in statements:
            self._count(item)

    def _count(self, item: Statement) -> None:
        if isinstance(item, If):
            for inner in (*item.body, *item.orelse):
                self._count(inner)
            return
        if item.target.kind in ("subscript", "absent") or any(
            changed_in_place(item.value)
        ):
            raise UnsupportedError("it changes a tensor in place")
        for name in written(item):
            self.writes[name] = self.writes.get(name, 0) + 1

    # Statements

    def block(self, statements: tuple[Statement, ...]) -> None:
        """Run statements."""
        for item in statements:
            if isinstance(item, If):
                self._choice(item)
            else:
                self._assign(item)

    def _assign(self, item: Assign) -> None:
        value = item.value
        if self._draws(item):
            return
        if item.operator:
            value = self.program.graph.node(
                "binary", item.operator, (item.target, value)
            )
        op = self.value(value)
        self.kinds.after((item,))
        self._bind(item.target, op)

    def _bind(self, target: Node, op: Op) -> None:
        if target.kind == "name":
            if op.rule == "static" and self.writes.get(target.label) == 1:
                named = self.program.static(target)
                if op in self.program.fractions:
                    self.program.fractions[named] = self.program.fractions[op]
                op = named
            self.env[target.label] = op
            return
        if target.kind != "tuple":
            raise UnsupportedError("a starred target")
        if op.kind == "group":
            self.program.unpacked.add(op)
        for position, inner in enumerate(target.args):
            self._bind(inner, self.item(op, position))

    def item(self, op: Op, position: int) -> Op:
        """One of several results."""
        if op.rule == "list":
            return op.args[position]
        if op.kind == "static":
            node = self._static_node(op)
            index = self.program.graph.constant(str(position))
            return self.program.static(
                self.program.graph.node("subscript", "", (node, index))
            )
        if op.kind != "group" or op.rule in ("input", "call"):
            raise UnsupportedError("several results of a call that has no rule")
        shape, kind, active = indexing.item_of(self.program, self.applier, op, position)
        return self.program.op(
            "item", (op,), position, kind=kind, shape=shape, active=active
        )

    def _choice(self, item: If) -> None:
        test = self.test(item.test)
        before = dict(self.env)
        self.block(item.body)
        after_body, self.env = self.env, before.copy()
        self.block(item.orelse)
        for name in {**after_body, **self.env}:
            body, orelse = after_body.get(name), self.env.get(name)
            none = self.program.const(None)
            if body is not orelse:
                self.env[name] = self.chosen(test, body or none, orelse or none)

    def test(self, node: Node) -> Node:
        """A condition, if it is fixed for a call."""
        if not self.is_static(node):
            raise UnsupportedError("a condition depends on the data of a tensor")
        self._check_names(node)
        return node

    def chosen(self, test: Node, body: Op, orelse: Op) -> Op:
        """One of two values."""
        return choose(self.program, test, body, orelse)

    # Expressions

    def is_static(self, node: Node) -> bool:
        """Whether an expression has one value throughout a call, whatever the data."""
        scalar = self.kinds.of(node) == "scalar"
        return scalar and not any(
            item.label in ("item", "tolist") for item in node.walk()
        )

    def value(self, node: Node) -> Op:
        """The op of an expression."""
        known = constant(self.program, node)
        if known is not None:
            return known
        if is_random(node) and node.kind == "call":
            return self._random(node)
        if node.kind in ("tuple", "list"):
            return self.program.op("list", map(self.value, node.args))
        if node.kind == "name" and node.label in self.env:
            return self.env[node.label]
        if self.is_static(node):
            return self._static(node)
        method = getattr(self, f"_{node.kind}", None)
        if method is None:
            raise UnsupportedError(f"a {node.kind} in the forward")
        op: Op = method(node)
        return op

    def _static(self, node: Node) -> Op:
        match node:
            case Node("attribute", "shape", (inner,)) if not self.is_static(inner):
                return self.program.op("shape", (), self.value(inner).shape)
            case Node("subscript", _, (Node("attribute", "shape", (inner,)), index)):
                return self._size(node, inner, index)
            case Node("call", _, (Node("attribute", "size", (inner,)), index)):
                return self._size(node, inner, index)
        self._check_names(node)
        op = self.program.static(node)
        self._note_fraction(node, op)
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
            self._check_names(node)
            return self.program.static(node)
        return self.applier_size(self.value(inner), value, node)

    def applier_size(self, op: Op, dim: int, node: Node) -> Op:
        """The size of a tensor, by its name where it has one."""
        from scaffold.derive.vjp.shapes import position

        at = position(op.shape, dim)
        if at is not None and op.shape.dims is not None:
            size = op.shape.dims[at]
            if isinstance(size, int):
                return self.program.const(size)
            if size in self.program.sizes:
                return self.program.sizes[size]
            return self.program.op("size", (), size)
        self._check_names(node)
        return self.program.static(node)

    def _check_names(self, node: Node) -> None:
        """A Python value is written down as it is, so its names must keep what they mean."""
        for name in node.names():
            if self.writes.get(name, 0) > 1:
                raise UnsupportedError(
                    f"'{name}' is assigned twice, and read as a Python value"
                )

    def _static_node(self, op: Op) -> Node:
        if op.rule == "static" and isinstance(op.data, Node):
            return op.data
        raise UnsupportedError("a part of a shape")

    def _draws(self, item: Assign) -> bool:
        """`mask = torch.rand_like(x) > p`: a constant that the forward saves."""
        active = frozenset(name for name, op in self.env.items() if op.active)
        name = item.target.label
        if not is_random(item.value) or carries_gradient(item.value, active):
            return False
        if item.operator or item.target.kind != "name" or self.writes.get(name) != 1:
            return False
        likes = [
            self.env[node.args[1].label].shape
            for node in item.value.walk()
            if node.kind == "call"
            and (node.args[0].label or "").endswith("_like")
            and node.args[1].label in self.env
        ]
        others = [
            op.shape
            for label in item.value.names()
            if (op := self.env.get(label)) and op.is_tensor
        ]
        kind: Kind = "bool" if item.value.kind == "compare" else "real"
        shape = (
            likes[0] if likes and all(other == likes[0] for other in others) else None
        )
        self.env[name] = self.program.op("drawn", (), name, kind=kind, shape=shape)
        return True

    def _random(self, node: Node) -> Op:
        raise UnsupportedError(
            "it draws random numbers inside an expression; give what it draws a line of its own, mask = ..."
        )

    def _name(self, node: Node) -> Op:
        raise UnsupportedError(f"'{node.label}'")

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
        rule = self.applier.table.rule(value.rule)
        if name not in rule.results:
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
        parts = index.args if index.kind == "tuple" else (index,)
        return indexing.taken(self.applier, value, [self._part(part) for part in parts])

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
        return self.value(node)

    def _call(self, node: Node) -> Op:
        callee, *args = node.args
        if any(item.kind == "starred" for item in args) or "**" in node.keywords:
            raise UnsupportedError("a call with a star")
        if node.names() & self.imported:
            raise UnsupportedError("it calls a function that is not PyTorch's")
        count = len(args) - len(node.keywords)
        values = [self.value(item) for item in args[:count]]
        named = {key: self.value(item) for key, item in keywords(node).items()}
        path = dotted(callee)
        if path is not None and path.partition(".")[0] in WELL_KNOWN:
            return self._applied(
                self.applier.found("function", path, values, named), node
            )
        if callee.kind == "name":
            return self._applied(
                self.applier.found("method", callee.label, values, named), node
            )
        if callee.kind != "attribute":
            raise UnsupportedError("a call of what is no name")
        receiver = self.value(callee.args[0])
        return self._applied(
            self.applier.found("method", callee.label, (receiver, *values), named), node
        )

    def _unknown(self, node: Node) -> Op:
        """A call without a rule, over the tensors in it."""
        if node.kind not in ("call", "binary", "attribute"):
            raise UnsupportedError(f"'{node.label}' has no rule")
        graph, args = self.program.graph, list[Op]()

        def placed(item: Node) -> Node | None:
            if item is node or item.kind in ("tuple", "list", "slice", "constant"):
                return None
            if (
                item.kind == "attribute"
                and dotted(item)
                and str(dotted(item)).partition(".")[0] in WELL_KNOWN
            ):
                return item
            if (
                item.kind == "attribute"
                and node.kind == "call"
                and item is node.args[0]
            ):
                return None
            if self.is_static(item):
                self._check_names(item)
                return item
            op = self.value(item)
            if op not in args:
                args.append(op)
            return graph.name(f"<{args.index(op)}>")

        template = graph.rewrite(node, placed)
        if any(not arg.is_tensor for arg in args) or not args:
            raise UnsupportedError(
                "a call over several tensors at once that has no rule"
            )
        name = (dotted(node.args[0]) or node.args[0].label) if node.args else ""
        return self.program.op(
            "call",
            args,
            template,
            kind=_kind_of_call(name, args),
            shape=None,
            active=any(arg.active for arg in args),
        )


def choose(program: Program, test: Node, body: Op, orelse: Op) -> Op:
    """One of two values by a test that is fixed for a call; `not` and `is` are turned around."""
    if body is orelse:
        return body
    match test:
        case Node("unary", "not", (inner,)):
            return choose(program, inner, orelse, body)
        case Node("compare", "is" | "!=" as label, args):
            turned = {"is": "is not", "!=": "=="}[label]
            return choose(
                program, program.graph.node("compare", turned, args), orelse, body
            )
    if body.kind == orelse.kind == "static":
        nodes = [static_node(program, item) for item in (body, orelse)]
        return program.static(program.graph.node("conditional", "", (test, *nodes)))
    tensor = body if body.is_tensor else orelse
    kind: Kind = "complex" if "complex" in (body.kind, orelse.kind) else tensor.kind
    same = body.shape == orelse.shape or not (body.is_tensor and orelse.is_tensor)
    return program.op(
        "cond",
        (body, orelse),
        test,
        kind=kind,
        shape=tensor.shape if same else None,
        active=body.active or orelse.active,
    )


def dotted(node: Node) -> str | None:
    """The path that a callee is, if it is one."""
    if node.kind == "name":
        return node.label
    if node.kind == "attribute":
        inner = dotted(node.args[0])
        return f"{inner}.{node.label}" if inner else None
    return None


def _kind_of_call(name: str, args: list[Op]) -> Kind:
    last = name.rpartition(".")[2]
    if last in ("irfft", "irfft2", "irfftn", "hfft", "hfft2", "hfftn"):
        return "real"
    if ".fft." in name or last in ("stft", "polar", "complex", "eig", "eigvals"):
        return "complex"
    return "complex" if any(arg.kind == "complex" for arg in args) else "real"


__all__ = ["SCALAR", "Lowered", "UnsupportedError", "choose", "lower"]
