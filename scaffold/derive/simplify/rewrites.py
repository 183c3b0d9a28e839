"""Rewrite single primitives in the backward: transposes, squeezes, quotients, reductions and scatters, each under its condition.

In: the arguments. Out: a simpler op, or None: the docstring `Return <new> for <old>` of a function says which. Invariant: same
value, same shape; a value with a name in the forward stays whole.

An identity that spelling alone decides is a line of the table, as in `algebra`. These are code since they ask for more: a shape,
dims in either spelling, an op outside the table, any reduction.

Words: an opaque op is read by its name in the forward, never taken apart. A `contracted` op is a product of matrices summed over
its leading dims; `summed_to` is `sum_to_size`. A line is the values along one dim, a row of a matrix; a loss over classes has a
one-hot with a single 1 in each line. `g` is a gradient.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import OfShape, Op, SummedTo, is_number, literal
from scaffold.derive.graph.precision import of_default_dtype
from scaffold.derive.graph.shape_rules import dim_of, dims_of
from scaffold.derive.graph.shapes import Axes, Shape, Squeezed
from scaffold.derive.rules.formula_words import count
from scaffold.derive.simplify.constructors import Maker, Registry
from scaffold.derive.simplify.products import Product, taken_apart

# --- Facts about values without computing them: true in exact arithmetic if the values are finite. If a fact is unknown
# the answer is False.


def along(op: Op) -> Axes | None:
    """Return the dims of a reduction if they are known, and kept with size 1; None otherwise."""
    return _kept_dims(op.args[1:])


def _kept_dims(rest: Sequence[Op]) -> Axes | None:
    """Return the dims of a reduction, given its arguments behind the tensor, if they are known, and kept with size 1; None otherwise."""
    if len(rest) < 2 or literal(rest[1]) is not True:
        return None
    return dims_of(rest[0]) or None


def is_constant_along(op: Op, left: Shape) -> bool:
    """Return whether a value is constant along the dims that have size 1 in the shape `left`: it may be moved out of a sum over them."""
    return not op.is_tensor or shapes.fits(op.shape, left)


def sums_to_zero(make: Maker, op: Op, dims: Axes) -> bool:
    """Return whether a value's sum along dims is certainly zero: `x - mean(x)`, or a multiple or a sum of such values."""
    if op.rule == "neg":
        return sums_to_zero(make, op.args[0], dims)
    operator = op.facts.operator
    if operator in ("+", "-") and all(
        arg.shape == op.shape and sums_to_zero(make, arg, dims) for arg in op.args
    ):
        return True
    if operator == "-":
        one, two = op.args
        return _is_mean(two, one, dims) or _is_mean(one, two, dims)
    if operator not in ("*", "/"):
        return False
    left = shapes.reduced(op.shape, dims, True)
    product = taken_apart(op)  # values with a name too
    if not all(is_constant_along(part, left) for part in product.below):
        return False
    # If all other factors are constant along the dims, the sum is a multiple of this one's, if it has these dims.
    varying = [part for part in product.tensors if not is_constant_along(part, left)]
    if len(varying) != 1 or varying[0].shape != op.shape:
        return False
    return sums_to_zero(make, varying[0], dims)


def same_dims(shape: Shape, one: Axes | None, two: Axes | None) -> bool:
    """Return whether two specifications mean the same dims of a shape, as -1 and 1 of a matrix; False if one means all dims, or none."""
    if not one or not two:
        return False
    places = [{shapes.position(shape, dim) for dim in dims} for dims in (one, two)]
    return one == two or None not in places[0] and places[0] == places[1]


def _is_mean(op: Op, x: Op, dims: Axes) -> bool:
    """Return whether `op` is the mean of `x` along the dims, in a shape to be subtracted from `x`.

    That is with keepdim, or over the first dims, so that it broadcasts.
    """
    # `x.mean()` alone has no dims.
    if op.rule != "mean" or len(op.args) != 3 or op.args[0] is not x:
        return False
    if not same_dims(x.shape, dims_of(op.args[1]), dims):
        return False
    places = {shapes.position(x.shape, dim) for dim in dims}
    return literal(op.args[2]) is True or places == {*range(len(dims))}


