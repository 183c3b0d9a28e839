"""Rule formulas over ops.

In: a formula's node, and the op of each name in it. Out: the op of its value. Invariant: all primitives are made by the
smart constructors; a test of arguments that are written out is settled here.
"""

from collections.abc import Mapping

from scaffold.derive.graph.application import constant
from scaffold.derive.graph.op import Op, literal
from scaffold.derive.graph.static_values import (
    UnsupportedError,
    dotted,
    may_be_none,
    static_node,
)
from scaffold.derive.lower import indexing
from scaffold.derive.rules.formula_words import WORDS
from scaffold.derive.rules.several_results import item_at
from scaffold.derive.rules.table import Rule, Table
from scaffold.derive.simplify.constructors import Maker
from scaffold.formula import UNKNOWN, Node, compared, keywords

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "@": "matmul"}


class Evaluator:
    """Evaluates the formulas of one rule application."""

    def __init__(self, make: Maker, env: Mapping[str, Op], table: Table) -> None:
        self.make, self.env, self.program = make, env, make.program
        self.table = table  # in which the rule stands

    def value(self, node: Node) -> Op:
        """The op of a formula."""
        if node.kind == "name" and node.label in self.env:
            return self.env[node.label]
        known = constant(self.program, node)
        if known is not None:
            return known
        match node.kind:
            case "tuple" | "list":
                return self.program.op("list", map(self.value, node.args))
            case "unary":
                return self._unary(node)
            case "binary":
                return self._binary(node)
            case "compare":
                return self._compare(node)
            case "boolean":
                return self._boolean(node)
            case "conditional":
                return self._conditional(node)
            case "call":
                return self._call(node)
            case "subscript":
                return self._subscript(node)
            case "attribute":
                return self._attribute(node)
        raise UnsupportedError(f"{node.kind} in a formula")

    def _attribute(self, node: Node) -> Op:
        if dotted(node) is None or not str(dotted(node)).startswith("math."):
            raise UnsupportedError(f".{node.label} in a formula")
        return self.program.static(self._copied(node))

    def _copied(self, node: Node) -> Node:
        """A node of the table's graph in the program's."""
        args = tuple(map(self._copied, node.args))
        return self.program.graph.node(node.kind, node.label, args, node.keywords)

    def _unary(self, node: Node) -> Op:
        value = self.value(node.args[0])
        if node.label == "-":
            return self.make("neg", value)
        if node.label == "not":
            plain = literal(value)
            if plain is not UNKNOWN:
                return self.make.const(not plain)
            return self.program.python("unary", "not", value)
        return self._found(node.label, value)

    def _binary(self, node: Node) -> Op:
        left, right = map(self.value, node.args)
        if node.label in ARITHMETIC:
            return self.make(ARITHMETIC[node.label], left, right)
        return self._found(node.label, left, right)

    def _compare(self, node: Node) -> Op:
        left, right = map(self.value, node.args)
        if node.label in ("is", "is not") and literal(right) is None and left.is_tensor:
            return self._presence(node.label, left)
        if left.is_tensor or right.is_tensor:
            return self._found(node.label, left, right)
        settled = self._settled(node.label, left, right)
        if settled is not None:
            return self.make.const(settled)
        return self.program.python("compare", node.label, left, right)

    def _presence(self, label: str, tensor: Op) -> Op:
        """Whether an argument is there, which only the call decides of an optional input."""
        if any(map(self.program.may_be_absent, tensor.walk())):
            if tensor.rule != "input":
                raise UnsupportedError("a value that may be absent")
            graph = self.program.graph
            pair = (graph.name(tensor.name), graph.constant("None"))
            return self.program.static(graph.node("compare", label, pair))
        return self.make.const(label == "is not")

    def _settled(self, label: str, left: Op, right: Op) -> bool | None:
        one, two = literal(left), literal(right)
        if label in ("is", "is not") and two is None and one is UNKNOWN:
            if may_be_none(self.program, left):
                return None
            return label == "is not"  # an attribute with a value
        return compared(label, one, two)

    def _boolean(self, node: Node) -> Op:
        values = [self.value(arg) for arg in node.args]
        decisive = node.label == "or"
        rest = []
        for value in values:
            plain = literal(value)
            if plain is UNKNOWN:
                rest.append(value)
            elif bool(plain) is decisive:
                return self.make.const(decisive)
        if not rest:
            return self.make.const(not decisive)
        if len(rest) == 1:
            return rest[0]
        return self.program.python("boolean", node.label, *rest)

    def _conditional(self, node: Node) -> Op:
        test, body, orelse = node.args
        settled = self.value(test)
        plain = literal(settled)
        if plain is not UNKNOWN:
            return self.value(body if plain else orelse)
        condition = static_node(self.program, settled)
        return self.make.choose(condition, self.value(body), self.value(orelse))

    def _subscript(self, node: Node) -> Op:
        value, index = node.args
        parts = index.args if index.kind == "tuple" else (index,)
        whole, several = self.value(value), [self._part(part) for part in parts]
        if whole.kind == "group":  # one of several results
            return item_at(self.make, whole, int(str(literal(several[0]))))
        return indexing.taken(self.make.applier, whole, several)

    def _part(self, node: Node) -> Op:
        if node.kind == "slice":
            none = self.make.const(None)
            parts = [
                none if part.kind == "absent" else self.value(part)
                for part in node.args
            ]
            return self.program.op("range", parts)
        return self.value(node)

    def _call(self, node: Node) -> Op:
        callee, *args = node.args
        count = len(args) - len(node.keywords)
        values = [self.value(arg) for arg in args[:count]]
        named = {key: self.value(arg) for key, arg in keywords(node).items()}
        if callee.kind != "name":
            return self._of_math(node)
        if callee.label in WORDS:
            return WORDS[callee.label](self.make, *values)
        if callee.label in ("min", "max"):
            return self.program.called(callee.label, *values)
        if callee.label not in self.table:
            raise UnsupportedError(f"{callee.label} in a formula")
        rule = self.table.rule(callee.label)
        return self.make(rule.op, *self._in_order(rule, values, named))

    def _in_order(self, rule: Rule, values: list[Op], named: dict[str, Op]) -> list[Op]:
        """Keyword arguments in their places, defaults between them filled in."""
        if not named:
            return values
        rest = rule.parameters[len(values) :]
        last = max(at for at, item in enumerate(rest) if item.name in named)
        for item in rest[: last + 1]:
            default = item.default
            assert item.name in named or default is not None
            values.append(named[item.name] if item.name in named else self.make.applier.default(default))  # type: ignore[arg-type]
        return values

    def _of_math(self, node: Node) -> Op:
        callee, *args = node.args
        function = self.program.static(self._copied(callee))
        return self.program.python("call", "", function, *map(self.value, args))

    def _found(self, label: str, *values: Op) -> Op:
        if all(value.kind == "static" for value in values) and label in (
            "//",
            "%",
            "**",
        ):
            name = {"//": "floor_divide", "%": "remainder", "**": "pow"}[label]
            return self.make(name, *values)
        bound = self.make.applier.found("operator", label, values)
        if bound is None:
            raise UnsupportedError(f"{label} in a formula")
        return self.make(bound.rule.op, *values)
