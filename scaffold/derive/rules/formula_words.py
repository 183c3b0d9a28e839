"""The words of rule formulas that depend on shapes, expanded with what is known of them.

In: ops. Out: ops. Invariant: what each word means in `vocabulary.py`; where a shape is not known, code that holds for any.
"""

from typing import Protocol

from scaffold.derive.graph import shapes
from scaffold.derive.graph.inference import dims_of
from scaffold.derive.graph.op import UNKNOWN, OfShape, Op, Program, SummedTo, literal
from scaffold.derive.graph.shapes import SCALAR, Shape
from scaffold.derive.graph.static_values import (
    UnsupportedError,
    is_int,
    is_sequence,
    size_at,
    static_node,
)
from scaffold.derive.lower.indexing import sliced
from scaffold.derive.simplify.constructors import Maker

# --- Code for tensors whose rank nobody declared.
#
# In: a value, and the operand on whose rank it depends. Out: an op that is right for any. Invariant: where the rank is known, or is
# known to be large enough, nothing is asked of it.


class Make(Protocol):
    """What makes ops."""

    program: Program

    def __call__(self, name: str, *args: Op) -> Op: ...


def unless_vector(program: Program, value: Op, other: Op, operand: Op) -> Op:
    """A value, and another where an operand of a product is a vector."""
    args = (value, other, program.op("rank", (), OfShape(operand.shape)))
    shape = shapes.unknown("matrix", value.shape, other.shape, operand.shape)
    return program.op("unless_vector", args, kind=value.kind, shape=shape)


def as_matrix(make: Make, value: Op, operand: Op, dim: int) -> Op:
    """A value with a dim more where an operand of a product is a vector."""
    if operand.shape.least > 1:
        return value
    program = make.program
    wide = make("unsqueeze", value, program.const(dim))
    if operand.shape.rank == 1:
        return wide
    return unless_vector(program, value, wide, operand)


def restored(make: Make, g: Op, x: Op, dim: Op) -> Op:
    """The cotangent of a reduction with the dim that it took; a scalar has none, whatever dim is named."""
    wide = make("unsqueeze", g, dim)
    if wide.rule == "neg" and g.rule == "neg":
        return make("neg", restored(make, g.args[0], x, dim))
    if wide.rule != "unsqueeze" or not may_be_scalar(x.shape, dim):
        return wide
    program = make.program
    args = (wide, g, program.op("rank", (), OfShape(x.shape)))
    shape = shapes.reduced(x.shape, dims_of(dim), True)
    return program.op("unless_scalar", args, kind=g.kind, shape=shape)


def length(program: Program, size: Op, x: Op, dim: Op) -> Op:
    """The size along a dim; a scalar is one element, whatever dim is named."""
    if not may_be_scalar(x.shape, dim):
        return size
    ndim = program.op("rank", (), OfShape(x.shape))
    parts = (static_node(program, op) for op in (ndim, size, program.const(1)))
    return program.static(program.graph.node("conditional", "", tuple(parts)))


def may_be_scalar(shape: Shape, dim: Op) -> bool:
    """Whether an input as nobody declared it, or a value of its shape, may be without dims."""
    return literal(dim) in (0, -1, UNKNOWN) and shape != SCALAR and _is_open(shape)


def _is_open(shape: Shape) -> bool:
    if shape.dims is not None:
        return shape.lead is not None and len(shape.dims) == 1
    match shape.key:
        case ("input", _):
            return True
        case ("broadcast", tuple() as parts):
            return all(map(_is_open, parts))
        case ("drop", Shape() as base, tuple() as dims):
            return base.least <= len(dims) and _is_open(base)
        case ("keep", Shape() as base, tuple()):
            return base.least < 1 and _is_open(base)
    return False


# --- The words of rule formulas that depend on shapes, expanded with what is known of them.


