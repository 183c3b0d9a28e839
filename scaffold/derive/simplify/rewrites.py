"""Rewrites of single primitives in the backward: transposes, squeezes, quotients, reductions and scatters, each under its condition.

In: the arguments. Out: a simpler op, or None. Invariant: same value, same shape; what a forward local holds stays whole.
"""

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import OfShape, Op, SummedTo, literal
from scaffold.derive.graph.precision import of_default_dtype
from scaffold.derive.graph.shape_rules import dim_of, dims_of
from scaffold.derive.graph.shapes import Axes, Dim, Shape, Squeezed
from scaffold.derive.graph.static_values import is_length
from scaffold.derive.rules.formula_words import count
from scaffold.derive.simplify.constructors import Maker, Registry
from scaffold.derive.simplify.one_hots import is_one_hot
from scaffold.derive.simplify.products import taken_apart
from scaffold.formula import UNKNOWN

# --- What is known of values without computing them: true in exact arithmetic wherever the values are finite. What is not
# known is not true.


def along(op: Op) -> Axes | None:
    """The dims of a reduction that keeps them, where they are written out."""
    _, *rest = op.args
    if len(rest) < 2 or literal(rest[1]) is not True:
        return None
    return dims_of(rest[0]) or None


def is_constant_along(op: Op, left: Shape) -> bool:
    """Whether a value is the same along the dims that are 1 in a shape."""
    return not op.is_tensor or shapes.fits(op.shape, left)


def sums_to_zero(make: Maker, op: Op, dims: Axes) -> bool:
    """Whether its sum along the dims is zero: it is centred there, is a gradient of a softmax, or a multiple or a sum of such."""
    if op.rule == "neg":
        return sums_to_zero(make, op.args[0], dims)
    operator = op.facts.operator
    if operator in ("+", "-") and all(
        arg.shape == op.shape and sums_to_zero(make, arg, dims) for arg in op.args
    ):
        return True
    if operator == "-":
        one, two = op.args
        return any(
            _is_mean(rest, x, dims) or _is_share_of_sum(make, rest, x, dims)
            for x, rest in ((one, two), (two, one))
        )
    if operator == "@":
        return _product_sums_to_zero(make, op, dims)
    if operator not in ("*", "/"):
        return False
    left = shapes.reduced(op.shape, dims, True)
    product = taken_apart(op)  # values with a name too
    if not all(is_constant_along(part, left) for part in product.below):
        return False
    varying = [part for part in product.tensors if not is_constant_along(part, left)]
    if len(varying) == 2:
        one, two = varying
        pairs = ((one, two), (two, one))
        return any(_is_of_softmax(make, p, centred, dims) for p, centred in pairs)
    return len(varying) == 1 and (
        varying[0].shape == op.shape and sums_to_zero(make, varying[0], dims)
    )


def _product_sums_to_zero(make: Maker, op: Op, dims: Axes) -> bool:
    """Whether `x @ y` does along dims of `x` that `y` has not, or along the columns of `y`: the covariance of `x - x.mean(0)` has such a gradient."""
    x, y = op.args
    rank = op.shape.rank
    places = {shapes.position(op.shape, dim) for dim in dims}
    if rank is None or None in places:
        return False
    columns = rank - 1
    if x.shape.rank == rank and y.shape.rank == 2 and columns not in places:
        return sums_to_zero(make, x, dims)
    of_columns = y.shape.rank == rank > 1 and places == {columns}
    return of_columns and sums_to_zero(make, y, dims)


def _same_dims(shape: Shape, one: Axes | None, two: Axes | None) -> bool:
    """Whether two ways to say dims mean the same ones."""
    if not one or not two or one == two:
        return one == two and bool(one)
    places = [{shapes.position(shape, dim) for dim in dims} for dims in (one, two)]
    return None not in places[0] and places[0] == places[1]


def _is_mean(op: Op, x: Op, dims: Axes) -> bool:
    """Whether it is the mean along the dims, as `x - mean` has it: kept, or of the first dims, for which it is broadcast."""
    if op.rule != "mean" or len(op.args) != 3 or op.args[0] is not x:
        return False
    if not _same_dims(x.shape, dims_of(op.args[1]), dims):
        return False
    places = {shapes.position(x.shape, dim) for dim in dims}
    return literal(op.args[2]) is True or places == {*range(len(dims))}


