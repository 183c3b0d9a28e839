"""Shapes as far as known: named sizes, leading dimensions, or only the origin of a shape.

In: declared dims, and the shapes of arguments. Out: the shape of a result. Invariant: two equal shapes are equal in
every call; an unknown shape is unique, equal to no other.

A gradient must have the shape of its input: by these shapes the derivation knows where to sum over broadcast dims,
and where not. Words: leading dims are any number of dims, `...` or `*batch`, and stand for one entry of `Shape.dims`;
`lead` is its position. Dims behind them can be counted from the end alone. An origin says how an unknown shape came
about (the shape of x without dim 0), so that two of the same origin are equal. One shape fits another if it
broadcasts to it. An axis is the number of a dim, or the Python value that tells it at run time. The rank is the
number of dims. `base` of an origin is the shape it was made from. Dims are `Kept` by a reduction with `keepdim`, as
1s, and `Dropped` by one without; `Own` is the unknown shape of one op.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

# --- Sizes.


@dataclass(frozen=True, slots=True)
class NamedSize:
    """A size named by the user: `N`."""

    name: str

    def __repr__(self) -> str:
        return repr(self.name)


@dataclass(frozen=True, slots=True)
class LeadingDims:
    """Any number of dims: the `...` of one input, or named ones, `*batch`, shared by all inputs with that name."""

    of: str
    named: bool = False

    def __repr__(self) -> str:
        return repr(f"...{'*' if self.named else ''}{self.of}")


@dataclass(frozen=True, slots=True, repr=False)
class UnnamedSize:
    """A size without a name, identified by its origin; each kind of origin is a subclass."""

    @property
    def is_of_dim(self) -> bool:
        """Return whether it is certainly the size of a dim: a Python value may be negative."""
        return True

    def __repr__(self) -> str:  # `broadcast` sorts shapes by this text: before names
        of = (str(getattr(self, item.name)) for item in fields(self))
        return repr(f"?{type(self).__name__}({', '.join(of)})")


Dim = int | NamedSize | LeadingDims | UnnamedSize


# --- Dims, by their number.


@dataclass(frozen=True, slots=True)
class UnwrittenAxis:
    """A dim not written out, identified by its value; it may stand for several."""

    value: Hashable


Axis = int | UnwrittenAxis
Axes = tuple[Axis, ...]


# --- Shapes.


class Shape:
    """The dims of a tensor; if they are None, the origin identifies the shape."""

    __slots__ = ("_hash", "dims", "lead", "origin")
    __match_args__ = ("dims", "origin")

    dims: tuple[Dim, ...] | None
    origin: "Origin | None"
    lead: int | None  # the position of the leading dims

    def __init__(
        self, dims: tuple[Dim, ...] | None, origin: "Origin | None" = None
    ) -> None:
        """Take known dims, or None and the origin of unknown ones; `lead` is the place of the dims of unknown number, if any."""
        self.dims, self.origin = dims, origin
        self.lead = next(
            (at for at, dim in enumerate(dims or ()) if is_lead(dim)), None
        )
        self._hash = hash((dims, origin))

    def __eq__(self, other: object) -> bool:
        """Compare dims and origin: equal shapes are equal in every call. The hash is compared first, as most shapes differ."""
        if self is other:
            return True
        return (
            isinstance(other, Shape)
            and self._hash == other._hash
            and self.dims == other.dims
            and self.origin == other.origin
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Shape({self.origin if self.dims is None else self.dims!r})"

    @property
    def rank(self) -> int | None:
        """Return the number of dims; None if unknown."""
        if self.dims is not None:
            return None if self.lead is not None else len(self.dims)
        return self.origin.rank if self.origin else None

    @property
    def trailing(self) -> int:
        """Return the number of dims countable from the end: all, or only the ones behind leading dims of unknown number.

        2 for `[..., N, D]`.
        """
        if self.dims is None:
            return 0
        return len(self.dims) if self.lead is None else len(self.dims) - self.lead - 1

    @property
    def least(self) -> int:
        """Return the smallest possible rank, in any call."""
        if self.dims is not None:
            return len(self.dims) - (self.lead is not None)
        return self.origin.least if self.origin else 0


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a shape with unknown dims."""

    @property
    def rank(self) -> int | None:
        """Return the number of dims; None if unknown."""
        return None

    @property
    def least(self) -> int:
        """Return the smallest possible rank."""
        return self.rank or 0