class Builders:
    """One method for each word."""

    def __init__(self, make: Maker) -> None:
        self.make, self.program = make, make.program
        make.count = self.count

    def expand_back(self, g: Op, x: Op, dim: Op, keepdim: Op) -> Op:
        return self.make.expanded(self.restore(g, x, dim, keepdim), x.shape)

    def restore(self, g: Op, x: Op, dim: Op, keepdim: Op) -> Op:
        dims = dims_of(dim)
        if literal(keepdim) is True:
            return g
        if literal(keepdim) is not False:
            test, no = static_node(self.program, keepdim), self.make.const(False)
            return self.make.choose(test, g, self.restore(g, x, dim, no))
        if not dims or x.shape == SCALAR:
            return g  # a scalar broadcasts as it is
        if isinstance(dims[0], str):
            if is_int(self.program, dim):
                return restored(self.make, g, x, dim)
            kept = self._kept(x, dim)
            return self.program.op(
                "shaped_like", (g, kept), kind=g.kind, shape=kept.shape
            )
        plain = [at for at in dims if isinstance(at, int)]
        if min(plain) < 0 <= max(plain):
            rank = x.shape.rank
            if rank is None:
                raise UnsupportedError("dims counted from both ends")
            plain = [at % rank for at in plain]
        for at in sorted(plain, reverse=plain[0] < 0):
            g = restored(self.make, g, x, self.program.const(at))
        return g

    def _kept(self, x: Op, dim: Op) -> Op:
        """A reduction to the dims that are left, for its shape."""
        return self.make.applier.named("sum", x, dim, self.make.const(True))

    def sum_to(self, g: Op, x: Op) -> Op:
        """Sum what was broadcast; a value that is smaller than `x` is expanded."""
        if g.kind == "complex" and x.kind != "complex":
            g = self.make("real", g)
        if not g.is_tensor or g.shape == x.shape:
            return g
        if g.rule == "neg" and not self.make.opaque(g):
            return self.make("neg", self.sum_to(g.args[0], x))
        if g.rule == "cond" and not (self.make.opaque(g) or _is_one_tensor(g)):
            parts = (self.sum_to(item, x) for item in g.args)
            return self.make.choose(g.test, *parts)
        if shapes.fits(g.shape, x.shape):
            return self.make.expanded(g, x.shape)
        return self._summed(g, x)

    def _summed(self, g: Op, x: Op) -> Op:
        if x.shape == SCALAR:
            return self.make("sum", g)
        if g.rule == "summed_to" and not self.make.algebra.is_whole(g):
            g = g.args[0]
        plan = self._dims_to_sum(g.shape, x.shape)
        if plan is None:
            like = x if x.rule == "input" else None
            return self.program.op(
                "summed_to",
                (g,),
                SummedTo(x.shape, like),
                kind=g.kind,
                shape=x.shape,
                active=g.active,
            )
        gone, ones = plan
        const = self.make.const
        if ones and gone:
            extra = len(gone)
            both = (*gone, *(at + len(x.shape.dims or ()) + extra for at in ones))
            g = self.make("sum", g, const(both))
            for at in sorted(ones, reverse=True):
                g = self.make("unsqueeze", g, const(at))
            return g
        if ones:
            dims = const(ones[0] if len(ones) == 1 else ones)
            g = self.make("sum", g, dims, const(True))
        if gone:
            dims = const(gone[0] if len(gone) == 1 else gone)
            g = self.make("sum", g, dims)
        return g

    def _dims_to_sum(
        self, large: Shape, small: Shape
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The first dims to sum away, and those to sum to size 1, where they can be told."""
        if small.key[:1] == ("keep",) and small.dims is None:
            dims = small.key[2] or ()
            plain = tuple(at for at in dims if isinstance(at, int))
            same = small.key[1] == large and plain and plain == dims
            return ((), plain) if same else None
        if large.dims is None or small.dims is None:
            return None
        extra = len(large.dims) - len(small.dims)
        if extra < 0 or any(map(shapes.is_lead, large.dims[:extra])):
            return None
        ones = []
        for at, dim in enumerate(small.dims):
            other = large.dims[at + extra]
            if other == dim:
                continue
            if dim != 1 or shapes.is_lead(other):
                return None
            if large.lead is not None and at + extra < large.lead:
                return None
            ones.append(at - len(small.dims))
        return tuple(range(extra)), tuple(ones)

    def fit_to(self, g: Op, x: Op) -> Op:
        """Sum what was broadcast, and spread what was summed over a dim in which `g` has size 1."""
        if not g.is_tensor or shapes.fits(x.shape, g.shape):
            return self.sum_to(g, x)
        if g.kind == "complex" and x.kind != "complex":
            g = self.make("real", g)
        if shapes.fits(g.shape, x.shape):
            return self.make.expanded(g, x.shape)
        if g.rule == "neg" and not self.make.opaque(g):
            return self.make("neg", self.fit_to(g.args[0], x))
        like = x if x.rule == "input" else None
        data = SummedTo(x.shape, like)
        return self.program.op("fitted_to", (g,), data, kind=g.kind, shape=x.shape)

    def reshape_as(self, g: Op, x: Op) -> Op:
        for at, dim in enumerate(x.shape.dims or ()):
            behind = at - len(x.shape.dims or ())
            if dim == 1 and shapes.unsqueezed(g.shape, behind) == x.shape:
                return self.make("unsqueeze", g, self.make.const(behind))
        return self.make.reshaped(g, x.shape)

    def expand_as(self, g: Op, x: Op) -> Op:
        return self.make.expanded(g, x.shape)

    def zeros(self, g: Op, x: Op) -> Op:
        return self.make.zeros(g, x.shape)

    def cast_as(self, g: Op, x: Op) -> Op:
        precision = self.make.precision
        if precision is not None and precision(g) == precision(x):
            return g
        return self.program.op(
            "cast", (g, x), None, kind=x.kind, shape=g.shape, active=g.active
        )

    def shape(self, x: Op) -> Op:
        return self.program.op("shape", (), OfShape(x.shape))

    def size(self, x: Op, dim: Op) -> Op:
        value = literal(dim)
        if x.shape == SCALAR:
            return self.make.const(1)
        if isinstance(value, int):
            return size_at(self.program, x.shape, value)
        return self.program.op("size", (dim,), OfShape(x.shape))

    def rank(self, x: Op) -> Op:
        if x.shape.rank is not None:
            return self.make.const(x.shape.rank)
        raise UnsupportedError("the number of dims is not known")

    def dtype(self, x: Op) -> Op:
        return self.program.op("dtype", (x,))

    def count(self, x: Op, dim: Op) -> Op:
        dims = dims_of(dim)
        if not dims:
            if x.shape == SCALAR:
                return self.make.const(1)
            return self.program.op("count", (), OfShape(x.shape))
        if isinstance(dims[0], str):
            if is_int(self.program, dim):
                return self._length(x, dim)
            taken = (self.program.op("count", (), OfShape(x.shape)), self._kept(x, dim))
            return self.program.op("ratio", taken)
        total = self.make.const(1)
        for at in dims:
            size = self._length(x, self.make.const(at))
            total = self.make("mul", total, size)
        return total

    def _length(self, x: Op, dim: Op) -> Op:
        return length(self.program, self.size(x, dim), x, dim)

    def moved(self, x: Op, dim: Op, by: Op) -> Op:
        at, ones = literal(dim), self.make("ones_like", x)
        if x.shape == SCALAR:
            return ones
        if not isinstance(at, int):
            raise UnsupportedError("a dim that is not written out")
        found = self._stepped(x, at, literal(by) == 1)
        if not may_be_scalar(x.shape, dim):
            return found
        rank = static_node(self.program, self.program.op("rank", (), OfShape(x.shape)))
        return self.program.shaped(self.make.choose(rank, found, ones), x.shape)

    def _stepped(self, x: Op, at: int, forward: bool) -> Op:
        """A tensor one step along a dim, a 1 where nothing came."""
        dim, one, none = map(self.make.const, (at, 1, None))
        make, minus, zero = self.make, self.make.const(-1), self.make.const(0)
        if at < 0 or x.shape.rank is not None:
            ends = (one, zero) if forward else (zero, one)
            pad = self.padding(x, dim, *ends)
            wide = make("pad", x, pad, make.const("constant"), make.const(1.0))
            start = zero if forward else one
            return make("narrow", wide, dim, start, self.size(x, dim))
        bounds = ((none, one, none), (none, minus, none))
        if not forward:
            bounds = ((minus, none, none), (one, none, none))
        edge, rest = (sliced(make.applier, x, at, item) for item in bounds)
        edge = make("ones_like", edge)
        parts = (edge, rest) if forward else (rest, edge)
        return make("cat", self.program.op("list", parts), dim)

    def trailing(self, sizes: Op) -> Op:
        if sizes.rule != "list" or any(item.rule == "starred" for item in sizes.args):
            raise UnsupportedError("sizes that are not written out")
        return self.make.const(tuple(range(-len(sizes.args), 0)))

    def leading(self, x: Op) -> Op:
        return self.make.const(tuple(range(self._rank(x) - 1)))

    def channels(self, weight: Op, x: Op) -> Op:
        if x.shape == SCALAR:
            return self.make("squeeze", weight, self.make.const(-1))
        for _ in range(self._rank(x) - 2):
            weight = self.make("unsqueeze", weight, self.make.const(-1))
        return weight

    def _rank(self, x: Op) -> int:
        if x.shape.rank is None:
            raise UnsupportedError("dims of a tensor of unknown rank")
        return x.shape.rank

    def padding(self, x: Op, dim: Op, before: Op, after: Op) -> Op:
        at, rank = literal(dim), x.shape.rank
        if not isinstance(at, int) or at >= 0 and rank is None:
            raise UnsupportedError("a dim that is not counted from the end")
        skipped = (-at if at < 0 else (rank or 0) - at) - 1
        zero = self.make.const(0)
        return self.program.op("list", (*[zero] * (2 * skipped), before, after))

    def inverse_permutation(self, dims: Op) -> Op:
        order = literal(dims)
        if not isinstance(order, tuple):
            raise UnsupportedError("a permutation that is not written out")
        plain = [int(at) % len(order) for at in order]
        return self.make.const(tuple(plain.index(at) for at in range(len(plain))))

    def negated(self, numbers: Op) -> Op:
        if numbers.rule == "list":
            return self.program.op(
                "list", [self.make("neg", item) for item in numbers.args]
            )
        if is_int(self.program, numbers):
            return self.make("neg", numbers)
        if not is_sequence(self.program, numbers):
            raise UnsupportedError("one number or several")
        graph, several = self.program.graph, static_node(self.program, numbers)
        each = graph.node("comprehension", "-size for size in", (several,))
        return self.program.static(each)

    def sum_repeats(self, g: Op, x: Op, repeats: Op) -> Op:
        rank = x.shape.rank
        several = repeats.rule == "list" and all(
            item.rule != "starred" for item in repeats.args
        )
        if rank is None or not several:
            raise UnsupportedError("how often what was repeated")
        one, times = self.make.const(1), list(repeats.args)
        times = [one] * (rank - len(times)) + times
        extra = len(times) - rank
        sizes, dims = list[Op](), list[int]()
        for at, count in enumerate(times):
            if at < extra or literal(count) != 1:
                dims.append(len(sizes))
                sizes.append(count)
            if at >= extra:
                sizes.append(self.size(x, self.make.const(at - extra)))
        if not dims:
            return g
        apart = self.make("reshape", g, self.program.op("list", sizes))
        summed = self.make("sum", apart, self.make.const(tuple(dims)))
        return self.program.shaped(summed, x.shape)


def _is_one_tensor(op: Op) -> bool:
    """Whether a choice is between tensors of one shape, so that what is done to it may be done once."""
    if op.rule != "cond":
        return op.is_tensor
    return all(arg.shape == op.shape and _is_one_tensor(arg) for arg in op.args)
