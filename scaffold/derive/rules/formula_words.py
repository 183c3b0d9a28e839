"""Expand the words of rule formulas depending on shapes, as `sum_to` to undo a broadcast, by the known shapes.

A rule says `grad.x = "sum_to(grad * y, x)"` once; `sum_to(g, x)` of a `g[B, N]` and an `x[N]` becomes `g.sum(0)`, for undeclared
shapes `g.sum_to_size(x.shape)`. `formulas` calls a word by its name, the other modules by `import`.

In: a maker and the arguments. Out: the op. Invariant: it equals the word's `REFERENCE` in `verify/child/rule_values.py`; for an
unknown shape, the code works for any.

    @word
    def expand_as(make: Maker, g: Op, x: Op) -> Op: ...

Words: `g` is the cotangent in a formula. A `summed_to` op sums to a shape known in the call alone, an `expanded` one expands to a
shape. An opaque op is read by its name, never taken apart. A list is written out if its items are known before the call; a word
that needs them raises `UnsupportedError` without: then autograd differentiates the op. Literal arguments have a value known by
`literal`.
"""

import string
from collections.abc import Callable, Sequence
from functools import partial, reduce

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import Named, OfShape, Op, Program, SummedTo, literal
from scaffold.derive.graph.precision import source_of
from scaffold.derive.graph.shape_rules import dims_of
from scaffold.derive.graph.shapes import SCALAR, Shape
from scaffold.derive.graph.signs import is_nonnegative
from scaffold.derive.graph.static_values import (
    UnsupportedError,
    is_int,
    is_sequence,
    size_at,
)
from scaffold.derive.lower.indexing import sliced
from scaffold.derive.simplify.constructors import Maker
from scaffold.formula import UNKNOWN

# --- Code for tensors of undeclared rank.
#
# In: a value, and the operand whose rank it depends on. Out: an op right for any rank. Invariant: if the rank is known, or
# known to be large enough, it is not tested.


def unless_vector(program: Program, value: Op, other: Op, operand: Op) -> Op:
    """Return `other` if `operand`, a factor of a matrix product, is a vector, otherwise `value`: `g.unsqueeze(-2) if x.ndim == 1 else g`.

    A choice at run time, for an operand of unknown rank; it is the engine's op `unless_vector`.
    """
    args = (value, other, program.op("rank", (), OfShape(operand.shape)))
    shape = shapes.unknown(shapes.Matrix(value.shape, other.shape, operand.shape))
    return program.op("unless_vector", args, kind=value.kind, shape=shape)


def as_matrix(make: Maker, value: Op, operand: Op, dim: int) -> Op:
    """Return a value with a new dim at `dim` if `operand`, a factor of a matrix product, is a vector; unchanged if it is none.

    With an unknown rank it is a choice at run time.
    """
    if operand.shape.least > 1:
        return value
    program = make.program
    wide = make.unsqueeze(value, program.const(dim))
    if operand.shape.rank == 1:
        return wide
    return unless_vector(program, value, wide, operand)


def restored(make: Maker, g: Op, x: Op, dim: Op) -> Op:
    """Return `g.unsqueeze(dim)`, for a cotangent `g` of a reduction of `x` over `dim`.

    A scalar accepts the dims 0 and -1 but has none to restore: if `x` may be one, it is a choice at run time.
    """
    wide = make.unsqueeze(g, dim)
    if wide.rule == "neg" and g.rule == "neg":  # the minus has gone outside
        return make.neg(restored(make, g.args[0], x, dim))
    # Simplified to a sum with kept dims, it is right for a scalar too.
    if wide.rule != "unsqueeze" or not may_be_scalar(x.shape, dim):
        return wide
    program = make.program
    args = (wide, g, rank(make, x))
    shape = shapes.reduced(x.shape, dims_of(dim), True)
    return program.op("unless_scalar", args, kind=g.kind, shape=shape)


def length(program: Program, size: Op, x: Op, dim: Op) -> Op:
    """Return the size of `x` along `dim`: `size`, or 1 if `x` is a scalar, which accepts the dims 0 and -1."""
    if not may_be_scalar(x.shape, dim):
        return size
    # The rank as a test: it is 0, which is false, for a scalar.
    ndim = program.op("rank", (), OfShape(x.shape))
    return program.python("conditional", "", ndim, size, program.const(1))


