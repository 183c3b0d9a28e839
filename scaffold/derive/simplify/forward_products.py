"""Products that the forward has already: `xc * rstd` is its `xhat`, also where it comes apart in a gradient.

In: the factors of a product of the backward. Out: the op with a forward product in their place, or None. Invariant: the same
value in exact arithmetic; no result is kept that the gradients do not read anyway.
"""

from collections.abc import Callable, Collection, Iterable

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import Op
from scaffold.derive.simplify.products import Term, Terms, common
from scaffold.derive.simplify.rewrites import along

Make = Callable[..., Op]
REDUCTIONS = frozenset({"sum", "mean"})


class Reunion:
    """Knows the products of the forward."""

    def __init__(
        self,
        make: Make,
        terms: Terms,
        forward: Iterable[Op],
        apart: Collection[Op],
        named: Callable[[Op], bool],
    ) -> None:
        self.make, self.terms = make, terms
        self.known: dict[Op, Term] = {}
        for op in forward:
            term = _factors(op)
            if term is None or op in apart and op.rule == "mul":
                continue
            if named(op) or op.rule == "div" or is_scaled(op):
                self.known[op] = term

    def __call__(self, rule: str, a: Op, b: Op) -> Op | None:
        """A product or quotient in which a forward product is met again."""
        if not self.known or not (a.is_tensor and b.is_tensor):
            return None
        one, two = self.terms.of(a), self.terms.of(b)
        whole = _joined(one, two if rule == "mul" else _turned(two))
        for op, term in reversed(self.known.items()):
            if whole.holds(term):
                found = self._met(whole, op, term)
            else:
                found = self._absorbed(whole, op, term)
            if found is not None and found.shape == shapes.broadcast(a.shape, b.shape):
                return found
        return None

    def _met(self, whole: Term, op: Op, term: Term) -> Op | None:
        rest = whole.without(term)
        if not any(rest[1:]):
            return (
                op if rest.number == 1 else self.terms.op(Term(rest.number, (), (op,)))
            )
        at = min(whole.tensors.index(item) for item in term.tensors)
        tensors = list(rest.tensors)
        tensors.insert(min(at, len(tensors)), op)
        return self.terms.op(rest._replace(tensors=tuple(tensors)))

    def _absorbed(self, whole: Term, op: Op, term: Term) -> Op | None:
        """`(g * xc).sum(-1, True) * rstd` as `(g * xhat).sum(-1, True)`."""
        for outer in whole.tensors:
            if outer.rule not in REDUCTIONS or self.terms.whole(outer):
                continue
            dims = along(outer)
            if dims is None:
                continue
            summed, *rest = outer.args
            inner = self.terms.of(summed)
            inside = common(inner, term)
            outside = term.without(inside)
            taken = _joined(outside, Term(1, (), (outer,)))
            if inside == Term() or not any(outside[1:]) or not whole.holds(taken):
                continue
            factors = (*outside.tensors, *outside.below)
            if not all(shapes.fits(item.shape, outer.shape) for item in factors):
                continue
            product = self._met(_joined(inner, outside), op, term)
            if product is None or product.shape != summed.shape:
                continue
            if product.kind != summed.kind:
                continue
            reduced = self.make(outer.rule, product, *rest)
            left = whole.without(taken)
            return self.terms.op(left._replace(tensors=(reduced, *left.tensors)))
        return None


def _factors(op: Op) -> Term | None:
    """A product of tensors, or a quotient of two."""
    if op.rule not in ("mul", "div") or not all(arg.is_tensor for arg in op.args):
        return None
    a, b = op.args
    if op.rule == "mul":
        return Term(1, (), (a, b)) if a is not b else None
    return Term(1, (), (a,), (b,))


def is_scaled(op: Op) -> bool:
    """Whether one factor is of a smaller shape, as where lines are normalised."""
    pairs = (op.args, op.args[::-1])
    return any(
        one.shape == op.shape != two.shape and shapes.fits(two.shape, op.shape)
        for one, two in pairs
    )


def _turned(term: Term) -> Term:
    return Term(
        1 / term.number if term.number != 1 else 1,
        term.static_below,
        term.below,
        term.tensors,
        term.statics,
    )


def _joined(one: Term, two: Term) -> Term:
    return Term(
        one.number * two.number,
        *(mine + theirs for mine, theirs in zip(one[1:], two[1:], strict=True)),
    )