def _is_distribution(op: Op, dims: Axes) -> bool:
    """Whether its values along the dims sum to 1: a softmax, or what a log_softmax is the logarithm of."""
    flag = "distribution"
    if op.rule == "exp":
        op, flag = op.args[0], "log_distribution"
    return flag in op.facts.flags and _same_dims(op.shape, dims_of(op.args[1]), dims)


def _is_of_softmax(make: Maker, probs: Op, centred: Op, dims: Axes) -> bool:
    """`probs * (g - sum(g * probs))`: the gradient of a softmax."""
    minus = centred.facts.operator == "-" and len(centred.args) == 2
    if not minus or not _is_distribution(probs, dims):
        return False
    g, total = centred.args
    if g.shape != probs.shape or not _reduces(total, dims, probs.shape):
        return False
    return total is make.sum(make.mul(g, probs), *total.args[1:])


def _is_share_of_sum(make: Maker, op: Op, g: Op, dims: Axes) -> bool:
    """`probs * sum(g)`, as the gradient of a log_softmax, `g - probs * sum(g)`, has it."""
    if op.facts.operator != "*":
        return False
    return any(
        _is_distribution(probs, dims)
        and probs.shape == g.shape
        and _reduces(total, dims, g.shape)
        and total is make.sum(g, *total.args[1:])
        for probs, total in (op.args, op.args[::-1])
    )


def _reduces(op: Op, dims: Axes, shape: Shape) -> bool:
    """Whether it is a sum along the dims that keeps them."""
    return op.rule == "sum" and _same_dims(shape, along(op), dims)


# --- Transposes and squeezes.


REWRITES = Registry()


@REWRITES.on("mT")
def _transpose_of_sum_over_lines(make: Maker, a: Op) -> Op | None:
    """The product of `x` and `y` over all their lines, transposed: that of `y` and `x`."""
    if not make.is_(a, "contracted"):
        return None
    x, y, *dims = a.args
    shape = shapes.transposed(a.shape, -2, -1)
    return make.program.op("contracted", (y, x, *dims), None, kind=a.kind, shape=shape)


@REWRITES.on("mT")
def _transpose_inside_sum(make: Maker, a: Op) -> Op | None:
    """`g.sum_to_size(n, m).mT` as `g.mT.sum_to_size(m, n)`, where the shape is no input's; so for what is spread first."""
    if make.opaque(a) or not isinstance(a.data, SummedTo) or a.data.like is not None:
        return None
    shape = shapes.transposed(a.data.shape, -2, -1)
    inner = make.mT(a.args[0])
    return make.program.op(
        a.rule, (inner,), SummedTo(shape, None), kind=a.kind, shape=shape
    )


@REWRITES.on("squeeze")
def _squeezed_reduction(make: Maker, a: Op, dim: Op) -> Op | None:
    """`x.sum(-1, keepdim=True).squeeze(-1)` as `x.sum(-1)`."""
    if make.is_(a, "summed_to"):
        return _squeezed_sum_to(make, a, dim)
    if a.facts.category != "reduction" or len(a.args) != 3 or make.opaque(a):
        return None
    x, dims, keepdim = a.args
    whole = dims_of(dims) == dims_of(dim)
    one = isinstance(literal(dims), int) and _same_dim(a, dims, dim)
    if literal(keepdim) is True and (whole or one):
        return make(a.rule, x, dims, make.const(False))
    return None


def _squeezed_sum_to(make: Maker, a: Op, dim: Op) -> Op | None:
    """`g.sum_to_size(w.unsqueeze(-1).shape).squeeze(-1)` as `g.sum(-1).sum_to_size(w.shape)`."""
    at = dim_of(dim)
    if isinstance(at, int) and at >= 0 and a.shape.rank is not None:
        at -= a.shape.rank  # from the end, as dims of both are counted
        dim = make.const(at)
    if not isinstance(at, int) or at >= 0:
        return None
    whole, shape = a.args[0], shapes.squeezed(a.shape, at)
    if isinstance(shape.origin, Squeezed):
        return None
    inputs = (op for op in make.program.ops if op.rule == "input")
    like = next((op for op in inputs if op.shape == shape), None)
    summed = make.sum(whole, dim)
    return make.summed_to_shape(summed, shape, like)