def may_be_scalar(shape: Shape, dim: Op) -> bool:
    """Return whether a value of this shape, reduced over `dim`, may be a scalar: its rank is undeclared, and `dim` is 0, -1 or unknown."""
    # A scalar accepts no other dims. `SCALAR` itself is known to be one: no test is needed.
    return literal(dim) in (0, -1, UNKNOWN) and shape != SCALAR and _is_open(shape)


def _is_open(shape: Shape) -> bool:
    """Return whether a shape may be a scalar's: nothing is known of an undeclared input's rank, nor of one derived from such."""
    if shape.dims is not None:
        return shape.lead is not None and len(shape.dims) == 1
    match shape.origin:
        case shapes.Input():
            return True
        case shapes.Broadcast(parts):
            return all(map(_is_open, parts))
        case shapes.Chosen(_, body, orelse):
            return SCALAR in (body, orelse) or _is_open(body) or _is_open(orelse)
        case shapes.Dropped(base, axes):
            # Of more dims than were dropped, one is left.
            return base.least <= len(axes) and _is_open(base)
        case shapes.Kept(base, tuple()):
            return base.least < 1 and _is_open(base)
    return False


# --- The words of rule formulas that depend on shapes, expanded by the known shapes.


Word = Callable[..., Op]
WORDS: dict[str, Word] = {}  # each expands into ops of a maker


def word(function: Word) -> Word:
    """Register a function as a word of formulas, by its name."""
    WORDS[function.__name__] = function
    return function


@word
def expand_back(make: Maker, g: Op, x: Op, dim: Op, keepdim: Op) -> Op:
    """Return the cotangent `g` of a reduction of `x`, expanded to the shape of `x`."""
    return make.expanded(restore(make, g, x, dim, keepdim), x.shape)


@word
def restore(make: Maker, g: Op, x: Op, dim: Op, keepdim: Op) -> Op:
    """Return the cotangent `g` of a reduction of `x` with the reduced dims of size 1, to broadcast with `x`: `g[B]` -> `g[B, 1]`.

    Raise `UnsupportedError` for dims counted from both ends of an unknown rank.
    """
    dims = dims_of(dim)
    if literal(keepdim) is True:
        return g
    if literal(keepdim) is not False:  # only the call tells
        no = make.const(False)
        return make.choose(keepdim, g, restore(make, g, x, dim, no))
    if not dims or x.shape == SCALAR:
        return g  # a scalar broadcasts as it is
    if not isinstance(dims[0], int):
        if is_int(make.program, dim):
            return restored(make, g, x, dim)
        kept = _kept(make, x, dim)
        return make.program.op("shaped_like", (g, kept), kind=g.kind, shape=kept.shape)
    plain = [at for at in dims if isinstance(at, int)]
    # `(0, -1)`: which one is outer depends on the rank.
    if min(plain) < 0 <= max(plain):
        rank = x.shape.rank
        if rank is None:
            raise UnsupportedError("dims counted from both ends")
        plain = [at % rank for at in plain]
    # Each new dim is counted as it will be in the end, so outer ones come first.
    for at in sorted(plain, reverse=plain[0] < 0):
        g = restored(make, g, x, make.program.const(at))
    return g


def _kept(make: Maker, x: Op, dim: Op) -> Op:
    """Return a reduction of `x` with kept dims: the cotangent gets its shape, as `dim` is known only at run time."""
    # Of `x**2`, x serves as well, as only the shape is read.
    if x.facts.operator == "**" and x.args[0].shape == x.shape:
        x = x.args[0]  # saved anyway, for the gradient of `x.pow(2)`
    return make.applier.named("sum", x, dim, make.const(True))


@word
def sum_to(make: Maker, g: Op, x: Op) -> Op:
    """Return `g` summed to the shape of `x`, which was broadcast: `g[B, N]`, `x[N]` -> `g.sum(0)`; a smaller `g` is expanded.

    The gradient of a real `x` is the real part of a complex `g`.
    """
    if g.kind == "complex" and x.kind != "complex":
        make.take_for_real((x,))
        g = make.real(g)
    if not g.is_tensor or g.shape == x.shape:
        return g
    if g.rule == "neg" and not make.opaque(g):
        return make.neg(sum_to(make, g.args[0], x))
    # Branches of different shapes are summed each by itself.
    if g.rule == "cond" and not (make.opaque(g) or _is_one_tensor(g)):
        return make.choose(g.test, *(sum_to(make, item, x) for item in g.args))
    if shapes.fits(g.shape, x.shape):
        return make.expanded(g, x.shape)
    return _summed(make, g, x)


