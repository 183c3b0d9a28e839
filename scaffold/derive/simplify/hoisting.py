"""Hoist choices, masks, sums and expansions out of linear ops, so the backward does each once, as late as possible.

`where(c, g, 0) * y` -> `where(c, g * y, 0)`; a mask on the outside may meet another one, and be joined with it.

In: the arguments. Out: the op with the mask, the sum or the expansion last, or None. Invariant: same value, same shape; a value
with a name in the forward stays whole.

Words: `name` is the primitive made of the arguments; a mask is a `where` with a 0 on one side; a choice is a `cond`, `g if test
else 0`, by a test that is fixed in each call; an expansion is `expanded`, `x.expand(shape)`; `whole` is the shape of the result.
"""

from scaffold.derive.graph import shapes
from scaffold.derive.graph.conditions import may_be_zero
from scaffold.derive.graph.op import Op, is_number, tensors
from scaffold.derive.graph.precision import of_default_dtype
from scaffold.derive.simplify.constructors import Maker, Registry
from scaffold.derive.simplify.rewrites import ARITHMETIC, LINEAR, has_poles

HOISTED = Registry()


@HOISTED.on("where")
def _opposite_sides(make: Maker, mask: Op, a: Op, b: Op) -> Op | None:
    """Return `where(m, d, -d)` of one difference `d` for `where(m, x - y, y - x)`.

    For a margin, `where(target, logits, -logits)`.
    """
    both = make.is_(a, "sub") and make.is_(b, "sub")
    if not (both and a.args == b.args[::-1]):
        return None
    named = make.applier.named
    return named("where", mask, a, named("neg", a))


@HOISTED.on("where")
def _common_factor_out(make: Maker, condition: Op, body: Op, orelse: Op) -> Op | None:
    """Return `g * where(c, x, y)` for `where(c, g * x, g * y)`; None without a common factor.

    Cotangents read by several gradients are first taken as one factor, then taken apart too (`deep_products`).
    """
    if not (body.is_tensor and orelse.is_tensor):
        return None
    shape = shapes.broadcast(condition.shape, body.shape, orelse.shape)
    for products in (make.products, make.deep_products):
        one, two = products.of(body), products.of(orelse)
        shared = one.common(two)
        rest = [products.op(term.without(shared)) for term in (one, two)]
        # `where` of two numbers is float32: one of the two must be a tensor with a dtype of its own.
        typed = [item.kind for item in rest if not of_default_dtype(item)]
        if shared.has_factors and {"real", "complex"}.intersection(typed):
            inner = make.where(condition, *rest)
            found = products.op_times(shared, inner)
            if found.shape == shape:
                return found
    return None


@HOISTED.on_each(*LINEAR)
def _out_of_expansions(make: Maker, name: str, args: tuple[Op, ...]) -> Op | None:
    """Return `x * y` for `x.expand(n, m) * y` if `y` is as large, otherwise `(x * y).expand(n, m)`; None without an expansion."""
    for at, arg in enumerate(args):
        if arg.rule == "expanded":
            found = _without_expansion(make, name, args, at)
            if found is not None:
                return found
    return None


def _without_expansion(
    make: Maker, name: str, args: tuple[Op, ...], at: int
) -> Op | None:
    """Apply an op to its argument `at` as it was before its expansion, and expand the result: `expanded(s) * x` -> `s * x`.

    The result is not expanded if another argument has its shape already, other than one that may be the number 0, since the op may
    drop that. None if the shape of another argument lies between the two.
    """
    inner = args[at].args[0]
    whole = shapes.broadcast(*(arg.shape for arg in args if arg.is_tensor))
    bare = tuple(inner if k == at else arg for k, arg in enumerate(args))
    sure = (arg.shape for arg in bare if arg.is_tensor and not may_be_zero(arg))
    if shapes.broadcast(*sure) == whole:  # another argument is as large
        return make(name, *bare)
    # All others are as small: the result is, too.
    if all(shapes.fits(arg.shape, inner.shape) for arg in bare if arg.is_tensor):
        return make.expanded(make(name, *bare), whole)
    # All are expanded to the same shape: compute on what was expanded.
    if all(arg.rule == "expanded" and arg.shape == whole for arg in args):
        return make.expanded(make(name, *(arg.args[0] for arg in args)), whole)
    return None


