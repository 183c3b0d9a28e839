"""Simplify sums, products and quotients, as an author would write them: `g * x + g * y` -> `g * (x + y)`.

In: the operands; for the passes over whole gradients (`divided_first`, `shared_multiples`, `scalars_first`) the gradients, of which
`grad_output * (x * y) / n` becomes `grad_output / n * (x * y)`. Out: the op, or None without a simplification; the new gradients.
Invariant: same value in exact arithmetic and the same shape; an op with a name in the forward, or with several uses, is not taken
apart; no 0/0 appears, and one disappears only if a quotient meets a factor equal to its divisor.

An identity that spelling alone decides is no function here but a line of the table, `simpler = ["x * 1 -> x"]`, applied by
`identities` before these. These are code since a factor may stand anywhere in a product.

Words: an opaque or `whole` op is never taken apart, since it has a name in the forward or several uses. A factor of a product is
`below` if it divides. `make.products` gives the factors of an op; `make.deep_products` looks into cotangents read by several
gradients too. A root is the gradient of an input, the seed the gradient of the op's result. A static factor is a Python number. `g`
is a gradient.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import Op, is_number, number
from scaffold.derive.graph.precision import of_default_dtype
from scaffold.derive.graph.shapes import SCALAR, Kept, Shape
from scaffold.derive.graph.static_values import is_literal
from scaffold.derive.simplify.constructors import Maker, Registry
from scaffold.derive.simplify.products import Product, Products
from scaffold.derive.simplify.rebuilding import Renewal, renewed

ALGEBRA = Registry()
CHOICES = frozenset({"where", "cond"})  # their values stand last


# Products


@ALGEBRA.on("mul")
def _times_power_before(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `c * s**c` for `c * s ** (0 if c == 0 else c - 1) * s`, `c` a Python number: both are 0 if c is 0. For a focal loss.

    The power is the gradient of `s**c`, with a guard against `0 * s**-1`.
    """
    if a.kind != "static" or not b.is_tensor or b.facts.operator not in ("*", "/"):
        return None
    product = make.products.of(b)
    for power in product.tensors:
        if power.facts.operator != "**" or guarded_power(power.args[1]) is not a:
            continue
        base = power.args[0]
        if base in product.tensors and not make.is_whole(power):
            joined = Product(tensors=(make(power.rule, base, a),))
            rest = product.without(Product(tensors=(power, base)))
            found = make.mul(a, make.products.op(rest.times(joined)))
            return found if found.shape == b.shape else None
    return None


def guarded_power(exponent: Op) -> Op | None:
    """Return `c` for `0 if c == 0 else c - 1`, a Python value: the exponent in the gradient of `x**c`; None for any other."""
    if not exponent.is_python("conditional"):
        return None
    test, zero, less = exponent.args
    is_zero = test.is_python("compare", "==") and is_number(test.args[1], 0)
    one_less = less.is_python("binary", "-") and is_number(less.args[1], 1)
    if not (is_zero and one_less and is_number(zero, 0)):
        return None
    return test.args[0] if test.args[0] is less.args[0] else None