def _summed(make: Maker, g: Op, x: Op) -> Op:
    """Return `g` summed to the smaller shape of `x`: by dims if the shapes tell them, otherwise by `g.sum_to_size(x.shape)`."""
    if x.shape == SCALAR:
        return make.sum(g)
    if g.rule == "summed_to" and not make.is_whole(g):  # one sum instead of two
        g = g.args[0]
    plan = _dims_to_sum(g.shape, x.shape)
    if plan is None:
        return make.summed_to(g, x.shape, x if x.rule == "input" else None)
    gone, ones = plan  # dims that x has not, and dims of size 1 in x
    const = make.const
    if ones and gone:  # one sum over both, and the `ones` restored
        # Both counted from the left of g: `ones` are counted from the end of x.
        both = (*gone, *(at + len(x.shape.dims or ()) + len(gone) for at in ones))
        g = make.sum(g, const(both))
        for at in sorted(ones, reverse=True):
            g = make.unsqueeze(g, const(at))
        return g
    if ones:
        dims = const(ones[0] if len(ones) == 1 else ones)
        g = make.sum(g, dims, const(True))
    if gone:
        dims = const(gone[0] if len(gone) == 1 else gone)
        g = make.sum(g, dims)
    return g


def _dims_to_sum(
    large: Shape, small: Shape
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the dims to sum away, and the dims to sum to size 1: `[B, N, D]` to `[N, 1]` -> `(0,)`, `(-1,)`.

    None if the shapes do not tell.
    """
    if isinstance(small.origin, shapes.Kept):  # `large` reduced with keepdim
        dims = small.origin.axes or ()  # without axes it is all, an unknown number
        plain = tuple(at for at in dims if isinstance(at, int))
        same = small.origin.base == large and plain and plain == dims
        return ((), plain) if same else None
    if large.dims is None or small.dims is None:
        return None
    extra = len(large.dims) - len(small.dims)
    # A run of dims in front has no numbers to sum over.
    if extra < 0 or any(map(shapes.is_lead, large.dims[:extra])):
        return None
    ones = []
    for at, dim in enumerate(small.dims):  # compared with the last dims of `large`
        other = large.dims[at + extra]
        if other == dim:
            continue
        if dim != 1 or shapes.is_lead(other):
            return None
        # In front of `...`, a dim has no number from the end.
        if large.lead is not None and at + extra < large.lead:
            return None
        ones.append(at - len(small.dims))
    return tuple(range(extra)), tuple(ones)


@word
def fit_to(make: Maker, g: Op, x: Op) -> Op:
    """Return `g` with the shape of `x`, either of which may be larger in some dim: summed for a broadcast `x`, expanded at a size of 1."""
    if not g.is_tensor or shapes.fits(x.shape, g.shape):
        return sum_to(make, g, x)
    if g.kind == "complex" and x.kind != "complex":
        make.take_for_real((x,))
        g = make.real(g)
    if shapes.fits(g.shape, x.shape):
        return make.expanded(g, x.shape)
    if g.rule == "neg" and not make.opaque(g):
        return make.neg(fit_to(make, g.args[0], x))
    like = x if x.rule == "input" else None
    data = SummedTo(x.shape, like)
    return make.program.op("fitted_to", (g,), data, kind=g.kind, shape=x.shape)


@word
def reshape_as(make: Maker, g: Op, x: Op) -> Op:
    """Return `g` in the shape of `x`, by `unsqueeze` if only a dim of size 1 is missing."""
    for at, dim in enumerate(x.shape.dims or ()):
        behind = at - len(x.shape.dims or ())
        if dim == 1 and shapes.unsqueezed(g.shape, behind) == x.shape:
            return make.unsqueeze(g, make.const(behind))
    return make.reshaped(g, x.shape)


@word
def expand_as(make: Maker, g: Op, x: Op) -> Op:
    """Return `g` broadcast to the shape of `x`."""
    return make.expanded(g, x.shape)


@word
def zeros(make: Maker, g: Op, x: Op) -> Op:
    """Return zeros of the shape of `x`, with the dtype and device of `g`."""
    return make.zeros(g, x.shape)


@word
def cast_as(make: Maker, g: Op, x: Op, by: Named | None = None) -> Op:
    """Return `g` in the dtype of `x`; `g` itself if the two certainly have the same.

    With `by`, in the dtype that this function of torch makes of both: `promote_types`.
    """
    if make.precision(g) == make.precision(x):
        return g
    return make.program.op(
        "cast", (g, x), by, kind=x.kind, shape=g.shape, active=g.active
    )


@word
def cast_back(make: Maker, g: Op, x: Op) -> Op:
    """Return `g` in the dtype of `x`, said by the input that gives `x` its dtype, if it is one: else `x` would be saved for it.

    Not if autocast computes a value on the way in float32: a large gradient may overflow in the input's dtype. Of a product, in
    lower precision, that dtype is at least as good.
    """
    in_float32 = any(op.facts.autocast not in ("", "lower") for op in x.walk())
    return cast_as(make, g, x if in_float32 else source_of(x) or x)


@word
def widened(make: Maker, x: Op, g: Op) -> Op:
    """Return `x` in the wider dtype of `x` and `g`."""
    return cast_as(make, x, g, Named("promote_types"))


@word
def shape(make: Maker, x: Op) -> Op:
    """Return `x.shape` as a Python value."""
    return make.program.op("shape", (), OfShape(x.shape))


@word
def size(make: Maker, x: Op, dim: Op) -> Op:
    """Return `x.shape[dim]` as a Python value; 1 for a scalar, reduced over a dim it does not have."""
    value = literal(dim)
    if x.shape == SCALAR:
        return make.const(1)
    if isinstance(value, int):
        return size_at(make.program, x.shape, value)
    return make.program.op("size", (dim,), OfShape(x.shape))


@word
def rank(make: Maker, x: Op) -> Op:
    """Return `x.ndim` as a Python value: a number if it is known before the call."""
    if x.shape.rank is not None:
        return make.const(x.shape.rank)
    return make.program.op("rank", (), OfShape(x.shape))


@word
def whole(make: Maker, x: Op) -> Op:
    """Return whether the elements of `x` are integers, as a constant: True or False."""
    return make.const(x.kind == "int")


@word
def excludes(make: Maker, x: Op, value: Op) -> Op:
    """Return whether surely no element of `x` is the number `value`: none of `torch.arange(n)` is -1."""
    number = literal(value)
    return make.const(is_nonnegative(x) and isinstance(number, int) and number < 0)


@word
def class_dim(make: Maker, x: Op) -> Op:
    """Return the dim of class scores in a loss over classes: 1, or 0 for a vector of scores of one example."""
    one = make.const(1)
    if x.shape.rank is not None:
        return make.const(min(1, x.shape.rank - 1))
    ndim = rank(make, x)
    if x.shape.least >= 2:
        return one
    last = make.program.python("binary", "-", ndim, one)
    return make.program.called("min", one, last)


@word
def dtype(make: Maker, x: Op) -> Op:
    """Return `x.dtype` as a Python value."""
    return make.program.op("dtype", (x,))


@word
def count(make: Maker, x: Op, dim: Op) -> Op:
    """Return the number of elements a reduction over `dim` takes together, the divisor of a mean; over all without a dim.

    If `dim` may be several dims, unknown before the call, it is the quotient of the element counts of `x` and the result.
    """
    dims = dims_of(dim)
    if not dims:
        if x.shape == SCALAR:
            return make.const(1)
        return make.program.op("count", (), OfShape(x.shape))
    if not isinstance(dims[0], int):
        if is_int(make.program, dim):
            return _length(make, x, dim)
        taken = (make.program.op("count", (), OfShape(x.shape)), _kept(make, x, dim))
        return make.program.op("ratio", taken)
    total = make.const(1)
    for at in dims:
        size = _length(make, x, make.const(at))
        total = make.mul(total, size)
    return total


def _length(make: Maker, x: Op, dim: Op) -> Op:
    """Return the size of `x` along `dim`; 1 for a scalar, which has no dim."""
    return length(make.program, size(make, x, dim), x, dim)


@word
def moved(make: Maker, x: Op, dim: Op, by: Op) -> Op:
    """Return `x` moved one step along `dim`, to higher indices for `by` 1, to lower ones for -1, with a 1 in the free place.

    `[a, b, c]` by 1 -> `[1, a, b]`: for the products of all elements before one.
    """
    ones = make.ones_like(x)
    if x.shape == SCALAR:
        return ones
    found = _stepped(make, x, dim, literal(by) == 1)
    if not may_be_scalar(x.shape, dim):
        return found
    # The rank as a test: it is 0, which is false, for a scalar.
    return make.program.shaped(make.choose(rank(make, x), found, ones), x.shape)


def _stepped(make: Maker, x: Op, dim: Op, forward: bool) -> Op:
    """Return `x` moved one step along a dim, filled with a 1: by padding, or by `cat` if the dim cannot be counted from the end."""
    at, one, none = literal(dim), make.const(1), make.const(None)
    minus, zero = make.const(-1), make.const(0)
    # A dim known only in the call has no slices for a `cat`.
    if not isinstance(at, int) or at < 0 or x.shape.rank is not None:
        ends = (one, zero) if forward else (zero, one)
        pad = padding(make, x, dim, *ends)
        wide = make("pad", x, pad, make.const("constant"), make.const(1.0))
        start = zero if forward else one
        return make.narrow(wide, dim, start, size(make, x, dim))
    # The first place, whose value becomes a 1, and x without its last one; backwards the last, and x without its first.
    bounds = ((none, one, none), (none, minus, none))
    if not forward:
        bounds = ((minus, none, none), (one, none, none))
    edge, rest = (sliced(make.applier, x, at, item) for item in bounds)
    edge = make.ones_like(edge)
    parts = (edge, rest) if forward else (rest, edge)
    return make.cat(make.program.op("list", parts), dim)


@word
def trailing(make: Maker, sizes: Op) -> Op:
    """Return the last dims, one for each of some sizes: `(3, 4)` -> `(-2, -1)`, the dims `F.layer_norm` reduces."""
    count = _length_of(sizes)
    if count is not None:  # one dim without brackets, as an author writes it
        return make.const(-1 if count == 1 else tuple(range(-count, 0)))
    program = make.program
    if not is_sequence(program, sizes):
        raise UnsupportedError("sizes that are not written out")
    start = program.python("unary", "-", program.called("len", sizes))
    return program.called("tuple", program.called("range", start, program.const(0)))


def _length_of(sizes: Op) -> int | None:
    """Return the number of sizes in a list or shape, 2 for `x.shape[-2:]`; None if unknown before the call."""
    if sizes.rule == "list":
        starred = any(item.rule == "starred" for item in sizes.args)
        return None if starred else len(sizes.args)
    if sizes.rule == "shape":
        return sizes.asked.rank
    if not sizes.is_python("subscript") or not sizes.args[1].is_python("slice"):
        return None
    # `x.shape[-2:]`, of any rank
    whole, cut = sizes.args
    first, *others = cut.args
    start = literal(first)
    of_shape = whole.rule == "shape" or whole.is_python("attribute", "shape")
    known = of_shape and all(map(_is_absent, others))
    return -start if known and isinstance(start, int) and start < 0 else None


def _is_absent(op: Op) -> bool:
    """Return whether a slice's bound is omitted."""
    return op.rule == "static" and op.expression.kind == "absent"


@word
def asked(make: Maker, length: Op) -> Op:
    """Return the `length` that a Fourier transform asks for in one dim; None for -1, which keeps the dim as it is."""
    return make.const(None) if literal(length) == -1 else length


@word
def leading(make: Maker, x: Op) -> Op:
    """Return all dims but the last one: `x[B, N, D]` -> `(0, 1)`."""
    return make.const(tuple(range(_rank(make, x) - 1)))


def in_shape(make: Maker, x: Op, shape: Op) -> Op:
    """Return a tensor reshaped to `shape`, an op for a shape or a list of sizes."""
    return make("reshape", x, shape)


@word
def channels(make: Maker, weight: Op, x: Op) -> Op:
    """Return a vector of one number per channel, to broadcast with `x[N, C, H, W]`: `weight[:, None, None]`."""
    program = make.program
    if x.shape == SCALAR:
        return in_shape(make, weight, program.op("list", ()))
    if x.shape.rank is None:  # `(-1,) * (x.ndim > 0) + (1,) * (x.ndim - 2)`
        ndim = rank(make, x)
        binary = partial(program.python, "binary")
        less = binary("-", ndim, make.const(2))
        there = program.python("compare", ">", ndim, make.const(0))
        all_channels = program.op("list", (make.const(-1),))
        ones = program.op("list", (make.const(1),))
        sizes = binary("+", binary("*", all_channels, there), binary("*", ones, less))
        return in_shape(make, weight, sizes)
    for _ in range(_rank(make, x) - 2):
        weight = make.unsqueeze(weight, make.const(-1))
    return weight


def _rank(make: Maker, x: Op) -> int:
    """Return the rank of `x` as an int; raise `UnsupportedError` if it is unknown before the call."""
    if x.shape.rank is None:
        raise UnsupportedError("dims of a tensor of unknown rank")
    return x.shape.rank


@word
def padding(make: Maker, x: Op, dim: Op, before: Op, after: Op) -> Op:
    """Return the argument of `F.pad` to lengthen one dim: `(before, after)` behind zeros for all dims after it.

    `F.pad` counts from the last dim: dim -2 by 1 at its end -> `(0, 0, 0, 1)`.
    """
    at, rank, zero = literal(dim), x.shape.rank, make.const(0)
    ends = make.program.op("list", (before, after))
    if not isinstance(at, int) or at >= 0 and rank is None:
        # `(0, 0) * (x.ndim - 1 - dim % x.ndim) + (before, after)`
        ndim = make.program.op("rank", (), OfShape(x.shape))
        from_left = make.program.python("binary", "%", dim, ndim)
        less = partial(make.program.python, "binary", "-")
        skipped = less(less(ndim, make.const(1)), from_left)
        none = make.program.op("list", (zero, zero))
        before_it = make.program.python("binary", "*", none, skipped)
        return make.program.python("binary", "+", before_it, ends)
    count = (-at if at < 0 else (rank or 0) - at) - 1
    return make.program.op("list", (*[zero] * (2 * count), *ends.args))


@word
def number_at(make: Maker, numbers: Op, at: Op) -> Op:
    """Return one of several numbers, or the one given for all dims: of a stride, `2`, `(2,)` or `(2, 1)`."""
    place, program = literal(at), make.program
    assert isinstance(place, int)
    if numbers.rule == "list":
        return numbers.args[place if len(numbers.args) > 1 else 0]
    known = literal(numbers)
    if isinstance(known, tuple):
        return make.const(known[place if len(known) > 1 else 0])
    if isinstance(known, int | float) or is_int(program, numbers):
        return numbers
    if not is_sequence(program, numbers):
        raise UnsupportedError("one number or several")
    return program.python("subscript", "", numbers, at)


@word
def default_eps(make: Maker, x: Op) -> Op:
    """Return the `eps` of `F.rms_norm` if none is given, by the dtype of `x`; at most the one of float32.

    PyTorch computes half precision in float32.
    """
    program = make.program
    torch = program.graph.name("torch")
    single = program.static(program.graph.node("attribute", "float32", (torch,)))
    several = (program.called("torch.finfo", of) for of in (dtype(make, x), single))
    return program.called(
        "min", *(program.python("attribute", "eps", item) for item in several)
    )


@word
def inverse_permutation(make: Maker, dims: Op) -> Op:
    """Return the permutation undoing another one: `(2, 0, 1)` -> `(1, 2, 0)`."""
    order = literal(dims)
    if not isinstance(order, tuple) or not all(isinstance(at, int) for at in order):
        raise UnsupportedError("a permutation that is not written out")
    plain = [int(at) % len(order) for at in order]
    return make.const(tuple(sorted(range(len(plain)), key=plain.__getitem__)))


@word
def negated(make: Maker, numbers: Op) -> Op:
    """Return the negative of a number, or of each number in a tuple: the shifts to undo a `roll`, the sizes to undo a `pad`."""
    if numbers.rule == "list":
        return make.program.op("list", [make.neg(item) for item in numbers.args])
    if is_int(make.program, numbers):
        return make.neg(numbers)
    if not is_sequence(make.program, numbers):
        raise UnsupportedError("one number or several")
    return make.program.python("comprehension", "-size for size in", numbers)


@word
def at_least(make: Maker, tensors: Op, rank: Op) -> Op:
    """Return tensors with at least `rank` dims each, as `torch.atleast_2d` makes them; `rank` is a literal."""
    count = literal(rank)
    if tensors.rule != "list" or not isinstance(count, int):
        raise UnsupportedError("tensors that are not written out")
    several = [_at_least(make, item, count) for item in tensors.args]
    return make.program.op("list", several)


@word
def batched(make: Maker, x: Op, rank: Op) -> Op:
    """Return `x` with exactly one dim before its last `rank` dims, as a convolution needs it: an unbatched input gets a batch of size 1."""
    count = literal(rank)
    assert isinstance(count, int)
    if x.shape.rank == count + 1:
        return x
    if x.shape.rank == count:
        return make.unsqueeze(x, make.const(0))
    program = make.program
    ndim = program.op("rank", (), OfShape(x.shape))
    several = program.python("compare", ">", ndim, rank)
    first, *last = (size(make, x, make.const(at)) for at in (0, *range(-count, 0)))
    # Not -1 for the batch: that is ambiguous for an empty tensor.
    number = program.python("conditional", "", several, first, make.const(1))
    return in_shape(make, x, program.op("list", (number, *last)))


@word
def columns(make: Maker, tensors: Op) -> Op:
    """Return tensors with each vector as a column `[N, 1]`, as `torch.column_stack` takes them.

    Raise `UnsupportedError` for a tensor of an unknown rank, or a scalar, which would be a matrix of one number.
    """
    if tensors.rule != "list" or any(x.shape.rank in (None, 0) for x in tensors.args):
        raise UnsupportedError("the number of dims is not known")
    several = (
        make.unsqueeze(x, make.const(1)) if x.shape.rank == 1 else x
        for x in tensors.args
    )
    return make.program.op("list", several)


def _at_least(make: Maker, x: Op, count: int) -> Op:
    """Return `x` with dims of size 1 added as by `torch.atleast_3d`: in front, the third one behind."""
    if x.shape.least >= count:
        return x
    if x.shape.rank is None:
        return make(f"atleast_{count}d", x)
    # Where a scalar gets its dims; x has the first of them.
    places = ((), (0,), (0, 0), (0, 0, -1))[count]
    for at in places[x.shape.rank :]:
        x = make.unsqueeze(x, make.const(at))
    return x


@word
def equation(make: Maker, x: Op, y: Op, dims: Op) -> Op:
    """Return the `einsum` equation of `torch.tensordot(x, y, dims)`: for matrices and `dims=1`, `"ab,bd->ad"`."""
    said, ranks = literal(dims), (x.shape.rank, y.shape.rank)
    if {None, 0} & {*ranks} or not isinstance(said, int | tuple):
        raise UnsupportedError("dims that are not written out")
    one, two = (rank or 0 for rank in ranks)
    # The dims summed over: the last of `x` and the first of `y`, or those in `dims`.
    pairs = (range(one - said, one), range(said)) if isinstance(said, int) else said
    first, second = (
        [int(at) % rank for at in several]
        for several, rank in zip(pairs, (one, two), strict=True)
    )
    letters = string.ascii_lowercase
    of_y = list(letters[one : one + two])  # but for those it shares with `x`
    for at, other in zip(second, first, strict=True):
        of_y[at] = letters[other]
    kept = [item for at, item in enumerate(letters[:one]) if at not in first]
    kept += [item for at, item in enumerate(of_y) if at not in second]
    return make.const(f"{letters[:one]},{''.join(of_y)}->{''.join(kept)}")


@word
def chain(make: Maker, tensors: Op) -> Op:
    """Return the product of several matrices, multiplied from the left, as `torch.chain_matmul` gives."""
    if tensors.rule != "list":
        raise UnsupportedError("tensors that are not written out")
    return reduce(make.matmul, tensors.args)


@word
def grids(make: Maker, tensors: Op, indexing: Op) -> Op:
    """Return each of several vectors expanded over the grid of all of them, as `torch.meshgrid` does."""
    order = literal(indexing)
    if tensors.rule != "list" or order not in ("ij", "xy"):
        raise UnsupportedError("tensors that are not written out")
    several = tensors.args
    if any(x.shape.rank != 1 for x in several):
        raise UnsupportedError("the number of dims is not known")
    places = list(range(len(several)))  # the dim along which each vector lies
    if order == "xy":  # the first two exchanged
        places[:2] = reversed(places[:2])
    sizes = [dim for at in places for dim in several[at].shape.dims or ()]
    whole = make.program.op("shape", (), OfShape(Shape(tuple(sizes))))
    return make.program.op(
        "list",
        [
            make("expand", _along(make, x, at, len(several)), whole)
            for x, at in zip(several, places, strict=True)
        ],
    )


def _along(make: Maker, x: Op, at: int, count: int) -> Op:
    """Return a vector with dims of size 1 behind it, so it lies along dim `at` of a grid with `count` dims."""
    for _ in range(count - at - 1):
        x = make.unsqueeze(x, make.const(-1))
    return x


@word
def sum_repeats(make: Maker, g: Op, x: Op, repeats: Op) -> Op:
    """Return the cotangent `g` of `x.repeat(*repeats)` summed over the copies: the gradient of `x`.

    A reshape gives each copy an index in a dim of its own, as in `g[2, N]` for two copies of `x[N]`; these dims are summed.
    """
    rank = x.shape.rank
    several = repeats.rule == "list" and all(
        item.rule != "starred" for item in repeats.args
    )
    if not several or any(literal(item) == 0 for item in repeats.args):
        raise UnsupportedError("repetitions of an unknown number")
    if rank is None:
        return _summed_copies(make, g, x, repeats.args)
    one, times = make.const(1), list(repeats.args)
    # `tile` may give fewer numbers than dims: for the last ones. (A negative count adds none.)
    times = [one] * (rank - len(times)) + times
    extra = len(times) - rank
    sizes, dims = list[Op](), list[int]()
    for at, count in enumerate(times):  # before each dim of `x`, one for its copies
        # A dim that `repeat` has put in front of those of x goes in any case.
        if at < extra or literal(count) != 1:
            dims.append(len(sizes))
            sizes.append(count)
        if at >= extra:
            sizes.append(size(make, x, make.const(at - extra)))
    if not dims:
        return g
    apart = in_shape(make, g, make.program.op("list", sizes))
    summed = make.sum(apart, make.const(tuple(dims)))
    return make.program.shaped(summed, x.shape)


def _summed_copies(make: Maker, g: Op, x: Op, times: Sequence[Op]) -> Op:
    """Return the sum over the copies of `x` of unknown rank, along the last `len(times)` dims, with sizes read from `g`.

    It is the gradient of `x.repeat(2, 1)`: the 2 rows of copies get a dim of their own, and that is summed. With `tile`, there may
    be other dims before them. Raise `UnsupportedError` for a number of copies read from a shape: it is 0 if that is empty.
    """
    program = make.program
    sizes, dims = list[Op](), list[int]()
    for at, count in enumerate(times, -len(times)):
        whole = size(make, g, make.const(at))
        if literal(count) != 1:
            dims.append(len(sizes))
            sizes.append(count)
            if any(item.rule in ("size", "shape") for item in count.walk()):
                raise UnsupportedError("repetitions of an unknown number")  # 0 if empty
            if not isinstance(literal(count), int):  # it may be 0
                count = program.called("max", count, make.const(1))
            whole = program.python("binary", "//", whole, count)
        sizes.append(whole)
    if not dims:
        return make.reshaped(g, x.shape)
    # From the end, as any number of dims (`lead`) is put in front below.
    behind = tuple(at - len(sizes) for at in dims)
    absent, end = program.graph.node("absent"), program.graph.constant
    part = program.graph.node("slice", "", (absent, end(str(-len(times))), absent))
    shape = program.op("shape", (), OfShape(g.shape))
    lead = program.python("subscript", "", shape, program.static(part))
    sizes.insert(0, program.op("starred", (lead,)))
    apart = in_shape(make, g, program.op("list", sizes))
    summed = make.sum(apart, make.const(behind[0] if len(dims) == 1 else behind))
    return make.reshaped(summed, x.shape)


def _is_one_tensor(op: Op) -> bool:
    """Return whether a choice is between tensors of one shape, so a sum of it is written once and not in each branch."""
    if op.rule != "cond":
        return op.is_tensor
    return all(arg.shape == op.shape and _is_one_tensor(arg) for arg in op.args)
