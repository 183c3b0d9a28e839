"""Estimate the costs of recomputing and of keeping a value, by the `passes` that the rule table states of each primitive.

`save_plan` weighs them to choose what is saved; `write` asks which values are worth a name.

In: ops. Out: integers. Invariant: sizes are nominal, since none is known before the call: all sizes not written as literals are
equal. A primitive's passes are stated in its section of the table (`passes`), or follow from its category.

Words: a pass reads and writes each number of a large tensor once; a dear value is worth at least two. An op is at hand if nothing
computes it: an input, a Python value. It is a leaf if it is in memory anyway, as an input or an output.
"""

from math import prod

from scaffold.derive.graph.op import Op, is_number, number, tensors
from scaffold.derive.graph.shape_rules import dims_of
from scaffold.derive.rules.table import Table

SIZE = 64  # of a dimension, and of all leading dimensions together
UNKNOWN = SIZE * SIZE  # numbers in a tensor of no known shape
BYTES = {"bool": 1, "int": 8, "real": 4, "complex": 8}  # other kinds: 4, as of a real
PASS = 2 * BYTES["real"]  # bytes that a pass reads and writes for each number
KEEP = 0.75  # cost of a byte: keeping a `float32` is worth three passes
LEAF = 0.6  # inputs and outputs are in memory anyway, as often as not
DEAR = 2  # values of at least so many passes are not recomputed
PLAIN = ("real", "complex")  # kinds of values that may have a gradient
AT_HAND = frozenset(
    {
        "input",
        "cotangent",
        "const",
        "static",
        "python",
        "starred",  # `*sizes` is no expression
        "shape",
        "size",
        "rank",
        "count",
    }
    | {"dtype", "list", "item", "range", "same"}
)


def is_reduction(op: Op) -> bool:
    """Return whether the op reduces a tensor to fewer numbers."""
    return op.facts.category == "reduction"


def is_at_hand(op: Op) -> bool:
    """Return whether the op is a Python value or available without computing anything: it is free, and never gets a name."""
    # With a known rank it is a list of literals, `[0, 1]`.
    if op.rule == "lead_dims":
        return op.asked.rank is not None
    return op.rule in AT_HAND


def is_never_named(op: Op) -> bool:
    """Return whether the op is always inlined: a view's base gets a name, the view does not."""
    return is_at_hand(op) or op.facts.inline == "always"


def is_brief(op: Op) -> bool:
    """Return whether the op is so short it may be written twice: `1 - x`, `x**2`."""
    operator, args = op.facts.operator, op.args
    if operator == "-":
        return is_number(args[0], 1)
    return operator == "**" and is_number(args[1], 2)


def is_small_multiple(op: Op) -> bool:
    """Return whether the op is a Python value times a tensor of rank 0, or a literal number times one with a dim of size 1.

    `2 * g.unsqueeze(1)` is as cheap to recompute in each product as to keep.
    """
    if op.facts.operator != "*" or op.args[0].is_tensor or op.shape.dims is None:
        return False
    return not op.shape.dims or 1 in op.shape.dims and number(op.args[0]) is not None


def is_free(op: Op) -> bool:
    """Return whether the op may be recomputed at each use, since it costs nothing, or as little as a view."""
    return is_at_hand(op) or bool(op.facts.inline)


def is_dear(op: Op) -> bool:
    """Return whether a value is expensive, so it should be computed only once: a reduction, or two passes and more.

    A mask or a Python value is not.
    """
    if is_free(op) or op.kind not in (*PLAIN, "int", "group"):
        return False
    return op.facts.is_dear or op.facts.passes >= DEAR or is_reduction(op)


class Costs:
    """Cost estimates for the ops of one program."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._numbers: dict[Op, int] = {}

    def numbers(self, op: Op) -> int:
        """Return the estimated number of elements of a tensor; cached."""
        if op not in self._numbers:
            self._numbers[op] = self._count(op)
        return self._numbers[op]

    def _count(self, op: Op) -> int:
        """Return the estimated number of elements: by the shape if it is known (a named size counts SIZE), else by the arguments."""
        dims = op.shape.dims
        if dims is not None:
            return prod(dim if isinstance(dim, int) else SIZE for dim in dims)
        given = [self.numbers(item) for item in tensors(op.args)]
        if is_reduction(op):
            return self._reduced(op, max(given, default=UNKNOWN))
        return max(given, default=UNKNOWN)

    def _reduced(self, op: Op, count: int) -> int:
        """Return the estimated number of elements after a reduction of `count` of them; 1 if its dims are unknown."""
        rule = self.table.of_op(op.rule)
        dims = dims_of(rule.by_parameter(op.args).get("dim")) if rule else None
        return max(1, count // SIZE ** len(dims)) if dims else 1

    def compute(self, op: Op) -> int:
        """Return the estimated time to compute a value from its arguments: passes, times the size of the largest tensor."""
        if not op.is_tensor and op.kind != "group":
            return 0
        given = (*tensors(op.args),)
        passes = max(map(self.numbers, (op, *given))) * op.facts.passes
        if op.kind != "bool":
            return passes
        # A mask is a byte a number: `~mask` is computed in less time than `-x`.
        moved = BYTES["bool"] + max(
            (BYTES.get(arg.kind, 4) for arg in given), default=0
        )
        return min(passes, passes * moved // PASS)

    def is_too_dear(self, op: Op) -> bool:
        """Return whether a value is too expensive to recompute: it is dear, and of more than one number."""
        full = max(map(self.numbers, (op, *tensors(op.args))), default=1) > 1
        return full and is_dear(op)

    def keep(self, op: Op, leaf: bool) -> int:
        """Return the cost of keeping a value in memory until the backward: by its bytes, less for a `leaf`, in memory anyway."""
        size = self.numbers(op) * BYTES.get(op.kind, 4)
        return max(1, round(size * KEEP * (LEAF if leaf else 1)))