def _is_distribution(op: Op, dims: Axes) -> bool:
    """Return whether a value's entries along the dims sum to 1: a softmax, or the exponential of a log_softmax."""
    flag = "distribution"
    if op.rule == "exp":
        op, flag = op.args[0], "log_distribution"
    return flag in op.facts.flags and same_dims(op.shape, dims_of(op.args[1]), dims)


# --- Transposes and squeezes.


REWRITES = Registry()


@REWRITES.on("mT")
def _transpose_of_sum_over_lines(make: Maker, a: Op) -> Op | None:
    """Return `g.mT @ x` summed over leading dims for `(x.mT @ g).mT`: so the gradient of a weight needs no transpose.

    In 11 of 661 known ops, each with a linear layer.
    """
    if not make.is_(a, "contracted"):
        return None
    x, y, *dims = a.args
    shape = shapes.transposed(a.shape, -2, -1)
    return make.program.op("contracted", (y, x, *dims), None, kind=a.kind, shape=shape)


@REWRITES.on("mT")
def _transpose_inside_sum(make: Maker, a: Op) -> Op | None:
    """Return `g.mT.sum_to_size(m, n)` for `g.sum_to_size(n, m).mT`, unless an input has that shape.

    The transpose then meets that of a product in `g`; an input (`like`) would give the shape without sizes. `a.rule` is `summed_to`,
    or `fitted_to`, which is that after an expansion.
    """
    if make.opaque(a) or not isinstance(a.data, SummedTo) or a.data.like is not None:
        return None
    shape = shapes.transposed(a.data.shape, -2, -1)
    inner = make.mT(a.args[0])
    return make.program.op(
        a.rule, (inner,), SummedTo(shape, None), kind=a.kind, shape=shape
    )


@REWRITES.on("squeeze")
def _squeezed_reduction(make: Maker, a: Op, dim: Op) -> Op | None:
    """Return `x.sum(-1)` for `x.sum(-1, keepdim=True).squeeze(-1)`, and the like for other reductions."""
    if make.is_(a, "summed_to"):
        return _squeezed_sum_to(make, a, dim)
    # Some have more arguments, as the order of a norm.
    if a.facts.category != "reduction" or len(a.args) != 3 or make.opaque(a):
        return None
    x, dims, keepdim = a.args
    same_as_written = dims_of(dims) == dims_of(dim)
    # One dim, maybe counted from the other end; of several only one would be squeezed.
    is_one = isinstance(literal(dims), int) and _same_dim(a, dims, dim)
    if literal(keepdim) is True and (same_as_written or is_one):
        return make(a.rule, x, dims, make.const(False))
    return None


def _squeezed_sum_to(make: Maker, a: Op, dim: Op) -> Op | None:
    """Return `g.sum(-1).sum_to_size(w.shape)` for `g.sum_to_size(w.unsqueeze(-1).shape).squeeze(-1)`: the shape is an input's then."""
    at = shapes.from_end(a.shape, dim_of(dim))  # as dims of both are counted
    if at is None:
        return None
    shape = shapes.squeezed(a.shape, at)
    if isinstance(shape.origin, Squeezed):  # only the call tells whether the dim goes
        return None
    summed = make.sum(a.args[0], make.const(at))
    like = _input_with(make, shape)
    return summed if summed.shape == shape else make.summed_to(summed, shape, like)


def _input_with(make: Maker, shape: Shape) -> Op | None:
    """Return the first input with a shape; None if there is none."""
    inputs = (op for op in make.program.ops if op.rule == "input")
    return next((op for op in inputs if op.shape == shape), None)


@REWRITES.on("squeeze")
def _unsqueeze_undone(make: Maker, a: Op, dim: Op) -> Op | None:
    """Return `x` for `x.unsqueeze(1).squeeze(-1)` of a vector, or of a column, with a last dim of 1 as well."""
    if not make.is_(a, "unsqueeze"):
        return None
    undone = _same_dim(a, a.args[1], dim) or _ones_between(a, a.args[1], dim)
    return a.args[0] if undone else None


