"""Find products of the forward in the backward: `xc * rstd` is the forward's `xhat`, even if its factors are apart in a gradient.

A name that the forward has already is read, so nothing is multiplied again: `g * xc * rstd` -> `g * xhat`.

In: the factors of a product of the backward. Out: the op with a forward product in their place, or None. Invariant: the same value
in exact arithmetic; no result is kept that the gradients do not read anyway.

Words: a `term` is a forward product as its factors, `whole` the product of the backward in which it is looked for. A product is met
again if all its factors are in there; it is absorbed if some of them stand below a sum, and the others beside it.
"""

from collections.abc import Callable, Collection, Iterable

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import Op
from scaffold.derive.simplify.constructors import Maker, Registry
from scaffold.derive.simplify.products import Product
from scaffold.derive.simplify.rewrites import along

REDUCTIONS = frozenset({"sum", "mean"})


FORWARD_PRODUCTS = Registry()


def forward_products(
    forward: Iterable[Op], apart: Collection[Op], named: Callable[[Op], bool]
) -> dict[Op, Product[Op]]:
    """Return the forward's products worth reusing, with their factors: named products, quotients, products with a smaller factor.

    `xc * rstd` is of the last kind. Not reused are products in `apart`, which the backward computes in parts.
    """
    known: dict[Op, Product[Op]] = {}
    for op in forward:
        term = _factors(op)
        if term is None or op in apart and op.rule == "mul":
            continue
        if named(op) or op.rule == "div" or is_scaled(op):
            known[op] = term
    return known


@FORWARD_PRODUCTS.on_each("mul", "div")
def _met_again(make: Maker, rule: str, args: tuple[Op, ...]) -> Op | None:
    """Return `g * xhat` for `g * xc * rstd`, with `xhat = xc * rstd` of the forward; None if no forward product is in it.

    The latest, and so largest, product of the forward is tried first; one within a sum is found by `_absorbed`.
    """
    a, b = args
    # A Python value brings no factor along that was missing.
    if not make.forward_products or not (a.is_tensor and b.is_tensor):
        return None
    one, two = make.products.of(a), make.products.of(b)
    whole = one.times(two) if rule == "mul" else one.over(two)
    for op, term in reversed(tuple(make.forward_products.items())):
        reuse = _replaced if whole.holds(term) else _absorbed
        found = reuse(make, whole, op, term)
        if found is not None and found.shape == shapes.broadcast(a.shape, b.shape):
            return found
    return None


def _replaced(make: Maker, whole: Product[Op], op: Op, term: Product[Op]) -> Op:
    """Return the product `whole` with the forward's `op` in place of its factors `term`, at the place of the first one.

    `whole` has them all. At least one stands above the line of a fraction, as in any product or quotient of tensors (`_factors`).
    """
    rest = whole.without(term)
    # What stands before the first factor of `term` is still there in `rest`.
    at = min(whole.tensors.index(item) for item in term.tensors)
    tensors = list(rest.tensors)
    tensors.insert(at, op)
    return make.products.op(rest._replace(tensors=tuple(tensors)))


def _absorbed(make: Maker, whole: Product[Op], op: Op, term: Product[Op]) -> Op | None:
    """Return `(g * xhat).sum(-1, True)` for `(g * xc).sum(-1, True) * rstd`, with `xhat = xc * rstd` of the forward.

    `op` is xhat, `term` its factors, `whole` all factors. None unless there is such a sum, and the other factors are constant along
    its dims.
    """
    for outer in whole.tensors:
        if outer.rule not in REDUCTIONS or make.products.whole(outer):
            continue
        # Only with kept dims does its shape tell below what is constant along them.
        if along(outer) is None:
            continue
        summed, *rest = outer.args
        inner = make.products.of(summed)
        # `common` and `without` split the factors of xhat: those in the sum, those beside it.
        inside = inner.common(term)  # xc, below the sum
        outside = term.without(inside)  # rstd, beside it
        taken = outside.times(Product(1, (), (outer,)))
        # Else nothing of xhat is in the sum, or all of it, or what is missing is not beside it.
        is_split = inside.has_factors and outside.has_factors
        if not (is_split and whole.holds(taken)):
            continue
        factors = (*outside.tensors, *outside.below)
        if not all(shapes.fits(item.shape, outer.shape) for item in factors):
            continue
        product = _replaced(make, inner.times(outside), op, term)
        reduced = make(outer.rule, product, *rest)
        left = whole.without(taken)
        return make.products.op(left._replace(tensors=(reduced, *left.tensors)))
    return None


def _factors(op: Op) -> Product[Op] | None:
    """Return the two factors of a product or a quotient of tensors; None for other ops and a square."""
    if op.rule not in ("mul", "div") or not all(arg.is_tensor for arg in op.args):
        return None
    a, b = op.args
    if op.rule == "mul":
        return Product(1, (), (a, b)) if a is not b else None
    return Product(1, (), (a,), (b,))


def is_scaled(op: Op) -> bool:
    """Return whether a product has a factor of a smaller shape, as `rstd` in a norm: it is worth a name, `xhat`."""
    pairs = (op.args, op.args[::-1])
    return any(
        one.shape == op.shape != two.shape and shapes.fits(two.shape, op.shape)
        for one, two in pairs
    )