@REWRITES.on("squeeze")
def _unsqueeze_undone(make: Maker, a: Op, dim: Op) -> Op | None:
    """`x.unsqueeze(1).squeeze(-1)` as `x`, of a matrix; or of a column, whose last dim is 1 as well."""
    if not make.is_(a, "unsqueeze"):
        return None
    undone = _same_dim(a, a.args[1], dim) or _ones_between(a, a.args[1], dim)
    return a.args[0] if undone else None


def _ones_between(a: Op, one: Op, two: Op) -> bool:
    """Whether two dims are 1, and all between them: it does not matter which of them is left out."""
    places = [shapes.position(a.shape, dim_of(dim)) for dim in (one, two)]
    known = [at for at in places if at is not None]
    if len(known) < len(places) or a.shape.dims is None:
        return False
    return all(dim == 1 for dim in a.shape.dims[min(known) : max(known) + 1])


@REWRITES.on("squeeze")
def _squeezed_product(make: Maker, a: Op, dim: Op) -> Op | None:
    """`(w.unsqueeze(1) * g.sum(1, keepdim=True)).squeeze(1)` as `w * g.sum(1)`; a quotient or a minus likewise."""
    minus = a.facts.operator == "-"
    if a in make.shared or make.opaque(a) or not (minus or a.rule in ("mul", "div")):
        return None
    product = make.products.of(a)
    parts = a.args if minus else (*product.tensors, *product.below)
    wide = [item for item in parts if item.is_tensor]
    if any(item.shape.rank != a.shape.rank for item in wide):
        return None
    found = {item: make.squeeze(item, dim) for item in wide}
    if any(one.args[:1] == (item,) for item, one in found.items()):
        return None
    if minus:
        return make(a.rule, *(found.get(item, item) for item in parts))
    above, below = (
        tuple(map(found.__getitem__, items))
        for items in (product.tensors, product.below)
    )
    return make.products.op(product._replace(tensors=above, below=below))


def _same_dim(a: Op, one: Op, two: Op) -> bool:
    return _same_dims(a.shape, (dim_of(one),), (dim_of(two),))


@REWRITES.on("squeeze")
def _squeezed_sum(make: Maker, a: Op, dim: Op) -> Op | None:
    """`x.sum((-2, -1), keepdim=True).squeeze(-2)` as `x.sum((-2, -1)).unsqueeze(-1)`.

    For scales of a whole channel, `x * gamma[..., None, None]`: the next squeeze takes the last dim away as well.
    """
    if a.rule != "sum" or make.opaque(a) or len(dims_of(a.args[1]) or ()) < 2:
        return None
    x, dims, keepdim = a.args
    plain = [at for at in dims_of(dims) or () if isinstance(at, int)]
    at = literal(dim)
    if isinstance(at, int) and at >= 0 and a.shape.rank is not None:
        at -= a.shape.rank  # from the end, as dims of both are counted
    if literal(keepdim) is not True or at not in plain or max(plain) >= 0:
        return None
    found = make.sum(x, dims)
    rest = sorted((item for item in plain if item != at), reverse=True)
    for item in rest:
        gone = sum(1 for other in plain if other == at and other > item)
        found = make.unsqueeze(found, make.const(item + gone))
    return found


@REWRITES.on("unsqueeze")
def _unsqueezed_sum(make: Maker, a: Op, dim: Op) -> Op | None:
    """`x.sum(-1).unsqueeze(-1)` as `x.sum(-1, keepdim=True)`."""
    if a.rule != "sum" or make.opaque(a):
        return None
    x, dims, keepdim = a.args
    if literal(keepdim) is not False or dims_of(dims) != (dim_of(dim),):
        return None
    return make.sum(x, dims, make.const(True))


@REWRITES.on("unsqueeze")
def _squeeze_undone(make: Maker, a: Op, dim: Op) -> Op | None:
    """`x.squeeze(1).unsqueeze(1)` as `x`; a scalar that is expanded is expanded further."""
    wide = shapes.unsqueezed(a.shape, dim_of(dim))
    if make.is_(a, "squeeze") and a.args[0].shape == wide:
        return a.args[0]
    if a.rule == "expanded" and a.args[0].shape == shapes.SCALAR:
        return make.expanded(a.args[0], wide)
    return None


