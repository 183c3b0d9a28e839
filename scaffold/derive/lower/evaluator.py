"""Evaluate an expression as an op of the graph: one walk for the forward's lines and for the formulas of rules.

In: a node, and the op of each name in it: `x * y.exp()`. Out: its op: `mul(x, exp(y))`. Invariant: an op has the value of its
expression. The two subclasses define the meaning of operators, calls and tests: `expressions` for the forward, `formulas` for
rules.

Words: a `static` op is a Python value, a "list" a tuple or list written out, a "group" the tuple that a call returns (`x.max(0)`),
a "range" a slice of an index. `literal(op)` is its value if it is a literal, `UNKNOWN` if only the call tells it.
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
    """A translator of expressions into ops; `env` maps each name to its op."""

    def __init__(self, applier: Applier, env: Mapping[str, Op]) -> None:
        self.applier, self.program, self.env = applier, applier.program, env

    # The vocabulary, defined by subclasses

    @abstractmethod
    def operator(self, node: Node, *values: Op) -> Op:
        """Apply the operator or comparison of a node to values."""

    @abstractmethod
    def call(self, node: Node) -> Op:
        """Return the op of a call."""

    @abstractmethod
    def attribute(self, node: Node) -> Op:
        """Return the op of an attribute."""

    @abstractmethod
    def test(self, node: Node) -> Op | bool:
        """Return the op of a test that has one outcome in each call, or a bool if the outcome is known before."""

    @abstractmethod
    def item(self, op: Op, position: int) -> Op:
        """Return one of several results: the element of a tuple."""

    @abstractmethod
    def other(self, node: Node) -> Op:
        """Return the op of any other expression, such as an unknown name."""

    def python(self, node: Node) -> Op | None:
        """Return the op of an expression that is a Python value as a whole; None to evaluate it part by part."""
        return None

    @contextmanager
    def choice(self) -> Iterator[None]:
        """Enter a context for values computed only in some calls, in a branch of `a if test else b`; subclasses may note it."""
        yield

    # The walk

    def value(self, node: Node) -> Op:
        """Return the op of an expression: of a literal, a name, a Python value as a whole, or by its kind over ops of its parts."""
        literal_op = constant(self.program, node)
        if literal_op is not None:
            return literal_op
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
        """Return the ops of arguments; for `*sizes` those of its items, or a `starred` op if their number is unknown."""
        found: list[Op] = []
        for node in nodes:
            if node.kind != "starred":
                found.append(self.value(node))
                continue
            inner = self.value(node.args[0])
            items = self.listed(inner)
            found += [self._starred(inner)] if items is None else items.args
        return found

    def _starred(self, inner: Op) -> Op:
        """Return the op of `*sizes` with an unknown number of sizes; raise `UnsupportedError` for any number of tensors."""
        if inner.kind != "static":
            raise UnsupportedError("a star before tensors")
        return self.program.op("starred", (inner,))

    def _conditional(self, node: Node) -> Op:
        """Return the op of `body if test else orelse`; only one branch is evaluated if the outcome is known before the call."""
        test, body, orelse = node.args
        outcome = self.test(test)
        if isinstance(outcome, bool):
            return self.value(body if outcome else orelse)
        with self.choice():
            return self.chosen(outcome, self.value(body), self.value(orelse))

    def chosen(self, test: Op, body: Op, orelse: Op) -> Op:
        """Return `body if test else orelse`; of two tuples, a tuple of choices, so each element can have a gradient."""
        sides = (body, orelse)
        for one, other in (sides, sides[::-1]):
            # `(None, None) if t else x.max(0)`: the results of the call are taken one by one, too.
            if one.rule == "list" and other.kind == "group":
                parts = [self.item(other, at) for at in range(len(one.args))]
                listed = self.program.op("list", parts)
                sides = (body, listed) if one is body else (listed, orelse)
        # Tuples of numbers alone are one Python value, which has no gradient.
        if any(item.rule == "list" and any(tensors((item,))) for item in sides):
            return self._of_lists(test, *sides)
        # A 0 written in an expression is a number, not a gradient of zeros with a shape.
        return choose(self.program, test, body, orelse, zeros=False)

    def _of_lists(self, test: Op, body: Op, orelse: Op) -> Op:
        """Return a tuple of choices between the elements of two tuples; a None beside a tuple is a tuple of Nones.

        Raise `UnsupportedError` for tuples of different lengths.
        """
        count = max(len(body.args), len(orelse.args))
        several = [
            [item] * count if literal(item) is None else item.args
            for item in (body, orelse)
            if item.rule == "list" or literal(item) is None
        ]
        # A side that is neither a tuple nor None is left out above: then one length is missing.
        if [len(items) for items in several] != [count, count]:
            raise UnsupportedError("a choice between tuples of different lengths")
        pairs = zip(*several, strict=True)
        return self.program.op("list", [self.chosen(test, *pair) for pair in pairs])

    # Indices

    def subscript(self, node: Node) -> Op:
        """Return the op of `x[index]`: of a tensor, of a tuple written out (a "list"), or of a call with several results (a "group").

        Raise `UnsupportedError` if a name in the index holds a tuple or a list.
        """
        inner, index = node.args
        value = self.value(inner)
        if value.kind == "group":
            # A slice needs the number of parts; `x.chunk(n)[0]` does not.
            items = self.listed(value) if index.kind == "slice" else None
            return (
                self._of_list(items, index) if items else self._of_group(value, index)
            )
        if value.rule == "list":
            return self._of_list(value, index)
        several = index.args if index.kind == "tuple" else (index,)
        parts = [self.part(part) for part in several]
        # Not written out as a tuple or a list, and yet one: it has come by a name.
        named = index.kind not in ("tuple", "list") and parts[0].rule == "list"
        if named and not any(item.is_tensor for item in parts[0].args):
            # `x[at]` with a tuple is `x[0, 1]`, with a list `x[[0, 1]]`: the op of both is one, `list`.
            raise UnsupportedError("an index that is a tuple or a list")
        return indexing.taken(self.applier, value, parts)

    def _of_group(self, several: Op, index: Node) -> Op:
        """Return one of several results at a literal index; raise `UnsupportedError` for any other index."""
        at = constant(self.program, index)
        position = None if at is None else literal(at)
        if isinstance(position, int):
            # None for a negative one that gradients cannot count from the end.
            position = indexing.position_of(self.applier, several, position)
        if not isinstance(position, int):
            raise UnsupportedError("an index of a tuple")
        return self.item(several, position)

    def listed(self, several: Op) -> Op | None:
        """Return the elements of a tuple as a list op; None if their number is unknown, or if it is no tuple."""
        if several.rule == "list":
            return several
        count = indexing.count_of(self.applier, several)
        if count is None:
            return None
        # Their number is known, so all of them exist.
        self.program.unpack(several)
        return self.program.op("list", [self.item(several, at) for at in range(count)])

    def _of_list(self, several: Op, index: Node) -> Op:
        """Return one element of a list written out, or a slice of it; raise `UnsupportedError` for an index unknown before the call."""
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
        """Return a bound of a slice of a list, an int or None; raise `UnsupportedError` if it is unknown before the call."""
        value = literal(op)
        if value is None or isinstance(value, int):
            return value
        raise UnsupportedError("an index of a tuple")

    def part(self, node: Node) -> Op:
        """Return the op of one part of an index: a `range` for `start:end:step`, else the op of the number, mask, list or None.

        Raise `UnsupportedError` for a tuple held by a name: `x[at]` indexes by its elements, not by one part.
        """
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
        # A list written out, `x[[0, 1]]`, is one part.
        if part.kind == "group" or several and part.rule != "list":
            raise UnsupportedError("an index that is a tuple")
        return part
