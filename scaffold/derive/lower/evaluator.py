"""The one walk from an expression to its op: of the forward's lines, and of the formulas of rules.

In: a node, and the op of each name in it. Out: its op. Invariant: an op has the value of the expression that it came from. What an
operator, a call or a test means is said by the two that walk so: `expressions` of the forward, `formulas` of rules.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from scaffold.derive.graph.application import Applier, constant
from scaffold.derive.graph.conditions import choose
from scaffold.derive.graph.op import Op, literal, tensors
from scaffold.derive.graph.static_values import (
    UnsupportedError,
    is_sequence,
    item_of_sequence,
)
from scaffold.derive.lower import indexing
from scaffold.formula import Node


class Evaluator(ABC):
    """Turns expressions into ops, with the op that each name has, which `env` says."""

    def __init__(self, applier: Applier, env: Mapping[str, Op]) -> None:
        self.applier, self.program, self.env = applier, applier.program, env

    # What a vocabulary says

    @abstractmethod
    def operator(self, node: Node, *values: Op) -> Op:
        """What the operator or the comparison of a node makes of values."""

    @abstractmethod
    def call(self, node: Node) -> Op:
        """The op of a call."""

    @abstractmethod
    def attribute(self, node: Node) -> Op:
        """The op of an attribute."""

    @abstractmethod
    def test(self, node: Node) -> Op | bool:
        """A test that is fixed for a call; whether it holds, where that is known."""

    @abstractmethod
    def item(self, op: Op, position: int) -> Op:
        """One of several results."""

    @abstractmethod
    def other(self, node: Node) -> Op:
        """The op of any other expression, a name that is not known among them."""

    def python(self, node: Node) -> Op | None:
        """The Python value that an expression is as a whole."""
        return None

    @contextmanager
    def choice(self) -> Iterator[None]:
        """A context for what only some calls compute: a branch of a conditional expression."""
        yield

    # The walk

    def value(self, node: Node) -> Op:
        """The op of an expression."""
        known = constant(self.program, node)
        if known is not None:
            return known
        if node.kind in ("tuple", "list"):
            return self.program.op("list", self.several(node.args))
        if node.kind == "name" and node.label in self.env:
            return self.env[node.label]
        python = self.python(node)
        if python is not None:
            return python
        match node.kind:
            case "unary" | "binary" | "compare":
                return self.operator(node, *map(self.value, node.args))
            case "conditional":
                return self._conditional(node)
            case "subscript":
                return self.subscript(node)
            case "call":
                return self.call(node)
            case "attribute":
                return self.attribute(node)
        return self.other(node)

    def several(self, nodes: Iterable[Node]) -> list[Op]:
        """The values of arguments, those of `*sizes` one by one."""
        found: list[Op] = []
        for node in nodes:
            if node.kind != "starred":
                found.append(self.value(node))
                continue
            inner = self.value(node.args[0])
            inner = self.listed(inner) or inner
            found += inner.args if inner.rule == "list" else [self._starred(inner)]
        return found

    def _starred(self, inner: Op) -> Op:
        if inner.kind != "static":
            raise UnsupportedError("a star before tensors")
        return self.program.op("starred", (inner,))

    def _conditional(self, node: Node) -> Op:
        test, body, orelse = node.args
        told = self.test(test)
        if isinstance(told, bool):
            return self.value(body if told else orelse)
        with self.choice():
            return self.chosen(told, self.value(body), self.value(orelse))

    def chosen(self, test: Op, body: Op, orelse: Op) -> Op:
        """The conditional expression of two values; of two tuples, a tuple of choices."""
        sides = (body, orelse)
        for one, other in (sides, sides[::-1]):
            if one.rule == "list" and other.kind == "group":  # `(None, None) if ...`
                parts = [self.item(other, at) for at in range(len(one.args))]
                listed = self.program.op("list", parts)
                sides = (body, listed) if one is body else (listed, orelse)
        if any(item.rule == "list" and any(tensors((item,))) for item in sides):
            return self._of_lists(test, *sides)
        return choose(self.program, test, body, orelse, zeros=False)

    def _of_lists(self, test: Op, body: Op, orelse: Op) -> Op:
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

    # Indices

    def subscript(self, node: Node) -> Op:
        """The op of an index, or of a slice."""
        inner, index = node.args
        value = self.value(inner)
        if value.kind == "group":
            known = self.listed(value) if index.kind == "slice" else None
            return (
                self._of_list(known, index) if known else self._of_group(value, index)
            )
        if value.rule == "list":
            return self._of_list(value, index)
        several = index.args if index.kind == "tuple" else (index,)
        whole = [self.part(part) for part in several]
        named = index.kind not in ("tuple", "list") and whole[0].rule == "list"
        if named and not any(item.is_tensor for item in whole[0].args):
            # `x[at]` of a tuple is `x[0, 1]`, of a list it is `x[[0, 1]]`.
            raise UnsupportedError("an index that is a tuple or a list")
        return indexing.taken(self.applier, value, whole)

    def _of_group(self, several: Op, index: Node) -> Op:
        """One of several results."""
        at = constant(self.program, index)
        position = None if at is None else literal(at)
        if isinstance(position, int):
            position = indexing.position_of(self.applier, several, position)
        if not isinstance(position, int):
            raise UnsupportedError("an index of a tuple")
        return self.item(several, position)

    def listed(self, several: Op) -> Op | None:
        """The values of a tuple one by one, where it is known how many there are."""
        if several.rule == "list" or several.kind != "group":
            return several if several.rule == "list" else None
        count = indexing.count_of(self.applier, several)
        if count is None:
            return None
        self.program.unpack(several)
        return self.program.op("list", [self.item(several, at) for at in range(count)])

    def _of_list(self, several: Op, index: Node) -> Op:
        """One of values that are written out, or some."""
        at = self.part(index)
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

    def part(self, node: Node) -> Op:
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
        part = item_of_sequence(self.program, self.value(node))
        several = part.kind == "static" and is_sequence(self.program, part)
        if part.kind == "group" or several and part.rule != "list":
            raise UnsupportedError("an index that is a tuple")
        return part
