"""Write arithmetic of the backward in place, on its own temporaries: `grad_output * x * y` -> `(grad_output * x).mul_(y)`.

That saves memory where no second derivative is needed; `printer` asks here before it spells an op as usual.

In: an op whose arguments are being written. Out: an expression that changes one of them in place, or None. Invariant: only a
temporary of the expression itself is changed, it has the result's shape and precision, and nothing reads it afterwards; under vmap
it is batched if another argument is.

Words: a temporary is a value without another reader; it is `free` if the op may overwrite it. A sum (`SUMS`) is `a + b` or `a - b`.
A one-hot is a tensor of zeros with ones scattered along a dim.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from scaffold.derive.graph.conditions import may_be_number
from scaffold.derive.graph.op import Op, tensors
from scaffold.derive.graph.precision import Precision
from scaffold.derive.graph.shapes import SCALAR
from scaffold.derive.simplify.rewrites import is_one_hot
from scaffold.formula import Graph, If, Node, Statement

# Either operand of an operator may be overwritten.
SUMS = frozenset({"add", "sub"})
OPERATORS = SUMS | {"mul", "div"}


def adds_in_place(op: Op, roots: Iterable[Op]) -> bool:
    """Return whether an op may add into its first argument in every mode, of autograd and of vmap: `g.scatter_add_(1, index, src)`.

    That is a product, whose own derivative does not read it, and batched if another argument is. Nothing else reads it, but for its dtype.
    A product of matrices is left alone: of a DTensor it may be one of several addends.
    """
    own, *others = op.args or (op,)
    alike = op.facts.shape == "x" or own.shape == op.shape
    fits = alike and op.facts.in_place and op.facts.linear and op.rule not in SUMS
    product = own.facts.category == "elementwise" and "multilinear" in own.facts.flags
    if not (fits and product):
        return False
    ops = (user for root in roots for user in root.walk())
    read = (
        user for user in ops if own in user.args[: 1 if user.rule == "cast" else None]
    )
    rules, sources = {part.rule for part in own.walk()}, _sources(own)
    return (
        {*read} == {op}
        and own not in others
        and rules & {"cotangent", "cond"} == {"cotangent"}
        and all(_sources(arg) <= sources for arg in tensors(others))
    )


def _sources(op: Op) -> set[Op]:
    """Return the tensors from which a value is computed that are not computed themselves."""
    return {part for part in tensors(op.walk()) if not any(tensors(part.args))}


def in_place_call(graph: Graph, written: Node, op: Op, first: Node) -> Node | None:
    """Return the call that writes an op into its `first` argument, for the one it is `written` as: `g.exp_()`; None for an operator."""
    if written.kind != "call" or op.facts.in_place is None:
        return None
    callee, *args = written.args
    rest = args if callee.args[:1] == (first,) else args[1:]
    method = graph.node("attribute", op.facts.in_place, (first,))
    return graph.node("call", "", (method, *rest), written.keywords)


class Temporaries(NamedTuple):
    """The values of a backward whose memory may be reused, and a record of the reuses."""

    named: Collection[Op]  # values with a statement of their own
    single: Collection[Op]  # named values with only one reader
    precision: Precision
    found: set[Op]  # filled: ops that overwrite a temporary
    made: dict[Node, Op]  # filled: their expressions

    def repeated(self, statements: Iterable[Statement]) -> set[Op]:
        """Return the ops that run in place in two statements: each must get a name, or the memory would be changed twice."""
        if not self.made:
            return set()
        counts = _counts(statements, self.made)
        return {op for node, op in self.made.items() if counts[node] > 1}


class InPlace(NamedTuple):
    """The decision whether an op may reuse an argument's memory, and the expression if it may.

    `node` writes an argument: its name, or its expression; `spelled` writes an op as its rule says.
    """

    graph: Graph
    node: Callable[[Op], Node]
    spelled: Callable[[Op], Node]  # as its rule spells it
    temporaries: Temporaries

    def __call__(self, op: Op) -> Node | None:
        """Return the in-place expression of an op, else `torch.addcmul`, else None: the usual spelling remains.

        An op written in place is recorded in `temporaries`.
        """
        if op.kind != "real":
            return None
        written = self._written(op)
        if written is None:
            return self._fused(op)
        self.temporaries.found.add(op)
        self.temporaries.made[written] = op
        return written

    def _written(self, op: Op) -> Node | None:
        """Return an op written into the memory of an argument, `g.mul_(x)`; None if no argument is free."""
        if op.rule == "neg":
            return self._negated(op)
        method = op.facts.in_place
        if method is None:
            return self._masked(op)
        if op.rule not in OPERATORS:
            return self._by_method(op)
        first, second = op.args
        if self._free(op, first):
            return self._combined(op.rule, method, first, second)
        if op.rule in ("add", "mul") and self._free(op, second):
            return self._combined(op.rule, method, second, first)
        return None

    def _free(self, op: Op, value: Op) -> bool:
        """Return whether an op may overwrite a value: a temporary of its shape and dtype, in new memory, read by nothing else."""
        _, single, precision, *_ = self.temporaries
        return (
            value.facts.memory == "fresh"
            and value.facts.category != "reduction"  # it is small: not worth a method
            and value.kind == "real"
            and value.shape == op.shape != SCALAR
            and (not self._is_named(value) or value in single)  # `single`: read once
            and not may_be_number(value)
            and precision(value) >= precision(op)
            and self._holds_batches(op, value)
        )

    def _holds_batches(self, op: Op, value: Op) -> bool:
        """Return whether a value is batched under vmap whenever another argument is: else the result would not fit in its memory.

        vmap may batch only one of several incoming gradients.
        """
        of_gradients = self.temporaries.precision.of_gradients
        sure = of_gradients(value, surely=True)
        others = (arg for arg in op.args if arg is not value)
        return all(of_gradients(arg) <= sure for arg in others)

    def _is_named(self, op: Op) -> bool:
        return op in self.temporaries.named

    def _is_of_a_number(self, op: Op, value: Op) -> bool:
        """Return whether the minus of `-value` is written on a number in it, so it needs no operation: `-(2 * x)` is `-2 * x`."""
        return (
            op.rule == "neg"
            and value.rule in ("mul", "div")
            and not self._is_named(value)
            and any(arg.kind == "static" for arg in value.args)
        )

    def _negated(self, op: Op) -> Node | None:
        """Return `value.neg_()` for `-value`; None if the value is not free, or the sign belongs to a number in it."""
        (value,) = op.args
        if not self._free(op, value) or self._is_of_a_number(op, value):
            return None
        return self._method(value, "neg_")

    def _by_method(self, op: Op) -> Node | None:
        """Write `zeros.scatter_(dim, index, 1)` or `x.exp_()`; None for an operator, `x ** 2`, or no free memory."""
        if not op.args or not self._free(op, op.args[0]):
            return None
        first = self.node(op.args[0])
        return in_place_call(self.graph, self.spelled(op), op, first)

    def _combined(self, rule: str, method: str, own: Op, other: Op) -> Node:
        """Return the sum, product or quotient of two values, written into `own` by the rule's `method`: `own.add_(other)`.

        A product with a number or a tensor is added in one call: `own.add_(x, alpha=2)`, `own.addcmul_(x, y)`.
        """
        if rule in SUMS and is_one_hot(other) and not self._is_named(other):
            return self._added_to_one(rule, own, other)
        if rule in SUMS and other.rule == "mul" and not self._is_named(other):
            factor, value = other.args
            if factor.kind == "static" and value.kind == "real":
                return self._method(own, method, value, alpha=factor)
            if self._are_tensors(factor, value):
                return self._with_product("addcmul_", rule, own, other)
        return self._method(own, method, other)

    def _are_tensors(self, *ops: Op) -> bool:
        return all(op.kind == "real" and not may_be_number(op) for op in ops)

    def _fused(self, op: Op) -> Node | None:
        """Return `x + y * z` as `torch.addcmul(x, y, z)`, as fast as the product alone; None for another op."""
        for at in (1, 0):
            if self.fuses(op, at) and not self._is_named(op.args[at]):
                return self._with_product("", op.rule, op.args[1 - at], op.args[at])
        return None

    def fuses(self, op: Op, at: int) -> bool:
        """Return whether the term of a sum at position `at` is a product to be written in `torch.addcmul`, so it needs no name.

        All must be tensors, and `addcmul` has no form for `y * z - x`.
        """
        if op.rule not in SUMS or op.args[at].rule != "mul":
            return False
        if op.rule == "sub" and at == 0:
            return False
        parts = (*op.args, *op.args[at].args)
        return self._are_tensors(*parts) and all(part.shape != SCALAR for part in parts)

    def _with_product(self, method: str, rule: str, own: Op, product: Op) -> Node:
        """Return `own + product` or `own - product`, by `own.addcmul_` if that is the `method`, by `torch.addcmul` if it is "".

        `rule` is "add", or "sub" for `own - product`: then the product counts -1 times, `value=-1`.
        """
        factors = map(self.node, product.args)
        if method:
            callee, *first = (self.graph.node("attribute", method, (self.node(own),)),)
        else:
            torch = self.graph.name("torch")
            callee = self.graph.node("attribute", "addcmul", (torch,))
            first = [self.node(own)]
        args = (callee, *first, *factors)
        if rule == "add":
            return self.graph.node("call", "", args)
        minus = self.graph.node("unary", "-", (self.graph.constant("1"),))
        return self.graph.node("call", "", (*args, minus), ("value",))

    def _added_to_one(self, rule: str, own: Op, onehot: Op) -> Node:
        """Return `probs - onehot` as `probs.scatter_(dim, index, -1, reduce="add")`, without allocating zeros."""
        _, dim, index, _ = onehot.args
        callee = self.graph.node("attribute", "scatter_", (self.node(own),))
        one = self.graph.constant("1")
        value = self.graph.node("unary", "-", (one,)) if rule == "sub" else one
        add = self.graph.constant('"add"')
        args = (callee, self.node(dim), self.node(index), value, add)
        return self.graph.node("call", "", args, ("reduce",))

    def _masked(self, op: Op) -> Node | None:
        """Return `where(mask, 0, value)` as `value.masked_fill_(mask, 0)`; None for another op, or if `value` is not free."""
        if op.rule != "where":
            return None
        mask, number, value = op.args
        if number.rule == "const" and self._free(op, value):
            return self._method(value, "masked_fill_", mask, number)
        return None

    def _method(self, own: Op, method: str, *args: Op, alpha: Op | None = None) -> Node:
        """Return `own.method(*args, alpha=alpha)`: `alpha` is the factor of an `add_` or `sub_`, if any."""
        callee = self.graph.node("attribute", method, (self.node(own),))
        nodes = tuple(map(self.node, args))
        if alpha is None:
            return self.graph.node("call", "", (callee, *nodes))
        return self.graph.node(
            "call", "", (callee, *nodes, self.node(alpha)), ("alpha",)
        )


def _counts(statements: Iterable[Statement], among: Collection[Node]) -> Counter[Node]:
    """Count how often statements evaluate each of the expressions `among`; of the two branches of an `if` the larger count is taken.

    Only one of them runs.
    """
    counts = Counter[Node]()
    for item in statements:
        if isinstance(item, If):
            counts += _counts(item.body, among) | _counts(item.orelse, among)
        waiting = [item.test if isinstance(item, If) else item.value]
        while waiting:
            node = waiting.pop()
            if node in among:
                counts[node] += 1
            waiting += node.args
    return counts