# --- Parts of what another part has been put into: `y[:, 0] = a` and then `y[:, 1] = b`.

PUT = frozenset({"select_scatter", "slice_scatter"})


@REWRITES.on_each("select")
def _part_elsewhere(make: Maker, rule: str, args: tuple[Op, ...]) -> Op | None:
    """`y.select_scatter(b, 1, 1)[:, 0]` as `y[:, 0]`."""
    a, dim, index = args
    whole = without_parts_elsewhere(make, a, dim, (index,))
    return None if whole is a else make(rule, whole, dim, index)


@REWRITES.on("add")
def _put_into_zeros(make: Maker, a: Op, b: Op) -> Op | None:
    """`y.select_scatter(zeros, 1, 0) + zeros.select_scatter(b, 1, 0)` as `y.select_scatter(b, 1, 0)`."""
    if not (make.is_(a, *PUT) and make.is_(b, a.rule)):
        return None
    for one, two in ((a, b), (b, a)):
        (whole, hole, *place), (rest, part, *other) = one.args, two.args
        free = hole.rule == rest.rule == "zeros" and place == other
        if free and (one.shape, one.kind) == (two.shape, two.kind):
            return make.program.shaped(make(a.rule, whole, part, *place), a.shape)
    return None


@REWRITES.on("select_scatter")
def _put_into_one_place(make: Maker, a: Op, part: Op, dim: Op, index: Op) -> Op | None:
    """`zeros(n, 1).select_scatter(g, 1, 0)` as `g.unsqueeze(1)`: there is no other place. Of `x.gather(1, labels[:, None])[:, 0]`."""
    at = shapes.position(a.shape, dim_of(dim))
    if a.rule != "zeros" or at is None or a.shape.dims is None:
        return None
    return make("unsqueeze", part, dim) if a.shape.dims[at] == 1 else None


def without_parts_elsewhere(
    make: Maker, whole: Op, dim: Op, place: tuple[Op, ...]
) -> Op:
    """What has the same values at a place of a dim, an index or a slice: for `[:, 0]` of `y.select_scatter(b, 1, 1)` it is `y`."""
    while make.is_(whole, *PUT) and whole.args[2] is dim:
        if not _are_apart(make, place, whole.args[3:]):
            break
        whole = whole.args[0]
    return whole


def _are_apart(make: Maker, one: tuple[Op, ...], two: tuple[Op, ...]) -> bool:
    """Whether two places of a dim have surely nothing in common."""
    places = [_bounds(make, place) for place in (one, two)]
    (start, _, step), (other, _, by) = places
    numbers = type(start) is type(other) is type(step) is int and step == by
    if numbers and 0 <= start < step and 0 <= other < step:  # type: ignore[operator]
        return start != other  # `x[..., ::2]` and `x[..., 1::2]`
    return any(
        _is_before(end, start) for (_, end, _), (start, *_) in (places, places[::-1])
    )


def _bounds(make: Maker, place: tuple[Op, ...]) -> tuple[object, object, object]:
    """Start, end and step of a place, each a number or None, or an op that is neither."""
    if len(place) == 1:
        index = literal(place[0])
        known = type(index) is int and index != -1
        return (index if type(index) is int else place[0]), index + 1 if known else None, 1  # type: ignore[operator]
    several = map(make.program.value_of, place)
    start, end, step = (op if literal(op) is UNKNOWN else literal(op) for op in several)
    return start or 0, end, step or 1


def _is_before(end: object, start: object) -> bool:
    """Whether what ends there has surely nothing of what starts here."""
    if type(end) is type(start) is int:
        return (end < 0) == (start < 0) and end <= start
    return end is start is not None


# --- Quotients, reductions, scatters.


# What is linear in a cotangent.
ARITHMETIC = frozenset({"mul", "div", "add", "sub", "where"})
LINEAR = ARITHMETIC | {"real", "conj"}


