"""Tables of pairs: products of each row of one tensor with each row of another, like the scores of attention.

In: the ops of a forward. Out: those among them that are such tables. Invariant: what an input or an output is as large as is
no table; nor is a product with a weight, which has no leading dim in common with what it is multiplied by.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import combinations, product

from scaffold.derive.vjp.ir import Op, tensors
from scaffold.derive.vjp.rules import Table
from scaffold.derive.vjp.shapes import Dim, Dims, Shape, is_lead

Pair = tuple[Dim, Dim]
LEAD = "..."


def tables_of_pairs(
    table: Table, forward: Collection[Op], ends: Collection[Op]
) -> frozenset[Op]:
    """The values that grow with the square of a length with which inputs and outputs grow."""
    pairs = {pair for op in forward if _is_product(table, op) for pair in _pairs(op)}
    leaves = [op for op in forward if op.rule == "input" or op in ends]
    sizes = [Counter(_dims(op.shape)) for op in leaves]

    def is_table(own: Counter[Dim]) -> bool:
        return any(Counter(pair) <= own for pair in pairs) and not any(
            own <= other for other in sizes
        )

    return frozenset(op for op in forward if is_table(Counter(_dims(op.shape))))


def _is_product(table: Table, op: Op) -> bool:
    rule = table.of_op(op.rule)
    if rule is not None:
        return rule.category == "contraction"
    return op.rule in ("einsum", "contracted")


def _pairs(op: Op) -> Iterator[Pair]:
    """Two dims of a product, one of each factor, that come for every index of a dim of both."""
    whole = _dims(op.shape)
    for left, right in combinations(
        [_dims(item.shape) for item in tensors(op.args)], 2
    ):
        both = set(left) & set(right) & set(whole)
        own = [
            [dim for dim in whole if dim in one and dim not in other]
            for one, other in ((left, right), (right, left))
        ]
        squares = [(dim, dim) for dim in both if whole.count(dim) > 1]
        for pair in (*product(*own), *squares):
            if both.difference(pair):
                yield pair[0], pair[1]


def _dims(shape: Shape) -> Dims:
    """The dims that are known; the leading ones of any number are taken for the same."""
    match shape:
        case Shape(tuple() as dims):
            return tuple(LEAD if is_lead(dim) else dim for dim in dims)
        case Shape(None, ("product", Shape() as left, Shape() as right)):
            one, two = _dims(left), _dims(right)
            if len(one) > 1 and len(two) > 1:
                lead = (LEAD,) * (LEAD in one or LEAD in two)
                return (*lead, one[-2], two[-1])
    return ()