@dataclass(frozen=True, slots=True)
class Broadcast(Origin):
    """The broadcast of several shapes."""

    parts: tuple[Shape, ...]

    @property
    def rank(self) -> int | None:
        """Return the largest rank of the parts; None if one is unknown."""
        ranks = [part.rank for part in self.parts]
        known = [rank for rank in ranks if rank is not None]
        return max(known) if len(known) == len(ranks) else None

    @property
    def least(self) -> int:
        return max(part.least for part in self.parts)


@dataclass(frozen=True, slots=True)
class OrScalar(Origin):
    """A shape, or a scalar if a choice took a number: it broadcasts wherever both do."""

    base: Shape


@dataclass(frozen=True, slots=True)
class Chosen(Origin):
    """One of two shapes, by the test of that serial number."""

    test: int
    body: Shape
    orelse: Shape

    @property
    def least(self) -> int:
        return min(self.body.least, self.orelse.least)


@dataclass(frozen=True, slots=True)
class Dropped(Origin):
    """A shape without some dims."""

    base: Shape
    axes: Axes


@dataclass(frozen=True, slots=True)
class Input(Origin):
    """The shape of an input."""

    name: str


@dataclass(frozen=True, slots=True)
class Kept(Origin):
    """A shape with some dims of size 1; without axes, all of them."""

    base: Shape
    axes: Axes | None

    @property
    def rank(self) -> int | None:
        return self.base.rank

    @property
    def least(self) -> int:
        return self.base.least


@dataclass(frozen=True, slots=True)
class Matrix(Origin):
    """The shape of a matrix in a product: the first shape, or the second if an operand of the third is a vector.

    Also that of a factor's gradient, of a vector as well: it is only summed to the factor's shape, by which its rank is not asked.
    """

    value: Shape
    other: Shape
    operand: Shape

    @property
    def least(self) -> int:
        return 2


@dataclass(frozen=True, slots=True, repr=False)
class Own(Origin):
    """The unknown shape of one op."""

    serial: int

    def __repr__(self) -> str:
        # `broadcast` sorts shapes by this text: padded digits keep the order of the ops.
        return f"Own({self.serial:08})"


@dataclass(frozen=True, slots=True)
class Permuted(Origin):
    """A shape with its dims in another order."""

    base: Shape
    order: tuple[int, ...]

    @property
    def rank(self) -> int | None:
        return len(self.order)


@dataclass(frozen=True, slots=True)
class MatrixProduct(Origin):
    """The shape of a product of matrices."""

    left: Shape
    right: Shape

    @property
    def least(self) -> int:
        return 2 if self.left.least > 1 and self.right.least > 1 else 0


@dataclass(frozen=True, slots=True)
class ProductWithVector(Origin):
    """The shape of a matrix times a vector."""

    matrix: Shape
    vector: Shape

    @property
    def rank(self) -> int | None:
        return 1


@dataclass(frozen=True, slots=True)
class Squeezed(Origin):
    """A shape without a dim, if the dim has size 1."""

    base: Shape
    axis: Axis


@dataclass(frozen=True, slots=True)
class Stacked(Origin):
    """A shape with a new dim of a given size."""

    base: Shape
    axis: int
    count: int

    @property
    def least(self) -> int:
        return self.base.least + 1


@dataclass(frozen=True, slots=True)
class Transposed(Origin):
    """A shape with two dims exchanged."""

    base: Shape
    pair: frozenset[int]

    @property
    def rank(self) -> int | None:
        return self.base.rank

    @property
    def least(self) -> int:
        return max([self.base.least, *map(least_rank, self.pair)])


@dataclass(frozen=True, slots=True)
class Unsqueezed(Origin):
    """A shape with a new dim of size 1."""

    base: Shape
    axis: Axis

    @property
    def least(self) -> int:
        return self.base.least + 1


SCALAR = Shape(())


def least_rank(dim: int) -> int:
    """Return the smallest rank in which this dim exists: 2 for -2, 3 for 2."""
    return dim + 1 if dim >= 0 else -dim


def is_lead(dim: Dim) -> bool:
    """Return whether it stands for any number of dims."""
    return isinstance(dim, LeadingDims)


def unknown(origin: Origin) -> Shape:
    """Return a shape known only by its origin: equal to another of the same origin."""
    return Shape(None, origin)


def position(shape: Shape, dim: Axis) -> int | None:
    """Return the index of a dim in `shape.dims`; None if dims of unknown number stand between it and the end it is counted from.

    In `[..., N, D]` dim -1 has index 2, and dim 0 none.
    """
    if shape.dims is None or not isinstance(dim, int):
        return None
    if dim < 0:
        return len(shape.dims) + dim if -dim <= shape.trailing else None
    lead = shape.lead
    return dim if dim < (len(shape.dims) if lead is None else lead) else None