@REWRITES.on("div")
def div_by_count(make: Maker, a: Op, b: Op) -> Op | None:
    """`sum(x, dim) / n` as `mean(x, dim)`, where n is how many it takes."""
    product = make.products.of(a)
    for at, factor in enumerate(product.tensors):
        if factor.rule == "sum" and not make.opaque(factor):
            x, dim, keepdim = factor.args
            if count(make, x, dim) is b:
                none = literal(dim) is None
                mean = make.mean(x) if none else make.mean(x, dim, keepdim)
                tensors = (*product.tensors[:at], mean, *product.tensors[at + 1 :])
                return make.products.op(product._replace(tensors=tensors))
    return None


@REWRITES.on("sum")
def _sum_of_quotient(make: Maker, a: Op, *rest: Op) -> Op | None:
    """`sum(x / n)` as `sum(x) / n`; not by a size that may be 0 with nothing to sum, which would be 0 / 0."""
    if not make.is_(a, "div") or a.args[1].kind != "static":
        return None
    kept = len(rest) > 1 and literal(rest[1]) is True
    if not kept and is_length(a.args[1]):
        return None
    return make.div(make.sum(a.args[0], *rest), a.args[1])


@REWRITES.on("diagonal_scatter")
def _square_of_zeros(make: Maker, a: Op, line: Op, *rest: Op) -> Op | None:
    """A diagonal in square matrices of zeros, `torch.diag_embed(line)`."""
    dims, (offset, *pair) = a.shape.dims or (), rest or (make.const(0),)
    places = {shapes.position(a.shape, dim_of(dim)) for dim in pair} or {0, 1}
    square = len(dims) > 1 and dims[-1] == dims[-2]
    if a.rule != "zeros" or literal(offset) != 0 or not square:
        return None
    last_two = {len(dims) - 2, len(dims) - 1}
    return make.applier.named("diag_embed", line) if places == last_two else None


@REWRITES.on("sum")
def _sum_of_diagonal(make: Maker, a: Op, *rest: Op) -> Op | None:
    """Of square matrices of zeros but for a diagonal, which is the sum of each line, and of each column."""
    dims = dims_of(rest[0]) if len(rest) > 1 and literal(rest[1]) is True else None
    if not dims or len(dims) != 1 or not make.is_(a, "diag_embed"):
        return None
    count, at = len(a.shape.dims or ()), shapes.position(a.shape, dims[0])
    plain = [literal(item) for item in a.args[1:]] == [0, -2, -1]
    if at is None or at < count - 2 or not plain:
        return None
    return make.unsqueeze(a.args[0], make.const(at - count))


@REWRITES.on("sum")
def _sum_over_values(make: Maker, a: Op, *rest: Op) -> Op | None:
    """`((g @ v.mT) * p).sum(-1, keepdim=True)` as `(g * out).sum(-1, keepdim=True)`, where `out = p @ v` is what the op returns.

    Of attention: FlashAttention's backward has it too (Dao et al., 2022, appendix B). It reads a line of values instead of one of
    scores.
    """
    if len(rest) < 2 or literal(rest[1]) is not True or dims_of(rest[0]) != (-1,):
        return None
    if a.facts.operator != "*" or make.opaque(a) or a.kind != "real":
        return None
    for scores, p in (a.args, a.args[::-1]):
        for out in make.results:
            known = {out.rule, scores.rule} == {"matmul"} and out.args[0] is p
            if not known or make.opaque(scores):
                continue
            (g, turned), (_, values) = scores.args, out.args
            fits = scores.shape == p.shape and g.shape == out.shape
            if fits and make.mT(values) is turned:
                return make.sum(make.mul(g, out), *rest)
    return None


@REWRITES.on("sum")
def _sum_of_distribution(make: Maker, a: Op, *rest: Op) -> Op | None:
    """The sum of each line of a one-hot, or of a softmax, is 1; of `a + b * onehot`, as of smoothed labels, it is `n * a + b`."""
    dims = dims_of(rest[0]) if len(rest) > 1 and literal(rest[1]) is True else None
    if not dims:
        return None
    constant = _is_distribution(a, dims) and not a.active
    if constant or _has_one(a, dims):
        return make.const(1)
    return _of_smoothed(make, a, rest[0])


def _has_one(op: Op, dims: Axes | None) -> bool:
    """Whether it is zeros with one 1 along a dim; as many as are chosen are not one."""
    if not (dims and is_one_hot(op)) or not _same_dims(
        op.shape, dims, dims_of(op.args[1])
    ):
        return False
    index = op.args[2].shape
    at = shapes.position(index, dims[0])
    return at is not None and index.dims is not None and index.dims[at] == 1