def _ones_between(a: Op, one: Op, two: Op) -> bool:
    """Return whether two dims and all between them have size 1, as in `weight[:, None, None]`: it is the same to remove either."""
    places = [shapes.position(a.shape, dim_of(dim)) for dim in (one, two)]
    known = [at for at in places if at is not None]
    if len(known) < len(places) or a.shape.dims is None:
        return False
    return all(dim == 1 for dim in a.shape.dims[min(known) : max(known) + 1])


def _same_dim(a: Op, one: Op, two: Op) -> bool:
    """Return whether two Python values name the same dim of a value."""
    return same_dims(a.shape, (dim_of(one),), (dim_of(two),))


@REWRITES.on("squeeze")
def _squeezed_sum(make: Maker, a: Op, dim: Op) -> Op | None:
    """Return `x.sum((-2, -1)).unsqueeze(-1)` for `x.sum((-2, -1), keepdim=True).squeeze(-2)`.

    For scales of a whole channel, `x * gamma[..., None, None]`, in 12 of 661 known ops: the next squeeze removes the last dim as well.
    """
    if a.rule != "sum" or make.opaque(a) or len(dims_of(a.args[1]) or ()) < 2:
        return None
    x, dims, keepdim = a.args
    plain = [at for at in dims_of(dims) or () if isinstance(at, int)]
    at = shapes.from_end(a.shape, dim_of(dim))  # as dims of both are counted
    # All dims must be counted from the end, as those are that come back below.
    if literal(keepdim) is not True or at not in plain or max(plain) >= 0:
        return None
    found = make.sum(x, dims)
    for item in sorted((item for item in plain if item != at), reverse=True):
        # Counted from the end: without the squeezed dim behind it, this one is one nearer.
        found = make.unsqueeze(found, make.const(item + 1 if at > item else item))
    return found


@REWRITES.on("unsqueeze")
def _squeeze_undone(make: Maker, a: Op, dim: Op) -> Op | None:
    """Return `x` for `x.squeeze(1).unsqueeze(1)`, and a scalar expanded to the unsqueezed shape for an expanded one unsqueezed."""
    wide = shapes.unsqueezed(a.shape, dim_of(dim))
    if make.is_(a, "squeeze") and a.args[0].shape == wide:
        return a.args[0]
    if a.rule == "expanded" and a.args[0].shape == shapes.SCALAR:
        return make.expanded(a.args[0], wide)
    return None


# --- Parts of a tensor after another part was replaced: `R[:, 0, 0] = a` and then `R[:, 0, 1] = b`, as rotation matrices are built.
# In 1 of 661 known ops, the covariance of Gaussian splats, with a backward more than twice as long without it.


PUT = "select_scatter"  # puts a part into a tensor, at one index of a dim
SCATTER = "scatter"  # puts values into a tensor, at an index for each of them


@REWRITES.on("select")
def _part_elsewhere(make: Maker, a: Op, dim: Op, index: Op) -> Op | None:
    """Return `y[:, 0]` for `y.select_scatter(b, 1, 1)[:, 0]`: index 0 is not the replaced one, so `b` is not read."""
    base = a
    while make.is_(base, PUT) and base.args[2] is dim:
        if not _are_apart(literal(index), literal(base.args[3])):
            break
        base = base.args[0]
    return None if base is a else make("select", base, dim, index)


def _are_apart(one: object, two: object) -> bool:
    """Return whether two indices certainly differ: numbers counted from the same end; of -1 and 2 only the size tells."""
    if type(one) is not int or type(two) is not int:
        return False
    return one != two and (one < 0) == (two < 0)


