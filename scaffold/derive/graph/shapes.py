"""Shapes as far as they are known: named sizes, leading dimensions, or only where a shape comes from.

In: declared dims, and the shapes of arguments. Out: the shape of a result. Invariant: two equal shapes are equal in every
call; what cannot be told is a shape of its own, equal to no other.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Dim = (
    int | str
)  # a size, its name, `...x` for the leading dims of x, `?3` for a size without a name
Dims = tuple[int | str, ...]  # `@3` for a dim that is not written out


class Shape(NamedTuple):
    """The dims, or where they are None what tells this shape from others."""

    dims: tuple[Dim, ...] | None
    key: tuple[Any, ...] = ()

    @property
    def rank(self) -> int | None:
        """How many dims there are, where that is known."""
        if self.dims is not None:
            return None if self.lead is not None else len(self.dims)
        match self.key:
            case ("keep" | "transposed", Shape() as base, *_):
                return base.rank
            case ("rank", int(rank), _):
                return rank
            case ("permuted", _, tuple() as dims):
                return len(dims)
        return None

    @property
    def lead(self) -> int | None:
        """The position of the leading dims."""
        for position, dim in enumerate(self.dims or ()):
            if is_lead(dim):
                return position
        return None

    @property
    def trailing(self) -> int:
        """How many dims at the end can be counted from there."""
        if self.dims is None:
            return 0
        lead = self.lead
        return len(self.dims) if lead is None else len(self.dims) - lead - 1

    @property
    def least(self) -> int:
        """The least rank that it can have."""
        if self.dims is not None:
            return len(self.dims) - (self.lead is not None)
        match self.key:
            case ("transposed", Shape() as base, frozenset() as dims):
                return max([base.least, *map(_takes, dims)])
            case ("keep", Shape() as base, _):
                return base.least
            case ("unsqueezed" | "stacked", Shape() as base, *_):
                return base.least + 1
            case ("broadcast", tuple() as parts):
                return max([int(part.least) for part in parts])
            case ("matrix", *_):
                return 2
            case ("product", Shape() as left, Shape() as right):
                return 2 if left.least > 1 and right.least > 1 else 0
        return self.rank or 0


SCALAR = Shape(())


def _takes(dim: int) -> int:
    """How many dims there are at least where there is this one."""
    return dim + 1 if dim >= 0 else -dim


def is_lead(dim: Dim) -> bool:
    """Whether it stands for any number of dims."""
    return isinstance(dim, str) and dim.startswith("...")


def unknown(*key: Any) -> Shape:
    """A shape of which only the origin is known."""
    return Shape(None, key)


def position(shape: Shape, dim: int | str) -> int | None:
    """Where a dim stands in the known dims, or None."""
    if shape.dims is None or isinstance(dim, str):
        return None
    if dim < 0:
        return len(shape.dims) + dim if -dim <= shape.trailing else None
    lead = shape.lead
    return dim if dim < (len(shape.dims) if lead is None else lead) else None


def fits(small: Shape, large: Shape) -> bool:
    """Whether the one broadcasts to exactly the other."""
    if small == large or small == SCALAR:
        return True
    if any(fits(small, part) for part in _parts(large)):
        return True
    if small.dims is None:
        match small.key:
            case ("keep", Shape() as base, _):
                return fits(base, large)
            case ("broadcast", tuple() as parts):
                return all(fits(part, large) for part in parts)
        return False
    if large.dims is None or len(small.dims) > len(large.dims):
        return False
    pairs = zip(reversed(small.dims), reversed(large.dims), strict=False)
    return all(one == two or (one == 1 and not is_lead(two)) for one, two in pairs)


def _parts(shape: Shape) -> tuple[Shape, ...]:
    """The shapes of which a shape is the broadcast one."""
    return shape.key[1] if shape.key[:1] == ("broadcast",) else ()


def broadcast(*shapes: Shape) -> Shape:
    """The shape of an elementwise result."""
    whole = _without_smaller(shapes)
    parts = _without_smaller(
        part for shape in whole for part in _parts(shape) or (shape,)
    )
    if not parts:
        return SCALAR
    merged = parts[0]
    rest = []
    for part in parts[1:]:
        both = _merged(merged, part)
        if both is None:
            rest.append(part)
        else:
            merged = both
    if not rest:
        return merged
    return unknown("broadcast", tuple(sorted((merged, *rest), key=repr)))


def _without_smaller(shapes: Iterable[Shape]) -> list[Shape]:
    """Those that do not broadcast to another."""
    left: list[Shape] = []
    for shape in shapes:
        if not any(fits(shape, other) for other in left):
            left = [other for other in left if not fits(other, shape)] + [shape]
    return left


def _merged(one: Shape, two: Shape) -> Shape | None:
    """Dims of two shapes side by side, where each pair has one size or a 1."""
    if one.dims is None or two.dims is None:
        return None
    if len(one.dims) < len(two.dims):
        one, two = two, one
    assert one.dims is not None and two.dims is not None
    same = one.lead is not None and two.lead == one.lead
    if not (same and len(one.dims) == len(two.dims)) and (
        two.lead is not None or (one.lead is not None and len(two.dims) > one.trailing)
    ):
        return None
    done = list(one.dims)
    for count, dim in enumerate(reversed(two.dims), 1):
        other = one.dims[-count]
        if other == dim or dim == 1 and not is_lead(other):
            continue
        if other != 1 or is_lead(dim):
            return None
        done[-count] = dim
    return Shape(tuple(done))


def reduced(shape: Shape, dims: Dims | None, keepdim: bool) -> Shape:
    """What a reduction leaves; without dims it is of the whole tensor."""
    if shape == SCALAR:
        return SCALAR
    if dims is None or dims == ():
        if not keepdim:
            return SCALAR
        if shape.rank is not None and shape.dims is not None:
            return Shape((1,) * shape.rank)
        return unknown("keep", shape, None)
    places = [position(shape, dim) for dim in dims]
    if shape.dims is None or None in places:
        return unknown("keep" if keepdim else "drop", shape, dims)
    if keepdim:
        return Shape(
            tuple(1 if at in places else dim for at, dim in enumerate(shape.dims))
        )
    return Shape(tuple(dim for at, dim in enumerate(shape.dims) if at not in places))


def unsqueezed(shape: Shape, dim: int | str) -> Shape:
    """With a dim of size 1 more."""
    match shape.key:
        case ("drop", Shape() as base, (only,)) if only == dim and shape.dims is None:
            return unknown("keep", base, (only,))
    if shape.dims is not None and isinstance(dim, int):
        if dim < 0 and -dim <= shape.trailing + 1:
            at = len(shape.dims) + dim + 1
            return Shape((*shape.dims[:at], 1, *shape.dims[at:]))
        lead = shape.lead
        if 0 <= dim <= (len(shape.dims) if lead is None else lead):
            return Shape((*shape.dims[:dim], 1, *shape.dims[dim:]))
    return unknown("unsqueezed", shape, dim)


def squeezed(shape: Shape, dim: int | str) -> Shape:
    """Without a dim that is known to have size 1."""
    match shape.key:
        case ("unsqueezed", Shape() as base, at) if at == dim and shape.dims is None:
            return base
        case ("keep", Shape() as base, (only,)) if only == dim and shape.dims is None:
            return unknown("drop", base, (only,))
    at = position(shape, dim)
    if at is not None and shape.dims is not None and shape.dims[at] == 1:
        return Shape((*shape.dims[:at], *shape.dims[at + 1 :]))
    if at is not None and shape.dims is not None and isinstance(shape.dims[at], int):
        return shape
    return unknown("squeezed", shape, dim)


def transposed(shape: Shape, first: int, second: int) -> Shape:
    """With two dims exchanged."""
    match shape.key:
        case (
            "transposed",
            Shape() as base,
            pair,
        ) if shape.dims is None and pair == frozenset((first, second)):
            return base
    one, two = position(shape, first), position(shape, second)
    if shape.dims is None or one is None or two is None:
        return unknown("transposed", shape, frozenset((first, second)))
    dims = list(shape.dims)
    dims[one], dims[two] = dims[two], dims[one]
    return Shape(tuple(dims))


def permuted(shape: Shape, dims: Sequence[int]) -> Shape:
    """With all dims in another order."""
    if shape.dims is None or shape.rank != len(dims):
        return unknown("permuted", shape, tuple(dims))
    return Shape(tuple(shape.dims[dim] for dim in dims))


def multiplied(left: Shape, right: Shape) -> Shape | None:
    """The shape of a matrix product."""
    if left.dims is None or right.dims is None:
        return None
    one, two = left.rank, right.rank
    if one == 1 and two == 1:
        return SCALAR
    if two == 1:
        return Shape(left.dims[:-1]) if left.trailing else None
    if one == 1:
        return (
            Shape((*right.dims[:-2], right.dims[-1])) if right.trailing >= 2 else None
        )
    if two == 2 and left.trailing >= 1:
        return Shape((*left.dims[:-1], right.dims[-1]))
    if left.trailing < 2 or right.trailing < 2:
        return None
    leading = broadcast(Shape(left.dims[:-2]), Shape(right.dims[:-2]))
    if leading.dims is None:
        return None
    return Shape((*leading.dims, left.dims[-2], right.dims[-1]))