def from_end(shape: Shape, dim: Axis) -> int | None:
    """Return a dim as counted from the end, -1 for the last one; None if its number or the rank is unknown.

    So one number serves behind leading dims too.
    """
    if not isinstance(dim, int) or dim < 0:
        return dim if isinstance(dim, int) else None
    return None if shape.rank is None else dim - shape.rank


def size(shape: Shape, dim: Axis) -> Dim | None:
    """Return the size of a dim; None if unknown."""
    at = position(shape, dim)
    return None if at is None or shape.dims is None else shape.dims[at]


def with_dim(shape: Shape, dim: Axis, *sizes: Dim) -> Shape | None:
    """Return the shape with one dim replaced by any number of sizes; without sizes the dim is removed.

    None if the dim's position is unknown.
    """
    at = position(shape, dim)
    if at is None or shape.dims is None:
        return None
    return Shape((*shape.dims[:at], *sizes, *shape.dims[at + 1 :]))


def same_rank(one: Shape, two: Shape) -> bool:
    """Return whether two shapes certainly have the same number of dims: a known one, or the same leading dims before equally many."""
    if one.rank is not None or two.rank is not None or one == two:
        return one.rank == two.rank
    if one.lead is None or two.lead is None or one.dims is None or two.dims is None:
        return False
    # The `...` of two inputs are any two numbers of dims, but `*batch` is one.
    same_lead = one.dims[one.lead] == two.dims[two.lead]
    return same_lead and len(one.dims) == len(two.dims)


def fits(small: Shape, large: Shape) -> bool:
    """Return whether `small` certainly broadcasts to exactly `large`: `[D]` to `[N, D]`, not `[D]` to `[N, E]`.

    A sum over dims kept with size 1 fits whatever its operand fits; so does a part of a broadcast.
    """
    if small == large or small == SCALAR:
        return True
    parts = _parts(large)
    if parts and any(fits(small, part) for part in parts):
        return True
    if small.dims is None:
        match small.origin:
            case Kept(base) | OrScalar(base):
                return fits(base, large)
            case Broadcast(parts):
                return all(fits(part, large) for part in parts)
        return False
    if large.dims is None or len(small.dims) > len(large.dims):
        return False
    pairs = zip(reversed(small.dims), reversed(large.dims), strict=False)
    # Not a 1 beside `...`, which may be no dims at all: then the 1 would stay.
    return all(one == two or (one == 1 and not is_lead(two)) for one, two in pairs)


def _parts(shape: Shape) -> tuple[Shape, ...]:
    """Return the parts of a broadcast shape; empty for others."""
    return shape.origin.parts if isinstance(shape.origin, Broadcast) else ()


@lru_cache(maxsize=2048)  # the same few shapes are asked about for each op
def broadcast(*shapes: Shape) -> Shape:
    """Return the shape of an elementwise result: `[N, 1]`, `[D]` -> `[N, D]`.

    If sizes do not tell it, the result is a shape of unknown dims, identified by the shapes broadcast (its parts).
    """
    left = _without_smaller(shapes)
    if len(left) == 1 and not _parts(left[0]):  # as for most ops
        return left[0]
    # A shape that is a broadcast itself is replaced by those broadcast in it.
    parts = _without_smaller(
        part for shape in left for part in _parts(shape) or (shape,)
    )
    if not parts:
        return SCALAR
    merged = parts[0]  # of all parts that can be merged dim by dim
    rest = []
    for part in parts[1:]:
        both = _merged(merged, part) or _refilled(merged, part)
        if both is None:
            rest.append(part)
        else:
            merged = both
    if not rest:
        return merged
    filled = _filled((merged, *rest))
    if filled != [merged, *rest]:
        return broadcast(*filled)
    # Sorted: the same shapes in another order make the same broadcast.
    return unknown(Broadcast(tuple(sorted(filled, key=repr))))


def _filled(parts: Sequence[Shape]) -> list[Shape]:
    """Return broadcasting shapes, each 1 behind leading dims replaced by another one's size there.

    `x[..., D]` and `y[..., 1]` broadcast like `x[..., D]` and `y[..., D]`, so that a sum over the last dim broadcasts
    back to its operand's shape.
    """
    sizes: dict[int, Dim] = {}
    for part in parts:
        for at in range(-part.trailing, 0):
            size = _size_at(part, at)
            if size is not None and size != 1:
                sizes.setdefault(at, size)
    return [_with_sizes(part, sizes) for part in parts]


