"""Smart constructors: primitives of the backward, simplified as they are made.

In: a rule's name and ops. Out: the simplest op of that value. Invariant: the value and the shape are those of the plain
application; a value that a forward local holds is read there rather than taken apart.
"""

from collections.abc import Callable, Collection, Iterable

from scaffold.derive.graph import shapes
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.conditions import choose, may_be_zero
from scaffold.derive.graph.op import OfShape, Op, SummedTo, is_number, tensors
from scaffold.derive.graph.precision import of_default_dtype
from scaffold.derive.graph.shapes import Shape
from scaffold.derive.graph.static_values import UnsupportedError, fold, static_node
from scaffold.derive.simplify.algebra import Algebra
from scaffold.derive.simplify.forward_products import Reunion
from scaffold.derive.simplify.joined_sums import joined_slices, scattered_onto
from scaffold.derive.simplify.products import common
from scaffold.derive.simplify.rewrites import LINEAR, Rewrites, has_poles
from scaffold.formula import Node

SUMMABLE = frozenset({"mul", "div", "add", "sub", "where"})


class Maker(Rewrites):
    """Makes ops of the backward; `opaque` ones are held by a name and stay whole."""

    def __init__(self, applier: Applier, opaque: Callable[[Op], bool]) -> None:
        self.applier, self.program = applier, applier.program
        self.opaque = opaque
        self.algebra = Algebra(self.program, self, opaque)
        self.algebra.one = self.program.const  # type: ignore[method-assign]
        self.precision = None
        self.saves = False
        self.reunion: Reunion | None = None
        self.count: Callable[[Op, Op], Op | None] = lambda x, dim: None
        own = self.algebra
        self.simpler: dict[str, Callable[..., Op | None]] = {
            "add": own.add,
            "sub": own.sub,
            "neg": own.neg,
            "mul": own.mul,
            "div": own.div,
            "where": self._where,
            **self.rewrites(),
            **self.rearrangements(),
        }

    def meet_again(self, forward: Iterable[Op], apart: Collection[Op]) -> None:
        """Look out for the products of the forward, but those that are kept apart."""
        self.reunion = Reunion(self, self.algebra.terms, forward, apart, self.opaque)
        self.algebra.products.update(self.reunion.known)

    def __call__(self, name: str, *args: Op) -> Op:
        """The primitive of a name, applied."""
        if args and not any(tensors(args)) and name != "where":
            folded = fold(
                self.program, name, args, lambda op: static_node(self.program, op)
            )
            if folded is None:
                raise UnsupportedError(f"{name} of Python values")
            return folded
        simpler = self.simpler.get(name)
        found = self._divided_apart(*args) if name == "div" else None
        if found is None and simpler:
            found = simpler(*args)
        if found is None and name == "div":
            found = self.div_by_count(*args)
        if found is None and name in ("mul", "div") and self.reunion:
            found = self.algebra.cancelled(name, *args)
            found = found or self.reunion(name, *args)
        if found is None and name == "add":
            found = joined_slices(self, *args) or scattered_onto(self, *args)
        if found is None and name in LINEAR:
            found = self._lifted(name, args)
        return found or self.applier.named(name, *args)

    def choose(self, test: Node, body: Op, orelse: Op) -> Op:
        return choose(self.program, test, body, orelse)

    # What moves outward: choices, masks, expansions

    def _lifted(self, name: str, args: tuple[Op, ...]) -> Op | None:
        for at, arg in enumerate(args):
            if arg.rule == "expanded":
                found = self._without_expansion(name, args, at)
                if found is not None:
                    return found
        found = self._sum_last(name, args)
        if found is not None:
            return found
        if name in ("mul", "div"):
            for at, arg in enumerate(args):
                if name == "div" and at == 1:
                    break
                found = self._mask_last(name, args, at)
                if found is not None:
                    return found
        if name in ("add", "sub"):
            return self._merged(name, *args)
        return None

    def _sum_last(self, name: str, args: tuple[Op, ...]) -> Op | None:
        """`g.sum_to_size(x.shape) * y` as `(g * y).sum_to_size(x.shape)`, where `y` is no larger than `x`."""
        sums = [arg for arg in args if self._is_loose_sum(arg)]
        if not sums or name not in SUMMABLE:
            return None
        first = sums[0]
        rest = [arg for arg in args if arg not in sums]
        if name in ("mul", "div"):
            fine = len(sums) == 1 and (name == "mul" or args[0] is first)
            fine = fine and all(shapes.fits(arg.shape, first.shape) for arg in rest)
        else:
            inner = first.args[0]
            fine = all(
                (op.shape, op.args[0].shape, op.args[0].kind)
                == (first.shape, inner.shape, inner.kind)
                for op in sums
            )
            fine = fine and all(
                is_number(arg, 0)
                or (name == "where" and arg is args[0] and arg not in sums)
                and shapes.fits(arg.shape, first.shape)
                for arg in rest
            )
        if not fine:
            return None
        inner = self(name, *(arg.args[0] if arg in sums else arg for arg in args))
        if inner.shape != first.args[0].shape or inner.kind != first.kind:
            return None
        like = next((op for op in sums if _has_owner(op)), first)
        return self.summed_to(inner, like)

    def _is_loose_sum(self, op: Op) -> bool:
        """Whether it is a sum to a shape that need not be made first."""
        return op.rule == "summed_to" and not self.algebra.is_whole(op)

    def summed_to(self, op: Op, like: Op) -> Op:
        """A value summed as another is."""
        if op.rule == "neg" and not self.opaque(op):
            return self("neg", self.summed_to(op.args[0], like))
        return self.program.op(
            "summed_to",
            (op,),
            like.data,
            kind=op.kind,
            shape=like.shape,
            active=op.active,
        )

    def _mask_last(self, name: str, args: tuple[Op, ...], at: int) -> Op | None:
        """`where(c, g, 0) * y` as `where(c, g * y, 0)`.

        Not where `g` may be infinite behind the mask: the second derivative would be zero times that, by `y`.
        """
        arg = args[at]
        others = tensors(item for k, item in enumerate(args) if k != at)
        if self.opaque(arg) or arg.rule == "where" and has_poles(arg) and any(others):
            return None

        def inside(value: Op) -> Op:
            return self(
                name, *(value if k == at else item for k, item in enumerate(args))
            )

        if arg.rule == "where":
            condition, body, orelse = arg.args
            zero = [is_number(item, 0) for item in (body, orelse)]
            plain = body.kind == orelse.kind == "static"
            if any(zero) and not all(zero) or plain:
                parts = (
                    item if is_number(item, 0) else inside(item)
                    for item in (body, orelse)
                )
                return self("where", condition, *parts)
        if arg.rule == "cond" and any(is_number(item, 0) for item in arg.args):
            parts = (item if is_number(item, 0) else inside(item) for item in arg.args)
            return self.choose(arg.test, *parts)
        return None

    def _merged(self, name: str, a: Op, b: Op) -> Op | None:
        """Two masked values by the same mask, two choices by the same test."""
        if any(self.opaque(item) or item.rule != a.rule for item in (a, b)):
            return None
        if a.rule == "where" and a.args[0] is b.args[0]:
            inner = [
                self(name, *pair) for pair in zip(a.args[1:], b.args[1:], strict=True)
            ]
            return self("where", a.args[0], *inner)
        zero = any(is_number(item, 0) for item in (*a.args, *b.args))
        if zero and a.rule == "cond" and a.test is b.test:
            pairs = zip(a.args, b.args, strict=True)
            return self.choose(a.test, *(self(name, *pair) for pair in pairs))
        return None

    def _without_expansion(self, name: str, args: tuple[Op, ...], at: int) -> Op | None:
        inner = args[at].args[0]
        whole = shapes.broadcast(*(arg.shape for arg in args if arg.is_tensor))
        bare = tuple(inner if k == at else arg for k, arg in enumerate(args))
        sure = (arg for arg in bare if arg.is_tensor and not may_be_zero(arg))
        plain = shapes.broadcast(*(arg.shape for arg in sure))
        if plain == whole:
            return self(name, *bare)
        if all(shapes.fits(arg.shape, inner.shape) for arg in bare if arg.is_tensor):
            return self.expanded(self(name, *bare), whole)
        rest = [arg for k, arg in enumerate(bare) if k != at]
        if all(arg.rule == "expanded" and arg.shape == whole for arg in rest):
            inners = [arg.args[0] if k != at else arg for k, arg in enumerate(bare)]
            return self.expanded(self(name, *inners), whole)
        return None

    def expanded(self, op: Op, shape: Shape) -> Op:
        """A value broadcast to a shape."""
        if op.shape == shape or is_number(op, 0):
            return op
        if op.rule == "expanded":
            op = op.args[0]
        if op.rule == "neg" and not self.opaque(op):
            return self("neg", self.expanded(op.args[0], shape))
        return self.program.op(
            "expanded",
            (op,),
            OfShape(shape),
            kind=op.kind,
            shape=shape,
            active=op.active,
        )

    def reshaped(self, op: Op, shape: Shape) -> Op:
        """A value in another shape of as many elements."""
        if op.shape == shape:
            return op
        while op.rule in ("reshaped", "unsqueeze") and not self.opaque(op):
            op = op.args[0]
        if op.shape == shape:
            return op
        if op.rule == "expanded" and op.args[0].shape == shapes.SCALAR:
            return self.expanded(op.args[0], shape)
        if op.rule == "neg" and not self.opaque(op):
            return self("neg", self.reshaped(op.args[0], shape))
        return self.program.op(
            "reshaped",
            (op,),
            OfShape(shape),
            kind=op.kind,
            shape=shape,
            active=op.active,
        )

    def zeros(self, like: Op, shape: Shape) -> Op:
        """Zeros of a shape, with dtype and device of another tensor."""
        return self.program.op(
            "zeros", (like,), OfShape(shape), kind=like.kind, shape=shape
        )

    def _where(self, condition: Op, body: Op, orelse: Op) -> Op | None:
        if body is orelse:
            return body
        for one, two in ((body, orelse), (orelse, body)):
            if is_number(one, 0) and two.rule == "neg" and not self.opaque(two):
                parts = (one, two.args[0]) if one is body else (two.args[0], one)
                return self("neg", self("where", condition, *parts))
        return self._factor_out(condition, body, orelse)

    def _factor_out(self, condition: Op, body: Op, orelse: Op) -> Op | None:
        """`where(c, g * x, g * y)` as `g * where(c, x, y)`."""
        if not (body.is_tensor and orelse.is_tensor):
            return None
        whole = shapes.broadcast(condition.shape, body.shape, orelse.shape)
        for terms in (self.algebra.terms, self.algebra.deep_terms):
            one, two = terms.of(body), terms.of(orelse)
            shared = common(one, two)
            rest = [terms.op(term.without(shared)) for term in (one, two)]
            typed = [
                item.kind for item in rest if not of_default_dtype(item)
            ]  # `where` of two numbers is float32
            if any(shared[1:]) and {"real", "complex"}.intersection(typed):
                inner = self("where", condition, *rest)
                found = self.algebra.times(terms, shared, inner)
                if found.shape == whole:
                    return found
        return None


def _has_owner(op: Op) -> bool:
    """Whether a sum is to the shape of an input, which has it."""
    return isinstance(op.data, SummedTo) and op.data.like is not None