@ALGEBRA.on("mul")
def _cancelled_quotient(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `g * x` for `g * s * (x / s)`, `g / x` for `g / s * (s / x)`, `x` for `x / exp(y) * exp(y)`, in either order.

    Of `x / s` alone times `s`, 0/0 would disappear: it stays, unless `s` is an exponential, which is not zero: for a variance given
    as its logarithm, `diff ** 2 / exp(logvar)`.
    """
    if not (a.is_tensor and b.is_tensor):
        return None
    products = make.deep_products
    one, two = products.of(a), products.of(b)
    for below, above in ((one, two), (two, one)):
        for op in below.below:
            # `s` is not alone: the other product has more factors, as in `s / x`.
            several = len(above.tensors) > 1 or above.below
            if op in above.tensors and (op.rule == "exp" or several):
                parts = [
                    products.op(below.without(Product(below=(op,)))),
                    products.op(above.without(Product(tensors=(op,)))),
                ]
                # In the order of `a` and `b`.
                found = make.mul(*(parts if below is one else parts[::-1]))
                shape = shapes.broadcast(a.shape, b.shape)
                return found if found.shape == shape else None
    return None


@ALGEBRA.on("matmul")
def _product_with_zero(make: Maker, a: Op, b: Op) -> Op | None:
    """Return 0 for `x @ 0`: the gradient of an unused one of several results, as the vectors of eigh if only the values are read.

    No known op has it; without it, an op with a rule reading all of them would be left to autograd. It is no line of the table, as
    PyTorch multiplies no matrix by a number.
    """
    return make.const(0) if is_number(a, 0) or is_number(b, 0) else None


@ALGEBRA.on("div")
def _cancelled_factor(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `g` for `g * s / s` if the shape stays, as for `(x / s).clamp(-8, 7) * s` in every quantiser; in 8 of 661 known ops."""
    above = make.deep_products.of(a)
    # Of `s / s` alone, 0/0 would disappear.
    if b not in above.tensors or len(above.tensors) == 1:
        return None
    found = make.deep_products.op(above.without(Product(tensors=(b,))))
    return found if found.shape == a.shape else None


@ALGEBRA.on("div")
def _reduced(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `2 * x` for `4 * x / 2`, `x / n` for `2 * x / (2 * n)`, `x / (m * n)` for `1 / m * x / n`; `n` and `m` Python values.

    A quotient of numbers is taken only if it has a short text: not for `x / 3`. In 12 of 661 known ops, four of them norms.
    """
    if b.kind != "static" or not make.is_(a, "mul"):
        return None
    factor, rest = a.args
    # `1 / m * x / n`
    if factor.is_python("binary", "/") and is_number(factor.args[0], 1):
        return make.div(rest, make.mul(factor.args[1], b))
    # `2 * x / (2 * n)`
    of_b = make.products.of(b)
    has_unknown = any(number(op) is None for op in of_b.statics)  # n
    if has_unknown and of_b.number != 1 and number(factor) == of_b.number:
        return make.div(rest, make.products.op(of_b._replace(number=1)))
    # `4 * x / 2`: the quotient is a number if both are.
    quotient = make.div(factor, b) if factor.kind == "static" else factor
    return None if number(quotient) is None else make.mul(quotient, rest)


# Sums


@ALGEBRA.on("neg")
def _minus_sum_of_multiple(make: Maker, a: Op) -> Op | None:
    """Return `(-2 * x).sum_to_size(...)` for `-(2 * x).sum_to_size(...)`: the number takes the minus, which is an operation less."""
    product = a.args[0] if make.is_(a, "summed_to") else None
    # The number stands first.
    if not product or not make.is_(product, "mul") or number(product.args[0]) is None:
        return None
    return make.summed_to(make.neg(product), a.shape, a.like)


@ALGEBRA.on_each("add", "sub")
def _unguarded(make: Maker, rule: str, args: tuple[Op, ...]) -> Op | None:
    """Return `g / n - s / n` for `g / n - s / where(n == 0, 1, n)`: if `n` is 0, the other term is not a number anyway.

    So the terms have a common divisor. For `x / x.norm()`, in 8 of 661 known ops: the gradient of the norm is guarded, and the
    quotient's cannot be.
    """
    terms = [make.products.of(arg) if arg.is_tensor else None for arg in args]
    for at, other in ((0, 1), (1, 0)):
        term = terms[at]
        if term is None or terms[other] is None:
            continue
        # Also for a quotient read by several gradients.
        found = _without_guards(term, make.deep_products.of(args[other]).below)
        if found != term:
            pair = [*args]
            pair[at] = make.products.op(found)
            return make(rule, *pair)
    return None


def _without_guards(term: Product[Op], others: Collection[Op]) -> Product[Op]:
    """Return the product with guarded divisors replaced by the bare ones that are among `others`, the other term's divisors."""
    below = tuple(own if (own := _of_guard(op)) in others else op for op in term.below)
    return term._replace(below=below)


def _of_guard(op: Op) -> Op:
    """Return the divisor `n` of `where(n == 0, 1, n)`, a guard against division by zero; any other value unchanged."""
    if op.rule != "where" or not is_number(op.args[1], 1):
        return op
    mask, _, own = op.args
    same = (
        mask.facts.operator == "=="
        and mask.args[0] is own
        and is_number(mask.args[1], 0)
    )
    return own if same else op


@ALGEBRA.on_each("add", "sub")
def _factored(make: Maker, rule: str, args: tuple[Op, ...]) -> Op | None:
    """Return `g * (x + y)` for `g * x + g * y`, `(x - y) / n` for `x / n - y / n`; None without a common factor.

    First with factors read by several gradients as they are, then taken apart.
    """
    a, b = args
    if not (a.is_tensor and b.is_tensor):
        return None
    for products in (make.products, make.deep_products):
        one, two = products.of(a), products.of(b)
        shared = one.common(two)
        if not shared.has_factors and _is_read_elsewhere(make, one, two, args):
            return None
        # A number alone is taken out only if it is that of both: `2 * x + 2 * y`.
        if shared == Product() or not (shared.has_factors or one.number == two.number):
            continue
        rest = [products.op(term.without(shared)) for term in (one, two)]
        if any(item.kind == "bool" for item in rest):
            continue  # PyTorch does not subtract masks, and adds them as `or`
        if any(_is_fraction(item) for item in rest):
            continue  # Python does not divide by a size of 0
        if any(map(of_default_dtype, rest)):
            continue  # a mask over its count is float32 without its cotangent
        inner = make(rule, *rest)
        found = products.op_times(shared, inner)
        if found.shape == shapes.broadcast(a.shape, b.shape):
            return found
    return None


def _is_read_elsewhere(
    make: Maker, one: Product[Op], two: Product[Op], terms: Collection[Op]
) -> bool:
    """Return whether a factor of a term, a cotangent, is in another product of the program too, besides these two `terms`.

    Such a product gets a name, so the terms stay as they are: with a factor taken out they could not read it.
    """
    ops = make.program.ops
    return any(
        g in user.args and user.facts.operator == "*" and user not in terms
        for g in make.shared.intersection(one.tensors + two.tensors)
        for user in ops[g.serial + 1 :]  # what reads an op is made after it
    )


def _is_fraction(op: Op) -> bool:
    """Return whether a Python value contains a division by anything but a literal: by a size of 0, Python would raise."""
    return not op.is_tensor and any(
        part.is_python("binary", "/") and not is_literal(part.args[1])
        for part in op.walk()
    )


# The mean of a loss: the incoming gradient is divided once by the number of elements, `count`, not each gradient


class DividedFirst:
    """The gradients of a mean, computed from `seed / count` in place of the incoming gradient `seed`.

    `g / n * x` and `g / n * y` share the quotient of a scalar, in place of one division of a tensor each. `roots` are the new
    gradients, None if fewer than two divisions disappear, or if a gradient is not divided.
    """

    def __init__(
        self, make: Maker, roots: Mapping[str, Op], seed: Op, count: Op
    ) -> None:
        """Compute each of the gradients `roots` again, from `seed / count`; drop the divisions by `count` in them."""
        self.make, self.seed, self.count = make, seed, count
        self.quotient = make.div(seed, count)
        self.known: dict[tuple[Op, bool], Op | None] = {}  # answers of a call
        self.below: dict[Op, bool] = {}  # answers of `_reads`
        self.dropped = set[Op]()  # divisions by the count
        found = {name: self(root) for name, root in roots.items()}
        divided = {name: op for name, op in found.items() if op is not None}
        several = len(self.dropped) > 1 and len(divided) == len(roots)
        self.roots = divided if several else None

    def __call__(self, op: Op, divided: bool = False) -> Op | None:
        """Return the value of an op, computed from the quotient in place of the seed; None if it is impossible.

        With `divided`, for an operand of a dropped division, return its value over `count`: of `seed` itself that is the quotient.
        """
        key = (op, divided)
        if key not in self.known:
            self.known[key] = self._found(op, divided)
        return self.known[key]

    def _found(self, op: Op, divided: bool) -> Op | None:
        """Find the answer of `__call__` for one op, by those for its operands."""
        if op is self.seed:
            return self.quotient if divided else None
        if op.rule == "zeros":  # of its operand only dtype and device are read
            like = self(op.args[0]) or self(op.args[0], True)
            return like and self.make.program.over(op, (like,))
        # Also with `divided`: of `g * x` only `g` is divided.
        if not self._reads(op):
            return op
        # With `divided`, one division is dropped already, above this op.
        if op.facts.operator == "/" and not divided:
            rest = self._without_count(op.args[1])
            if rest is not None:
                self.dropped.add(op)
                above = self(op.args[0], True)
                # A rest of 1: the count was all of the divisor.
                if above is None or is_number(rest, 1):
                    return above
                return self.make.program.over(op, (above, rest))
        # With `divided`, the term that autograd hands in would have to be divided, too.
        if op.rule == "accumulated" and not divided:
            value = self(op.args[0])
            return value and self.make.program.over(op, (value, op.args[1]))
        read = [arg for arg in op.args if self._reads(arg)]
        if not self._is_linear(op, read):
            return None
        args = [self(arg, divided) for arg in op.args]
        possible = [arg for arg in args if arg is not None]
        if len(possible) < len(args):
            return None
        is_product = op.facts.operator == "*" and op.args[0].is_tensor
        if is_product and args[-1] is self.quotient:
            possible.reverse()  # a scalar comes first, but behind a Python number
        return self.make.program.over(op, possible)

    def _without_count(self, below: Op) -> Op | None:
        """Return a divisor without its factor `count`: `n * m` -> `m`, `n` -> 1; None if it has no such factor."""
        if below is self.count:
            return self.make.const(1)
        if not below.is_python("binary", "*") or self.count not in below.args:
            return None
        one, two = below.args
        return two if one is self.count else one

    def _is_linear(self, op: Op, read: Sequence[Op]) -> bool:
        """Return whether an op's value is linear in `read`, the operands computed from the incoming gradient.

        Then its value over `count` is computed from these operands over `count`.
        """
        # A sign, `-g`, is no difference; it counts as linear below.
        operator = op.facts.operator if len(op.args) == 2 else ""
        if op.rule in CHOICES or operator in ("+", "-"):
            values = op.args[-2:]  # without the mask of a `where`
            mask_is_read = any(arg not in values for arg in read)
            # Any other term would have to be divided, too.
            return not mask_is_read and all(
                arg in read or is_number(arg, 0) for arg in values
            )
        if op.rule == "list":
            return len(read) == len(op.args)
        if operator == "/":
            return read == [op.args[0]]
        # Of `g * g` each factor would be divided: a multilinear op may read only one. Beside it a linear one, as `masked_fill`, has numbers
        # that add nothing: a gradient is linear in the incoming one.
        linear = op.facts.linear or "multilinear" in op.facts.flags
        return linear and len(read) == 1

    def _reads(self, op: Op) -> bool:
        """Return whether a value is computed from the incoming gradient, not from its shape or dtype alone."""
        if op not in self.below:
            reads = op is self.seed or any(map(self._reads, op.args))
            self.below[op] = reads and op.rule not in ("zeros", "shape", "dtype")
        return self.below[op]


def divided_first(
    make: Maker, roots: Mapping[str, Op], seeds: Iterable[Op]
) -> DividedFirst | None:
    """Return the gradients computed from `grad_output / n`, for a forward whose only result is a scalar, as a mean.

    `seeds` are the incoming gradients. None unless several divisions by one count disappear.
    """
    several = [*seeds]
    if len(several) != 1 or several[0].shape != SCALAR:
        return None
    ops = {op for root in roots.values() for op in root.walk()}
    quotients = (op for op in ops if op.facts.operator == "/")
    divisors = Counter(count for op in quotients for count in _counts(op.args[1]))
    for count in sorted(divisors, key=lambda op: op.serial):
        if divisors[count] > 1:
            found = DividedFirst(make, roots, several[0], count)
            if found.roots is not None:
                return found
    return None


def _counts(below: Op) -> Iterable[Op]:
    """Return the Python values a divisor is a product of, except literals: candidates for `count`."""
    parts = below.args if below.is_python("binary", "*") else (below,)
    return (op for op in parts if not op.is_tensor and not is_literal(op))


# Two products have a number and a factor in common: they are multiplied once


def shared_multiples(
    make: Maker, roots: Mapping[str, Op], whole: Collection[Op]
) -> dict[Op, Op]:
    """Return the replacements of `g * x / 6` and `g * y / 6` by `g / 6 * x` and `g / 6 * y`, with one pass less; `whole` ops stay.

    The multiple `g / 6` then stands twice, so it gets a name. An integer `g` is no such factor: multiples of one can overflow, or
    lose digits in the default dtype.
    """
    ops = {op for root in roots.values() for op in root.walk()} - {*whole}
    readers = Counter(arg for op in ops for arg in op.args)
    # Products that only their multiple reads: no other reader keeps `g * x`.
    alone = {op for op in ops if op.facts.operator == "*" and readers[op] == 1}
    multiples = {
        op: _multiples_of_factors(op, product)
        for op in ops
        if op.facts.operator in ("*", "/") and "static" in [x.kind for x in op.args]
        for product in alone.intersection(op.args)
    }
    shared = Counter(
        (op.rule, args) for op, found in multiples.items() for args in found
    )

    def renewed_multiple(op: Op, of: Renewal) -> Op:
        """Return `g / 6 * x` for `g * x / 6`, if another op contains the multiple `g / 6` too; else the op over new arguments."""
        for args, factor in multiples.get(op, {}).items():
            if shared[op.rule, args] > 1:
                multiple = make.program.over(op, map(of, args))
                # The factor stands in the only product: the other argument of `op` is a number.
                (product,) = (arg for arg in op.args if arg in alone)
                both = (multiple if arg is factor else of(arg) for arg in product.args)
                return make.program.over(product, both)
        return make.program.over(op, map(of, op.args))

    return renewed(roots.values(), whole, renewed_multiple)


def _multiples_of_factors(op: Op, product: Op) -> dict[tuple[Op, ...], Op]:
    """Return, for `g * x / 6` and its product `g * x`, the arguments of `g / 6` and of `x / 6`, each with its factor, `g` or `x`.

    A factor of another shape than the op would be broadcast, so it is left out. A square has no two factors: {}.
    """
    if product.args[0] is product.args[1]:
        return {}
    return {
        tuple(factor if arg is product else arg for arg in op.args): factor
        for factor in product.args
        if factor.kind == op.kind and factor.shape == op.shape
    }


# Products of whole gradients: scalars, tensors or not, are multiplied first


def scalars_first(
    make: Maker, roots: Mapping[str, Op], whole: Collection[Op]
) -> dict[Op, Op]:
    """Return old op -> new op for the ops of the gradients, with the scalars of a product first: `x * (g * y) / n` -> `g / n * (x * y)`.

    A scalar, a number or a tensor without dims, is then multiplied once, in one pass over one large tensor. Ops in `whole` are not
    taken apart: they have a name in the forward.
    """
    return renewed(roots.values(), whole, _Scalars(make, roots, whole).renewed)


class _Scalars:
    """The pass of `scalars_first`: `uses` counts the readers of each op, as one read by several is not taken apart."""

    def __init__(
        self, make: Maker, roots: Mapping[str, Op], whole: Collection[Op]
    ) -> None:
        """Count the readers of each op below the gradients `roots`; ops in `whole` stay."""
        self.make, self.whole = make, whole
        self.uses = Counter(roots.values())
        for op in {op for root in roots.values() for op in root.walk()}:
            self.uses.update(op.args)

    def renewed(self, op: Op, of: Renewal) -> Op:
        """Return the replacement of an op: scalar factors first, and the minus of an expanded scalar before it is expanded.

        So these operations work on a scalar, not on a tensor. `of` returns the replacement of an argument.
        """
        if op.facts.operator == "-" and len(op.args) == 1:
            (inner,) = op.args
            is_read_once = self.uses[inner] == 1 and inner not in self.whole
            if inner.rule == "expanded" and is_read_once:
                minus = self.make.neg(of(inner.args[0]))
                return self.make.program.over(inner, (minus,))
        if op.facts.operator in ("+", "-") and len(op.args) == 2:
            args = tuple(map(of, op.args))
            # A scalar moved first may have brought a minus along: `a + -b` is `a - b`.
            is_new = args != op.args
            found = self.make.identities(self.make, op.rule, args) if is_new else None
            if found is not None:
                return found
        if op.rule in ("mul", "div") and op.shape != SCALAR and op.kind == "real":
            found = self._regrouped(op, of)
            if found is not None:
                return found
        return self.make.program.over(op, map(of, op.args))

    def _regrouped(self, op: Op, of: Renewal) -> Op | None:
        """Return `s / t * (x * y)` for `x * (s * y) / t`, with scalars s and t.

        None without a scalar tensor or a divisor, or with a single scalar factor, or if the shape would differ.
        """

        def whole(item: Op) -> bool:
            """Return whether an op is one factor: read by several, or neither a product nor a quotient by a scalar."""
            # The product itself may have several readers: it is only written in another order.
            if item in self.whole or self.uses[item] > 1 and item is not op:
                return True
            by_scalar = item.rule == "div" and _is_small(item.args[1])
            return item.rule != "mul" and not by_scalar

        product = Products(self.make.program, self.make, whole).of(op)
        # Without a number to multiply it with, an expanded scalar is read as it is.
        if product.number != 1:
            product = product._replace(tensors=self._before_repeated(product.tensors))
        small = _smallest(product.tensors)
        large = [item for item in product.tensors if item not in small]
        below = (*product.below, *product.static_below)
        if not large or not (small or product.below):
            return None
        # A single scalar without a number costs one pass wherever it stands.
        if product.number == 1 and len(product.statics) + len(small) + len(below) < 2:
            return None
        minus = product.number == -1
        if minus or product.number == 1:  # `-0.5 * beta * (2 * x)` is `-(beta * x)`
            product = product._replace(number=1)  # and not 1.0
        scalar = self._scalar(product, small, below, of)
        rest = [of(item) for item in large]
        together = rest[0]
        for item in rest[1:]:
            together = self._times(together, item)
        found = self._times(scalar, together)
        if found.shape != op.shape:
            # The scalar was expanded to the shape: so is the new one.
            found = self._times(self.make.expanded(scalar, op.shape), together)
        if found.shape != op.shape:
            return None
        return self.make.neg(found) if minus else found

    def _before_repeated(self, tensors: Iterable[Op]) -> tuple[Op, ...]:
        """Return the factors with each expanded scalar replaced by the scalar itself: in two known ops, one the KL of a VAE."""
        found = list[Op]()
        for item in tensors:
            is_expanded = item.rule == "expanded" and item not in self.whole
            before = item.args[0] if is_expanded else item
            found.append(before if _is_small(before) else item)
        return tuple(found)

    def _times(self, one: Op, two: Op) -> Op:
        """Return a product of just these two, in this order; a simplification would undo the order."""
        return self.make.applier.named("mul", one, two)

    def _scalar(
        self,
        product: Product[Op],
        small: Iterable[Op],
        below: Iterable[Op],
        of: Renewal,
    ) -> Op:
        """Return the scalar part of a product: the Python numbers, times the `small` factors, over the divisors `below`."""
        total = self.make.const(product.number)
        for item in (*product.statics, *small):
            # One with a name is a factor as it is: `make.mul` would move parts of it.
            as_it_is = item in self.whole and not is_number(total, 1)
            times = self._times if as_it_is else self.make.mul
            total = times(total, of(item))
        for item in below:
            total = self.make.div(total, of(item))
        return total


def _smallest(tensors: Sequence[Op]) -> list[Op]:
    """Return the factors of a product to multiply first: the scalars, or else those with a dim of size 1, as `rstd` in `x * rstd**3`.

    Of several such shapes the most common one is taken; none if all factors are reduced: there is no large one.
    """
    scalars = [item for item in tensors if _is_small(item)]
    if scalars:
        return scalars
    reduced = [item for item in tensors if _is_reduced(item.shape)]
    if not reduced or len(reduced) == len(tensors):
        return []
    ((most_common, _),) = Counter(item.shape for item in reduced).most_common(1)
    return [item for item in reduced if item.shape == most_common]


def _is_reduced(shape: Shape) -> bool:
    """Return whether a shape has a dim of size 1, as after a reduction with `keepdim`."""
    return isinstance(shape.origin, Kept) or 1 in (shape.dims or ())


def _is_small(op: Op) -> bool:
    """Return whether a value is a Python value or a real scalar tensor."""
    return not op.is_tensor or (op.shape == SCALAR and op.kind == "real")