def _with_sizes(shape: Shape, sizes: Mapping[int, Dim]) -> Shape:
    """Return the shape with each 1 behind its leading dims replaced by the size in `sizes` (dim from the end -> size), if any."""
    if shape.dims is None or shape.lead is None:
        return shape
    dims = list(shape.dims)
    for at in range(-shape.trailing, 0):
        if dims[at] == 1:
            dims[at] = sizes.get(at, 1)
    return Shape(tuple(dims))


def _without_smaller(shapes: Iterable[Shape]) -> list[Shape]:
    """Return the shapes deciding a broadcast, without each one that broadcasts to another: (N,), (B, N) -> (B, N)."""
    left: list[Shape] = []
    for shape in shapes:
        if shape in left:  # the usual case, and cheaper
            continue
        if not any(fits(shape, other) for other in left):
            left = [other for other in left if not fits(other, shape)] + [shape]
    return left


def _merged(one: Shape, two: Shape) -> Shape | None:
    """Return two shapes broadcast dim by dim; None if their broadcast is unknown.

    It is if a pair of sizes is neither equal nor has a 1, or if a size meets leading dims of unknown number.
    """
    if one.dims is None or two.dims is None:
        return None
    if len(one.dims) < len(two.dims):
        one, two = two, one
    assert one.dims is not None and two.dims is not None
    # `two` is the shorter one: its dims meet the last ones of `one`, and may not meet dims of unknown number, unless both agree.
    same = one.lead is not None and two.lead == one.lead
    if not (same and len(one.dims) == len(two.dims)) and (
        two.lead is not None or (one.lead is not None and len(two.dims) > one.trailing)
    ):
        return None
    done = list(one.dims)
    for count, dim in enumerate(reversed(two.dims), 1):
        other = one.dims[-count]
        # The size of `one` stays; a 1 beside `...` may be a dim of its own.
        if other == dim or dim == 1 and not is_lead(other):
            continue
        if other != 1 or is_lead(dim):
            return None
        done[-count] = dim
    return Shape(tuple(done))


def _refilled(one: Shape, two: Shape) -> Shape | None:
    """Return the shape of `g.sum(-2, keepdim=True) * x`, with g and x of one shape: the 1 of the sum broadcasts back to it.

    None unless one of the two is such a sum, and the other one has the summed dims in full.
    """
    for kept, other in ((one, two), (two, one)):
        match kept.origin:
            case Kept(base, tuple(axes)) if fits(other, base):
                sizes = [(_size_at(base, at), _size_at(other, at)) for at in axes]
                if all(size is not None and size == own for size, own in sizes):
                    return base
    return None


def _size_at(shape: Shape, axis: Axis) -> Dim | None:
    """Return the size of a dim counted from the end, also of a broadcast of parts agreeing on it (a 1 agrees with any); None if unknown."""
    if not isinstance(axis, int) or axis >= 0:
        return None
    if isinstance(shape.origin, Broadcast):
        sizes = {_size_at(part, axis) for part in shape.origin.parts}
        return next(iter(sizes - {1} or sizes)) if len(sizes - {1}) < 2 else None
    return size(shape, axis)


def reduced(shape: Shape, dims: Axes | None, keepdim: bool) -> Shape:
    """Return the shape after a reduction over `dims`; None for all of them. With `keepdim` they stay, with size 1.

    Of a broadcast, each part is reduced by itself without `keepdim`; with it, the result is `Kept` of the whole, from
    which a gradient gets back to that shape (`_refilled`).
    """
    if shape == SCALAR:
        return SCALAR
    # PyTorch takes an empty tuple for all dims: `x.sum(())` is a scalar.
    if dims is None or dims == ():
        if not keepdim:
            return SCALAR
        if shape.rank is not None and shape.dims is not None:
            return Shape((1,) * shape.rank)
        return unknown(Kept(shape, None))
    # A part of another rank has the same dims at its end alone.
    parts = () if keepdim else _parts(shape)
    if parts and all(_is_at_end(part, dim) for part in parts for dim in dims):
        return broadcast(*(reduced(part, dims, keepdim) for part in parts))
    places = [position(shape, dim) for dim in dims]
    if shape.dims is None or None in places:
        return unknown(Kept(shape, dims) if keepdim else Dropped(shape, dims))
    if keepdim:
        return Shape(
            tuple(1 if at in places else dim for at, dim in enumerate(shape.dims))
        )
    return Shape(tuple(dim for at, dim in enumerate(shape.dims) if at not in places))