def _of_smoothed(make: Maker, a: Op, dim: Op) -> Op | None:
    """The sum of each line of `a + b * onehot`."""
    dims = dims_of(dim)
    if not dims or not make.is_(a, "add"):
        return None
    left = shapes.reduced(a.shape, dims, True)
    for same, other in (a.args, a.args[::-1]):
        found = make.products.of(other)
        hot = [item for item in found.tensors if _has_one(item, dims)]
        if len(hot) != 1 or not is_constant_along(same, left):
            continue
        height = found.without(
            found._replace(
                number=1, statics=(), tensors=(hot[0],), below=(), static_below=()
            )
        )
        if all(is_constant_along(item, left) for item in height.tensors + height.below):
            whole = _times(make, same, count(make, a, dim))
            return make.expanded(make.add(whole, make.products.op(height)), left)
    return None


def _times(make: Maker, a: Op, n: Op) -> Op:
    """`n * a`, where `a` may be divided by n."""
    found = make.products.of(a)
    for at, below in enumerate(found.static_below):
        parts = below.args if below.is_python("binary", "*") else (below,)
        if n in parts:
            others = tuple(item for item in parts if item is not n)
            rest = found.static_below[:at] + others + found.static_below[at + 1 :]
            return make.products.op(found._replace(static_below=rest))
    return make.mul(n, a)


@REWRITES.on("scatter_add")
def _scatter_add(make: Maker, a: Op, dim: Op, index: Op, source: Op) -> Op | None:
    """One value a line goes to where a one-hot is 1."""
    at = shapes.position(index.shape, dim_of(dim))
    if a.rule != "zeros" or at is None or not a.shape.dims:
        return None
    line: list[Dim] = list(a.shape.dims)
    line[at : at + 1] = [1]
    if index.shape.dims != tuple(line) or source.shape != index.shape:
        return None
    inputs = (op for op in make.program.ops if op.rule == "input")
    like = next((op for op in inputs if op.shape == a.shape), a.args[0])
    zeros = make.program.op(
        "zeros", (like,), OfShape(a.shape), kind=a.kind, shape=a.shape
    )
    args = (zeros, dim, index, make.const(1))
    one_hot = make.program.op("scatter", args, kind=a.kind, shape=a.shape)
    return make.mul(source, one_hot)


@REWRITES.on_each("sum", "mean")
def _constant_factor_out(make: Maker, rule: str, args: tuple[Op, ...]) -> Op | None:
    """`sum(x * m)` as `m * sum(x)` where `m` is the same along the dims; a part that sums to zero goes."""
    if len(args) < 3 or literal(args[2]) is not True:
        return None
    a, dim, keepdim = args
    dims = dims_of(dim)
    if not dims:
        return None
    left = shapes.reduced(a.shape, dims, True)
    if make.is_(a, "add", "sub"):
        one, two = a.args
        if not two.is_tensor or two.shape != one.shape:
            return None
        if sums_to_zero(make, two, dims):
            return make(rule, one, dim, keepdim)
        if sums_to_zero(make, one, dims):
            rest = make(rule, two, dim, keepdim)
            return rest if make.is_(a, "add") else make.neg(rest)
        return None
    products = make.deep_products
    term = products.of(a)
    outer = term._replace(
        tensors=tuple(op for op in term.tensors if shapes.fits(op.shape, left)),
        below=tuple(op for op in term.below if shapes.fits(op.shape, left)),
        statics=(),
        static_below=(),
    )
    same = outer.number in (1, -1) and not (outer.tensors or outer.below)
    if same or outer == term:
        return None
    rest = products.op(term.without(outer))
    if rest.shape != a.shape or rest.kind != a.kind or of_default_dtype(rest):
        return None
    reduced = make(rule, rest, dim, keepdim)
    tensors = (*outer.tensors, reduced)
    found = products.op(outer._replace(tensors=tensors))
    return make.expanded(found, left)


def has_poles(op: Op) -> bool:
    """Whether it is divided by what may be zero, seen through what is linear."""
    if op.rule == "div" and op.args[1].is_tensor or "pole" in op.facts.flags:
        return True
    return op.rule in LINEAR and any(map(has_poles, op.args))
