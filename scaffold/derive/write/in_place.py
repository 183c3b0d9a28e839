"""Arithmetic of the backward in the memory of its own temporaries: `(grad_output * x).mul_(y)`.

In: an op whose arguments are being written down. Out: an expression that changes one of them in place, or None. Invariant:
only what the expression itself has made changes, of the result's shape and precision, and nothing reads it afterwards; where
a gradient comes in batches, it holds a batch.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from scaffold.derive.graph.op import Op
from scaffold.derive.graph.precision import Precision
from scaffold.derive.graph.shapes import SCALAR
from scaffold.derive.simplify.rewrites import is_one_hot
from scaffold.formula import Graph, If, Node, Statement

# What is written as an operator has its two sides looked at, either of which may be written over.
OPERATORS = frozenset({"add", "sub", "mul", "div"})


class Temporaries(NamedTuple):
    """The values of a backward whose memory may be taken over, and what has been written so."""

    named: Collection[Op]  # values with a statement of their own
    single: Collection[Op]  # those of them that one place reads
    precision: Precision
    found: set[Op]  # filled: what was written over a temporary
    made: dict[Node, Op]  # filled: and how

    def repeated(self, statements: Iterable[Statement]) -> set[Op]:
        """What statements would do in place more than once: it must have a name."""
        counts = _counts(statements)
        return {op for node, op in self.made.items() if counts[node] > 1}


class InPlace(NamedTuple):
    """What decides whether an op may take an argument's memory."""

    graph: Graph
    node: Callable[[Op], Node]
    spelled: Callable[[Op], Node]  # as its rule says
    temporaries: Temporaries

    def __call__(self, op: Op) -> Node | None:
        """The expression, if memory can be taken over."""
        written = self._written(op) if op.kind == "real" else None
        if written is not None:
            self.temporaries.found.add(op)
            self.temporaries.made[written] = op
        return written

    def _written(self, op: Op) -> Node | None:
        if op.rule == "neg":
            return self._negated(op)
        method = op.facts.in_place
        if method is None:
            return self._masked(op)
        if op.rule not in OPERATORS:
            return self._by_method(op, method)
        first, second = op.args
        if self._free(op, first):
            return self._combined(op.rule, method, first, second)
        if op.rule in ("add", "mul") and self._free(op, second):
            return self._combined(op.rule, method, second, first)
        return None

    def _free(self, op: Op, value: Op) -> bool:
        """Whether a value's memory may become the op's."""
        _, single, precision, *_ = self.temporaries
        return (
            value.facts.memory == "fresh"
            and value.facts.category != "reduction"  # it is small: not worth a method
            and value.kind == "real"
            and value.shape == op.shape != SCALAR
            and (not self._is_named(value) or value in single)
            and not may_be_number(value)
            and precision(value) >= precision(op)
            and precision.of_gradients(value) == precision.of_gradients(op)
        )

    def _is_named(self, op: Op) -> bool:
        return op in self.temporaries.named

    def _is_of_a_number(self, op: Op, value: Op) -> bool:
        """Whether a sign is one of a number in the expression: `-(a * x)` is `-a * x`."""
        return (
            op.rule == "neg"
            and value.rule in ("mul", "div")
            and not self._is_named(value)
            and any(arg.kind == "static" for arg in value.args)
        )

    def _negated(self, op: Op) -> Node | None:
        (value,) = op.args
        if not self._free(op, value) or self._is_of_a_number(op, value):
            return None
        return self._on(value, "neg_")

    def _by_method(self, op: Op, name: str) -> Node | None:
        """`zeros.scatter_(dim, index, 1)`, `x.exp_()`; what is spelled as an operator, `x ** 2`, stays one."""
        if not op.args or not self._free(op, op.args[0]):
            return None
        written = self.spelled(op)
        if written.kind != "call":
            return None
        callee, *args = written.args
        first = self.node(op.args[0])
        rest = args if callee.args[:1] == (first,) else args[1:]
        method = self.graph.node("attribute", name, (first,))
        return self.graph.node("call", "", (method, *rest), written.keywords)

    def _combined(self, rule: str, method: str, own: Op, other: Op) -> Node:
        if rule in ("add", "sub") and is_one_hot(other) and not self._is_named(other):
            return self._added_to_one(rule, own, other)
        if rule in ("add", "sub") and other.rule == "mul" and not self._is_named(other):
            factor, value = other.args
            if factor.kind == "static" and value.kind == "real":
                return self._on(own, method, value, alpha=factor)
            plain = may_be_number(factor) or may_be_number(value)
            if rule == "add" and factor.kind == value.kind == "real" and not plain:
                return self._on(own, "addcmul_", factor, value)
        return self._on(own, method, other)

    def _added_to_one(self, rule: str, own: Op, onehot: Op) -> Node:
        """`probs - onehot` without a tensor for the zeros."""
        _, dim, index, _ = onehot.args
        callee = self.graph.node("attribute", "scatter_", (self.node(own),))
        one = self.graph.constant("1")
        value = self.graph.node("unary", "-", (one,)) if rule == "sub" else one
        add = self.graph.constant('"add"')
        args = (callee, self.node(dim), self.node(index), value, add)
        return self.graph.node("call", "", args, ("reduce",))

    def _masked(self, op: Op) -> Node | None:
        """`where(mask, 0, value)`."""
        if op.rule != "where":
            return None
        mask, number, value = op.args
        if number.rule == "const" and self._free(op, value):
            return self._on(value, "masked_fill_", mask, number)
        return None

    def _on(self, own: Op, method: str, *args: Op, alpha: Op | None = None) -> Node:
        callee = self.graph.node("attribute", method, (self.node(own),))
        nodes = tuple(map(self.node, args))
        if alpha is None:
            return self.graph.node("call", "", (callee, *nodes))
        return self.graph.node(
            "call", "", (callee, *nodes, self.node(alpha)), ("alpha",)
        )


def _counts(statements: Iterable[Statement]) -> Counter[Node]:
    """How often each expression is evaluated; of two branches, one is."""
    counts = Counter[Node]()
    for item in statements:
        if isinstance(item, If):
            counts += _counts(item.body) | _counts(item.orelse)
        waiting = [item.test if isinstance(item, If) else item.value]
        while waiting:
            node = waiting.pop()
            counts[node] += 1
            waiting += node.args
    return counts


def may_be_number(op: Op) -> bool:
    """Whether a value is 0 itself under some test, rather than a tensor of zeros."""
    if op.rule == "cond":
        return any(not arg.is_tensor or may_be_number(arg) for arg in op.args)
    if op.rule in ("add", "sub", "mul", "div", "neg"):
        return all(not arg.is_tensor or may_be_number(arg) for arg in op.args)
    return False
