"""Write arithmetic of the backward in place, on its own temporaries: `grad_output * x * y` -> `(grad_output * x).mul_(y)`.

That saves memory where no second derivative is needed; `printer` asks here before it spells an op as usual.

In: an op whose arguments are being written. Out: an expression that changes one of them in place, or None. Invariant: only a
temporary of the expression itself is changed, it has the result's shape and precision, and nothing reads it afterwards; under vmap
it is batched if another argument is.

Words: a temporary is a value without another reader; it is `free` if the op may overwrite it. A sum (`SUMS`) is `a + b` or `a - b`.
A one-hot is a tensor of zeros with ones scattered along a dim. A cotangent is the gradient of the loss by a value; `cond` is a choice,
`a if test else b`.
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


def adds_in_place(op: Op, gradients: Iterable[Op]) -> bool:
    """Return whether an op may always add into the memory of its first argument: `g = grad_output * w`, `g.scatter_add_(1, index, src)`.

    `InPlace` writes other updates only where no second derivative is needed; this one is right there too, and under vmap. `gradients` are
    the results of the backward, in which other readers of `g` are looked for.
    """
    if not (op.args and _adds_linearly(op) and _is_product_in_gradient(op.args[0])):
        return False
    product, *others = op.args
    return (
        product not in others
        and _readers(product, gradients) == {op}
        and _is_batched_with(product, others)
    )


def _adds_linearly(op: Op) -> bool:
    """Return whether an op is linear and has a method that writes into its first argument, like `scatter_add`; sums stay `a + b`."""
    facts = op.facts
    # The fact "x": the result has the shape of the parameter `x`, the first.
    same_shape = facts.shape == "x" or op.args[0].shape == op.shape
    has_method = bool(facts.in_place) and op.rule not in SUMS
    return same_shape and has_method and facts.linear


def _is_product_in_gradient(value: Op) -> bool:
    """Return whether a value is an elementwise product in a gradient, which may be overwritten before a second derivative is computed.

    The derivative of a product reads its factors, and not the product. It has a cotangent in it, since a product of the forward may be
    saved. A product of matrices is left alone: of a DTensor it may be one of several addends.
    """
    elementwise = value.facts.category == "elementwise"
    product = elementwise and "multilinear" in value.facts.flags
    return product and any(part.rule == "cotangent" for part in value.walk())


def _readers(value: Op, gradients: Iterable[Op]) -> set[Op]:
    """Return the ops that read the numbers of a value; a cast reads only the dtype of its second argument, `x.to(value.dtype)`."""
    ops = {op for gradient in gradients for op in gradient.walk()}
    return {op for op in ops if value in op.args[: 1 if op.rule == "cast" else None]}


def _is_batched_with(value: Op, others: Iterable[Op]) -> bool:
    """Return whether vmap gives a value batches whenever one of the others has them: else their sum would not fit in its memory.

    So it is if all tensors the others are computed from are behind the value too, and it has no choice, of which one side is left out.
    """
    chosen = any(part.rule == "cond" for part in value.walk())
    leaves = _leaves(value)
    return not chosen and all(_leaves(other) <= leaves for other in tensors(others))


def _leaves(op: Op) -> set[Op]:
    """Return the given tensors behind a value, those not computed from others: `{x, w}` for `x.exp() * w`."""
    return {part for part in tensors(op.walk()) if not any(tensors(part.args))}


def in_place_call(graph: Graph, written: Node, op: Op, first: Node) -> Node | None:
    """Return the call that writes an op into its `first` argument, for the one it is `written` as: `g.exp_()`; None for an operator."""
    if written.kind != "call" or op.facts.in_place is None:
        return None
    callee, *args = written.args
    # `x.scatter(1, i, g)` has `x` before the dot, `torch.scatter(x, 1, i, g)` among its arguments.
    rest = args if callee.args[:1] == (first,) else args[1:]
    method = graph.node("attribute", op.facts.in_place, (first,))
    return graph.node("call", "", (method, *rest), written.keywords)


class Temporaries(NamedTuple):
    """The values of a backward whose memory may be reused, and a record of the reuses."""

    named: Collection[Op]  # values with a statement of their own
    single: Collection[Op]  # named values with only one reader
    precision: Precision
    overwriting: set[Op]  # filled in: the ops that overwrite a temporary
    written: dict[Node, Op]  # filled in: the same ops by their expressions

    def repeated(self, statements: Iterable[Statement]) -> set[Op]:
        """Return the ops that run in place in two statements: each must get a name, or the memory would be changed twice."""
        if not self.written:
            return set()
        counts = _counts(statements, self.written)
        return {op for node, op in self.written.items() if counts[node] > 1}


class InPlace(NamedTuple):
    """The decision whether an op may reuse an argument's memory, and the expression if it may.

    `node` writes an argument: its name, or its expression; `spelled` writes an op as its rule says.
    """

    graph: Graph
    node: Callable[[Op], Node]
    spelled: Callable[[Op], Node]
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
        self.temporaries.overwriting.add(op)
        self.temporaries.written[written] = op
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
        # Not `a - b` nor `a / b`, which written into `b` would be another value.
        if op.rule in ("add", "mul") and self._free(op, second):
            return self._combined(op.rule, method, second, first)
        return None

    def _free(self, op: Op, value: Op) -> bool:
        """Return whether an op may overwrite a value: a temporary of its shape and dtype, in new memory, read by nothing else."""
        precision = self.temporaries.precision
        return (
            value.facts.memory == "fresh"
            and value.facts.category != "reduction"  # it is small: not worth a method
            and value.kind == "real"
            and value.shape == op.shape != SCALAR  # of a scalar no memory is saved
            # Without a name, it is written out for this reader alone.
            and (not self._is_named(value) or value in self.temporaries.single)
            and not may_be_number(value)
            # Sets of the values that decide a dtype: the value's dtype is the result's, if it has them all.
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

    def _negated(self, op: Op) -> Node | None:
        """Return `value.neg_()` for `-value`; None if the value is not free, or a number in it takes the minus: `-(2 * x)` is `-2 * x`."""
        (value,) = op.args
        written_out = value.rule in ("mul", "div") and not self._is_named(value)
        if written_out and any(arg.kind == "static" for arg in value.args):
            return None
        return self._method(value, "neg_") if self._free(op, value) else None

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
            return self._added_one_hot(rule, own, other)
        if rule in SUMS and other.rule == "mul" and not self._is_named(other):
            factor, value = other.args
            # `own.add_(x, alpha=2)`; a Python number stands first in a product.
            if factor.kind == "static" and value.kind == "real":
                alpha = self.node(factor)
                return self._method(own, method, self.node(value), alpha=alpha)
            if self._are_tensors(factor, value):
                factors = map(self.node, other.args)
                return self._method(own, "addcmul_", *factors, **self._sign(rule))
        return self._method(own, method, self.node(other))

    def _are_tensors(self, *ops: Op) -> bool:
        return all(op.kind == "real" and not may_be_number(op) for op in ops)

    def _fused(self, op: Op) -> Node | None:
        """Return `x + y * z` as `torch.addcmul(x, y, z)`, as fast as the product alone; None for another op."""
        for at in (1, 0):
            product = op.args[at] if self.fuses(op, at) else None
            if product is not None and not self._is_named(product):
                torch, other = self.graph.name("torch"), self.node(op.args[1 - at])
                factors = map(self.node, product.args)
                sign = self._sign(op.rule)
                return self._call(torch, "addcmul", other, *factors, **sign)
        return None

    def fuses(self, op: Op, at: int) -> bool:
        """Return whether the term of a sum at position `at` is a product to be written in `torch.addcmul`, so it needs no name.

        All must be tensors with dims.
        """
        if op.rule not in SUMS or op.args[at].rule != "mul":
            return False
        if op.rule == "sub" and at == 0:  # `addcmul` has no form for `y * z - x`
            return False
        parts = (*op.args, *op.args[at].args)
        return self._are_tensors(*parts) and all(part.shape != SCALAR for part in parts)

    def _sign(self, rule: str) -> dict[str, Node]:
        """Return the keyword of `addcmul` by which it subtracts the product, `value=-1`, if the rule is "sub"; {} for "add"."""
        return {"value": self._one("-")} if rule == "sub" else {}

    def _added_one_hot(self, rule: str, own: Op, onehot: Op) -> Node:
        """Return `probs - onehot` as `probs.scatter_(dim, index, -1, reduce="add")`, without allocating zeros."""
        _, dim, index, _ = onehot.args
        value = self._one("-" if rule == "sub" else "")
        place = self.node(dim), self.node(index)
        add = self.graph.constant('"add"')
        return self._method(own, "scatter_", *place, value, reduce=add)

    def _one(self, sign: str) -> Node:
        """Return the number 1 with a sign, "-" or ""."""
        one = self.graph.constant("1")
        return self.graph.node("unary", sign, (one,)) if sign else one

    def _masked(self, op: Op) -> Node | None:
        """Return `where(mask, 0, value)` as `value.masked_fill_(mask, 0)`; None for another op, or if `value` is not free."""
        if op.rule != "where":
            return None
        mask, number, value = op.args
        # `masked_fill_` takes a number, and fills where the mask is true.
        if number.rule == "const" and self._free(op, value):
            given = map(self.node, (mask, number))
            return self._method(value, "masked_fill_", *given)
        return None

    def _method(self, own: Op, method: str, *args: Node, **keywords: Node) -> Node:
        """Return `own.method(*args, **keywords)`: `own.add_(x, alpha=2)`."""
        return self._call(self.node(own), method, *args, **keywords)

    def _call(self, owner: Node, name: str, *args: Node, **keywords: Node) -> Node:
        """Return `owner.name(*args, **keywords)`."""
        callee = self.graph.node("attribute", name, (owner,))
        values = (callee, *args, *keywords.values())
        return self.graph.node("call", "", values, (*keywords,))


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