@HOISTED.on_each(*ARITHMETIC)
def _sum_last(make: Maker, name: str, args: tuple[Op, ...]) -> Op | None:
    """Return `(g * y).sum_to_size(x.shape)` for `g.sum_to_size(x.shape) * y`, if `y` is no larger than `x`.

    Also one sum of `g + h` for the sums of both, so that several sums become one.
    """
    sums = [x for x in args if x.rule == "summed_to" and not make.is_whole(x)]
    if not sums:
        return None
    first = sums[0]
    others = [arg for arg in args if arg not in sums]
    fits = [shapes.fits(arg.shape, first.shape) for arg in others]
    if name in ("mul", "div"):  # one sum, times or over values that are as small
        may_move = len(sums) == 1 and all(fits) and (name == "mul" or args[0] is first)
    else:  # all of them sums from one shape to one shape, or 0
        alike = {(op.shape, op.args[0].shape, op.args[0].kind) for op in sums}
        # The mask of a `where` is no term: it may be as small as the sums.
        may_move = len(alike) == 1 and all(
            is_number(arg, 0) or name == "where" and arg is args[0] and is_small
            for arg, is_small in zip(others, fits, strict=True)
        )
    if not may_move:
        return None
    inner = make(name, *(arg.args[0] if arg in sums else arg for arg in args))
    # Only over a value of this shape it is the same sum.
    if inner.shape != first.args[0].shape or inner.kind != first.kind:
        return None
    # Of several sums to one shape take one with a `like`: an input to read the shape from.
    like = next((op for op in sums if op.like is not None), first)
    return make.summed_to(inner, like.shape, like.like)


@HOISTED.on_each("mul", "div")
def _out_of_masks(make: Maker, name: str, args: tuple[Op, ...]) -> Op | None:
    """Return `where(c, g * y, 0)` for `where(c, g, 0) * y`; a masked divisor stays."""
    for at in range(2 if name == "mul" else 1):
        found = _mask_last(make, name, args, at)
        if found is not None:
            return found
    return None


def _mask_last(make: Maker, name: str, args: tuple[Op, ...], at: int) -> Op | None:
    """Return the op `name` with the mask of its argument `at` applied last: `where(c, g, 0) * y` -> `where(c, g * y, 0)`.

    None without a mask, and if `g` may be infinite behind it: the second derivative by `y` would be zero times infinity.
    """
    arg = args[at]
    # With a number for `y` there is no derivative by it.
    others = (item for k, item in enumerate(args) if k != at)
    by_tensor = arg.rule == "where" and any(tensors(others))
    if make.opaque(arg) or by_tensor and has_poles(arg):
        return None

    def inside(value: Op) -> Op:
        return make(name, *(value if k == at else item for k, item in enumerate(args)))

    if arg.rule == "where":
        condition, body, orelse = arg.args
        has_one_zero = is_number(body, 0) != is_number(orelse, 0)
        are_numbers = body.kind == orelse.kind == "static"  # `where(c, 1, -1)`
        if has_one_zero or are_numbers:
            parts = (
                item if is_number(item, 0) else inside(item) for item in (body, orelse)
            )
            return make.where(condition, *parts)
    if arg.rule == "cond" and any(is_number(item, 0) for item in arg.args):
        parts = (item if is_number(item, 0) else inside(item) for item in arg.args)
        return make.choose(arg.test, *parts)
    return None


@HOISTED.on_each("add", "sub")
def _merged(make: Maker, name: str, args: tuple[Op, ...]) -> Op | None:
    """Return `where(c, a + x, b + y)` for `where(c, a, b) + where(c, x, y)`, and the same for choices by one test.

    Of choices only with a 0 in a branch, as then a term disappears there.
    """
    a, b = args
    if any(make.opaque(item) or item.rule != a.rule for item in (a, b)):
        return None
    if a.rule == "where" and a.args[0] is b.args[0]:
        inner = [make(name, *pair) for pair in zip(a.args[1:], b.args[1:], strict=True)]
        return make.where(a.args[0], *inner)
    zero = any(is_number(item, 0) for item in (*a.args, *b.args))
    if zero and a.rule == "cond" and a.test is b.test:
        pairs = zip(a.args, b.args, strict=True)
        return make.choose(a.test, *(make(name, *pair) for pair in pairs))
    return None