def _is_at_end(shape: Shape, dim: Axis, more: int = 0) -> bool:
    """Return whether a dim counted from the end stands behind leading dims of unknown number, or at most `more` positions before.

    Only then does it name the same dim in every part of a broadcast.
    """
    if not isinstance(dim, int) or dim >= 0 or shape.dims is None:
        return False
    return -dim <= shape.trailing + more


def unsqueezed(shape: Shape, dim: Axis) -> Shape:
    """Return the shape of `x.unsqueeze(dim)`, with a new dim of size 1.

    If the dims of x are unknown, it is a shape identified by x's and the dim; the dim that a sum has dropped comes
    back as a 1.
    """
    match shape.origin:
        case Dropped(base, (only,)) if only == dim:
            return unknown(Kept(base, (only,)))
        case Broadcast(parts) if all(_is_at_end(part, dim, 1) for part in parts):
            return broadcast(*(unsqueezed(part, dim) for part in parts))
    if shape.dims is not None and isinstance(dim, int):
        if dim < 0 and -dim <= shape.trailing + 1:
            at = len(shape.dims) + dim + 1
            return Shape((*shape.dims[:at], 1, *shape.dims[at:]))
        lead = shape.lead
        if 0 <= dim <= (len(shape.dims) if lead is None else lead):
            return Shape((*shape.dims[:dim], 1, *shape.dims[dim:]))
    return unknown(Unsqueezed(shape, dim))


def squeezed(shape: Shape, dim: Axis) -> Shape:
    """Return the shape of `x.squeeze(dim)`: without the dim if its size is 1, unchanged for any other number.

    With a size unknown before the call the result is a shape identified by the two.
    """
    match shape.origin:
        case Unsqueezed(base, only) if only == dim:
            return base
        case Kept(base, (only,)) if only == dim:
            return unknown(Dropped(base, (only,)))
        case Broadcast(parts) if all(_size_at(part, dim) == 1 for part in parts):
            return broadcast(*(squeezed(part, dim) for part in parts))
    known = size(shape, dim)
    if known == 1 and (without := with_dim(shape, dim)) is not None:
        return without
    return shape if isinstance(known, int) else unknown(Squeezed(shape, dim))


def transposed(shape: Shape, first: int, second: int) -> Shape:
    """Return the shape of a transpose, with two dims exchanged; of the transpose of a transpose, the first shape again."""
    match shape.origin:
        case Transposed(base, pair) if pair == frozenset((first, second)):
            return base
    one, two = position(shape, first), position(shape, second)
    if shape.dims is None or one is None or two is None:
        return unknown(Transposed(shape, frozenset((first, second))))
    dims = list(shape.dims)
    dims[one], dims[two] = dims[two], dims[one]
    return Shape(tuple(dims))


def permuted(shape: Shape, dims: Sequence[int]) -> Shape:
    """Return the shape of `x.permute(dims)`, with all dims reordered; if the dims of x are unknown, identified by x's and the order."""
    if shape.dims is None or shape.rank != len(dims):
        return unknown(Permuted(shape, tuple(dims)))
    return Shape(tuple(shape.dims[dim] for dim in dims))


def multiplied(left: Shape, right: Shape) -> Shape | None:
    """Return the shape of a matrix product, by the rules of `torch.matmul` for vectors and batches; None if unknown.

    `[N, K] @ [K, M]` -> `[N, M]`.
    """
    if left.dims is None or right.dims is None:
        return None
    one, two = left.rank, right.rank  # None if leading dims are among the dims
    if one == 1 and two == 1:  # of two vectors
        return SCALAR
    if two == 1:  # a matrix times a vector
        return Shape(left.dims[:-1]) if left.trailing else None
    if one == 1:  # a vector times matrices, whose last two dims must be known
        return (
            Shape((*right.dims[:-2], right.dims[-1])) if right.trailing >= 2 else None
        )
    # Of rows `x[..., K]` only the last dim is needed.
    if two == 2 and left.trailing >= 1:
        return Shape((*left.dims[:-1], right.dims[-1]))
    if left.trailing < 2 or right.trailing < 2:
        return None
    leading = broadcast(Shape(left.dims[:-2]), Shape(right.dims[:-2]))
    if leading.dims is None:
        return None
    return Shape((*leading.dims, left.dims[-2], right.dims[-1]))
