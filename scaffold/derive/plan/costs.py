"""What it costs to compute a value again, and to keep it: estimates, in passes over one number of a large tensor.

In: ops. Out: integers. Invariant: sizes are nominal, since none is known before the call: every size that is not written out
is the same.
"""

from math import prod

from scaffold.derive.graph.inference import dims_of
from scaffold.derive.graph.op import Op, tensors
from scaffold.derive.rules.table import Table

SIZE = 64  # of a dimension, and of all leading dimensions together
UNKNOWN = SIZE * SIZE  # numbers in a tensor of no known shape
BYTES = {"bool": 1, "int": 8, "real": 4, "complex": 8}
KEEP = 0.375  # what a byte costs: a `float32` that waits is worth one and a half passes
LEAF = 0.8  # inputs and outputs are there anyway, as often as not
FREE = frozenset({"input", "drawn", "item", "detach", "list", "cond", "clone"})
PASSES = {
    "exp": 3,
    "expm1": 4,
    "sqrt": 2,
    "rsqrt": 2,
    "sigmoid": 4,
    "tanh": 5,
    "softplus": 6,
    "log": 4,
    "log1p": 5,
    "erf": 5,
    "sin": 4,
    "cos": 4,
    "pow_exponent": 3,
    "pow": 8,
    "pow_base": 8,
    "softmax": 5,
    "log_softmax": 5,
    "silu": 5,
    "gelu_tanh": 6,
    "gelu_erf": 6,
    "logsigmoid": 6,
}
CATEGORIES = {
    "elementwise": 1,
    "constant": 1,
    "loss": 2,
    "reduction": 1,
    "same_shape": 3,
    "view": 0,
    "structural": 1,
    "indexing": 2,
    "backward": 3,
    "contraction": 8,
    "linalg": 64,
}


class Costs:
    """Estimates for the ops of one program."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._numbers: dict[Op, int] = {}

    def numbers(self, op: Op) -> int:
        """How many numbers a tensor holds."""
        if op not in self._numbers:
            self._numbers[op] = self._count(op)
        return self._numbers[op]

    def _count(self, op: Op) -> int:
        dims = op.shape.dims
        if dims is not None:
            return prod(dim if isinstance(dim, int) else SIZE for dim in dims)
        given = [self.numbers(item) for item in tensors(op.args)]
        if self.is_reduction(op):
            return self._reduced(op, max(given, default=UNKNOWN))
        return max(given, default=UNKNOWN)

    def _reduced(self, op: Op, count: int) -> int:
        rule = self.table.of_op(op.rule)
        names = [item.name for item in rule.parameters] if rule else []
        dims = dims_of(dict(zip(names, op.args, strict=False)).get("dim"))
        return max(1, count // SIZE ** len(dims)) if dims else 1

    def compute(self, op: Op) -> int:
        """Time to compute it from its arguments."""
        if op.rule in FREE or not op.is_tensor and op.kind != "group":
            return 0
        largest = max(map(self.numbers, (op, *tensors(op.args))))
        return largest * self.passes(op)

    def passes(self, op: Op) -> int:
        """Time for each number of the largest tensor."""
        if op.rule in PASSES:
            return PASSES[op.rule]
        rule = self.table.of_op(op.rule)
        if rule is None:
            return 8 if op.rule in ("call", "einsum", "contracted", "vjp") else 1
        return CATEGORIES[rule.category]

    def is_reduction(self, op: Op) -> bool:
        """Whether it reads a tensor for fewer numbers."""
        rule = self.table.of_op(op.rule)
        return rule is not None and rule.category == "reduction"

    def keep(self, op: Op, leaf: bool) -> int:
        """What it costs that it waits for the backward."""
        size = self.numbers(op) * BYTES.get(op.kind, 4)
        return max(1, round(size * KEEP * (LEAF if leaf else 1)))

    def is_view(self, op: Op) -> bool:
        """Whether it costs no memory of its own."""
        rule = self.table.of_op(op.rule)
        if rule is None:
            return op.rule in ("slice", "select", "expanded", "item", "detach")
        return rule.category == "view" or op.rule == "detach"