@REWRITES.on("add")
def _put_into_zeros(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `y.select_scatter(b, 1, 0)` for `y.select_scatter(zeros, 1, 0) + zeros.select_scatter(b, 1, 0)`.

    The place has zeros in the first term, and the second has zeros elsewhere.
    """
    if not (make.is_(a, PUT) and make.is_(b, PUT)):
        return None
    for one, two in ((a, b), (b, a)):
        (base, hole, *place), (rest, part, *other_place) = one.args, two.args
        is_free = hole.rule == rest.rule == "zeros" and place == other_place
        if is_free and (one.shape, one.kind) == (two.shape, two.kind):
            return make.program.shaped(make(a.rule, base, part, *place), a.shape)
    return None


# --- Quotients, reductions, scatters.


@REWRITES.on(PUT)
def _put_into_one_place(make: Maker, a: Op, part: Op, dim: Op, index: Op) -> Op | None:
    """Return `g.unsqueeze(1)` for `zeros(n, 1).select_scatter(g, 1, 0)`, the only index.

    For a loss of `x.gather(1, labels[:, None])[:, 0]`.
    """
    is_only = a.rule == "zeros" and shapes.size(a.shape, dim_of(dim)) == 1
    return make("unsqueeze", part, dim) if is_only else None


# Ops linear in a cotangent; an infinity in an operand passes through them.
ARITHMETIC = frozenset({"mul", "div", "add", "sub", "where"})
LINEAR = ARITHMETIC | {"real", "conj"}


@REWRITES.on("div")
def _divided_apart(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `g / y.gather(...) * onehot` for `g * onehot / y`: other elements of `y`, maybe zero, are not divided by.

    No known op has it; second derivatives would be nan where autograd's are numbers.
    """
    if not (make.is_(a, "mul") and b.is_tensor and b.shape == a.shape):
        return None
    source, onehot = a.args
    if not is_one_hot(onehot):
        return None
    _, dim, index, _ = onehot.args
    return make.mul(make.div(source, make("gather", b, dim, index)), onehot)


@REWRITES.on("div")
def div_by_count(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `mean(x, dim)` for `sum(x, dim) / n`, or for a product with that sum, if the divisor `b` is the number of elements summed."""
    product = make.products.of(a)
    for at, factor in enumerate(product.tensors):
        if factor.rule == "sum" and not make.opaque(factor):
            x, dim, keepdim = factor.args
            # Equal Python values are one op, so `is` compares them.
            if count(make, x, dim) is b:
                none = literal(dim) is None
                mean = make.mean(x) if none else make.mean(x, dim, keepdim)
                tensors = (*product.tensors[:at], mean, *product.tensors[at + 1 :])
                return make.products.op(product._replace(tensors=tensors))
    return None


@REWRITES.on("diagonal_scatter")
def _square_of_zeros(make: Maker, a: Op, line: Op, *rest: Op) -> Op | None:
    """Return `torch.diag_embed(line)` for a diagonal `line` put into square zeros, without the zeros.

    In 12 of 661 known ops, most of them contrastive losses.
    """
    # `rest`: the offset of the diagonal, and its two dims; by default 0, and the first two.
    offset, *pair = rest or (make.const(0),)
    places = {shapes.position(a.shape, dim_of(dim)) for dim in pair} or {0, 1}
    dims = a.shape.dims or ()
    is_square = len(dims) > 1 and dims[-1] == dims[-2]
    if a.rule != "zeros" or literal(offset) != 0 or not is_square:
        return None
    last_two = {len(dims) - 2, len(dims) - 1}
    return make.applier.named("diag_embed", line) if places == last_two else None


@REWRITES.on("sum")
def _sum_over_values(make: Maker, a: Op, *rest: Op) -> Op | None:
    """Return `(g * out).sum(-1, keepdim=True)` for `((g @ v.mT) * p).sum(-1, keepdim=True)`, with the op's result `out = p @ v`.

    For attention, 8 of 661 known ops: FlashAttention's backward has it too (Dao et al., 2022, appendix B). It reads a line of values
    instead of one of scores.
    """
    if _kept_dims(rest) != (-1,) or a.facts.operator != "*" or make.opaque(a):
        return None
    for scores, p in (a.args, a.args[::-1]):
        for out in make.results:
            are_products = out.rule == scores.rule == "matmul"
            if not are_products or out.args[0] is not p or make.opaque(scores):
                continue
            (g, turned), (_, values) = scores.args, out.args
            # Nothing is broadcast: both sums have the same terms.
            fits = scores.shape == p.shape and g.shape == out.shape
            if fits and make.mT(values) is turned:
                return make.sum(make.mul(g, out), *rest)
    return None


@REWRITES.on("sum")
def _sum_of_distribution(make: Maker, a: Op, *rest: Op) -> Op | None:
    """Return 1 for the sum of each line of a one-hot or of a constant softmax: in 6 of 661 known ops, each a loss over classes."""
    dims = _kept_dims(rest)
    if dims is None:
        return None
    # A softmax of a masked or an empty line sums to NaN or to 0: autograd's gradient shows it if the softmax has one.
    constant = _is_distribution(a, dims) and not a.active
    return make.const(1) if constant or _has_one(a, dims) else None


@REWRITES.on("sum")
def _sum_of_smoothed_labels(make: Maker, a: Op, *rest: Op) -> Op | None:
    """Return `p + c` for each line's sum of `p * onehot + c / n`, with `p` and `c` constant along the line of `n` values.

    So the gradient of a cross entropy with smoothed labels sums nothing over the classes.
    """
    dims = _kept_dims(rest)
    if dims is None or a.facts.operator != "+":
        return None
    left = shapes.reduced(a.shape, dims, True)
    products, length = make.deep_products, count(make, a, rest[0])
    for one, other in (a.args, a.args[::-1]):
        labels, part = products.of(one), products.of(other)
        onehot = next((op for op in labels.tensors if _has_one(op, dims)), None)
        divisors = _without_factor(part.static_below, length)
        if onehot is None or divisors is None:
            continue
        p = products.op(labels.without(Product(tensors=(onehot,))))
        c = products.op(part._replace(static_below=divisors))
        if is_constant_along(p, left) and is_constant_along(c, left):
            return make.expanded(make.add(p, c), left)
    return None


def _without_factor(divisors: Sequence[Op], factor: Op) -> tuple[Op, ...] | None:
    """Return divisors without a factor: `m` for `n * m`; None unless it is there once (of `n * n` one `n` would have to stay)."""
    parts = list[Op]()
    for op in divisors:
        parts += op.args if op.is_python("binary", "*") else (op,)
    if parts.count(factor) != 1:
        return None
    return tuple(part for part in parts if part is not factor)


def is_one_hot(op: Op) -> bool:
    """Return whether an op is zeros with ones scattered along a dim."""
    ones = op.rule == SCATTER and is_number(op.args[3], 1)
    return ones and op.args[0].rule == "zeros"


def _has_one(op: Op, dims: Axes) -> bool:
    """Return whether an op is zeros with a single 1 along the dim; an index of several entries has several ones."""
    if not is_one_hot(op) or not same_dims(op.shape, dims, dims_of(op.args[1])):
        return False
    return shapes.size(op.args[2].shape, dims[0]) == 1


@REWRITES.on("scatter_add")
def _scatter_add(make: Maker, a: Op, dim: Op, index: Op, source: Op) -> Op | None:
    """Return `source` times a one-hot for a scatter of one value per line into zeros.

    Such a product needs no `scatter_add`, and meets other factors. In 10 of 661 known ops, most of them losses over classes.
    One that meets none becomes a scatter again at the end (`scattered`).
    """
    line = shapes.with_dim(a.shape, dim_of(dim), 1)
    if a.rule != "zeros" or index.shape != line or source.shape != line:
        return None
    # `torch.zeros_like(x)` by an input `x` of this shape: `a` may be `grad_output.new_zeros(x.shape)`.
    like = _input_with(make, a.shape) or a.args[0]
    return make.mul(source, _into_zeros(make, a, like, dim, index, make.const(1)))


def _into_zeros(
    make: Maker, result: Op, like: Op, dim: Op, index: Op, source: Op
) -> Op:
    """Return a scatter of `source` into zeros, in the shape and kind of `result`, in the dtype and on the device of `like`."""
    shape, kind = result.shape, result.kind
    zeros = make.program.op("zeros", (like,), OfShape(shape), kind=kind, shape=shape)
    args = (zeros, dim, index, source)
    return make.program.op(SCATTER, args, kind=kind, shape=shape)


def scattered(make: Maker, roots: Mapping[str, Op]) -> dict[Op, Op]:
    """Return the replacements of gradients `value * one_hot`, of one value per line, by these values scattered into zeros.

    Where a value is infinite, the product would be NaN in the whole line, though the gradient is 0 there. Only a whole gradient is
    replaced: in a sum, a one-hot is read better as a term, and compared with by a kernel.
    """
    replaced = {op: op for op in roots.values()}
    for op in roots.values():
        product = op.args[0] if op.rule == "neg" else op
        pairs = permutations(product.args) if product.facts.operator == "*" else ()
        for value, one_hot in pairs:
            if not is_one_hot(one_hot):
                continue
            _, dim, index, _ = one_hot.args
            line = shapes.with_dim(one_hot.shape, dim_of(dim), 1)
            if value.shape == index.shape == line:
                source = value if product is op else make.neg(value)
                replaced[op] = _into_zeros(make, op, value, dim, index, source)
    return replaced


@REWRITES.on("add")
def _less_one_hot_last(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `((g + h) * p).scatter_add(1, index, -g)` for `g * (p - onehot) + h * p`, as the gradient of a cross entropy with a z-loss.

    `g` and `h` have one number for each line: a product less of the whole shape, and no one-hot.
    """
    for one, two in ((a, b), (b, a)):
        if not (make.is_(one, "mul") and make.is_(two, "mul")):
            continue
        (g, less), (h, p) = one.args, two.args
        if not (
            make.is_(less, "sub") and less.args[0] is p and is_one_hot(less.args[1])
        ):
            continue
        _, dim, index, _ = less.args[1].args
        are_by_line = index.shape == g.shape == h.shape != p.shape
        are_whole = p.shape == a.shape == b.shape
        product = make.mul(make.add(g, h), p) if are_by_line and are_whole else None
        # A scatter takes values of the dtype of its tensor alone.
        if product and make.precision(product) == make.precision(g):
            put = make("scatter_add", product, dim, index, make.neg(g))
            return make.program.shaped(put, p.shape)
    return None


@REWRITES.on_each("sum", "mean")
def _term_dropped(make: Maker, rule: str, args: tuple[Op, ...]) -> Op | None:
    """Return `sum(x)` for `sum(x + (y - mean(y)))`: a term is dropped if its own sum is zero, along dims kept with size 1."""
    a, *rest = args
    dims = _kept_dims(rest)
    if dims is None or not make.is_(a, "add", "sub"):
        return None
    one, two = a.args
    # Alone, a smaller term would be summed over fewer elements.
    if not two.is_tensor or two.shape != one.shape:
        return None
    if sums_to_zero(make, two, dims):
        return make(rule, one, *rest)
    if sums_to_zero(make, one, dims):
        found = make(rule, two, *rest)
        return found if a.rule == "add" else make.neg(found)
    return None


@REWRITES.on_each("sum", "mean")
def _constant_factor_out(make: Maker, rule: str, args: tuple[Op, ...]) -> Op | None:
    """Return `m * sum(x)` for `sum(x * m)`, if `m` is constant along the kept dims: it is multiplied into fewer numbers."""
    a, *rest = args
    dims = _kept_dims(rest)
    if dims is None:
        return None
    left = shapes.reduced(a.shape, dims, True)
    products = make.deep_products
    term = products.of(a)
    outer = term._replace(
        tensors=tuple(op for op in term.tensors if shapes.fits(op.shape, left)),
        below=tuple(op for op in term.below if shapes.fits(op.shape, left)),
        statics=(),
        static_below=(),
    )
    # Nothing but a sign would be taken out, or nothing would be left inside.
    is_sign = outer.number in (1, -1) and not (outer.tensors or outer.below)
    if is_sign or outer == term:
        return None
    inner = products.op(term.without(outer))
    # Without what was taken out, the sum must be of the same shape, kind and dtype.
    if inner.shape != a.shape or inner.kind != a.kind or of_default_dtype(inner):
        return None
    tensors = (*outer.tensors, make(rule, inner, *rest))
    found = products.op(outer._replace(tensors=tensors))
    return make.expanded(found, left)


def has_poles(op: Op) -> bool:
    """Return whether a value may be infinite where its operands are finite: a quotient of tensors or a negative power is in it.

    Looked for inside linear ops, as these pass an infinity on.
    """
    if op.rule == "div" and op.args[1].is_tensor or op.facts.power < 0:
        return True
    if op.facts.operator == "**":
        exponent = literal(op.args[1])
        # An exponent that only the call tells may be negative.
        return not isinstance(exponent, int | float) or exponent < 0
    passes = op.rule in LINEAR or op.rule == "accumulated" or op.facts.linear
    return passes and any(map(has_poles, op.args))
