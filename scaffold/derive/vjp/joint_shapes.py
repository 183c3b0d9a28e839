"""Shapes of what several tensors make together, or one with itself: `stack`, `cat`, `einsum`, `diagonal`.

In: the arguments of a rule by parameter. Out: a shape, or None for one that is not known. Invariant: what is said holds in
every call that PyTorch accepts.
"""

import re
from collections.abc import Mapping

from scaffold.derive.vjp import shapes
from scaffold.derive.vjp.equations import letters_of
from scaffold.derive.vjp.ir import Op, Program, literal, tensors
from scaffold.derive.vjp.shapes import Dim, Shape

Args = Mapping[str, Op]


def _dim(args: Args) -> tuple[int] | None:
    dim = literal(args["dim"])
    return (dim,) if isinstance(dim, int) else None


def stacked(program: Program, args: Args) -> Shape | None:
    """`stack`: one dim more, as long as there are parts; they all have one shape."""
    parts = list(tensors(args.values()))
    dims = _dim(args)
    if not parts or not dims:
        return None
    first = parts[0].shape
    wide = shapes.unsqueezed(first, dims[0])
    at = shapes.position(wide, dims[0])
    if wide.dims is None or at is None:
        return shapes.unknown("stacked", first, dims[0], len(parts))
    return Shape((*wide.dims[:at], len(parts), *wide.dims[at + 1 :]))


def joined(program: Program, args: Args) -> Shape | None:
    """`cat`: two slices that make up a dim are that dim; else a size without a name."""
    parts, dims = list(tensors(args.values())), _dim(args)
    known = [part.shape for part in parts if part.shape.dims is not None]
    if not known or not dims or known[0].dims is None:
        return None
    at = shapes.position(known[0], dims[0])
    if at is None or any(len(part.dims or ()) != len(known[0].dims) for part in known):
        return None
    sizes = [
        part.shape.dims[at] if part.shape.dims else f"?part{part.serial}"
        for part in parts
    ]
    whole = _whole(str(sizes[0]), str(sizes[1])) if len(sizes) == 2 else None
    if all(isinstance(size, int) for size in sizes):
        size: Dim = sum(size for size in sizes if isinstance(size, int))
    else:
        size = whole or "?" + "+".join(map(str, sizes))
    return Shape((*known[0].dims[:at], size, *known[0].dims[at + 1 :]))


def _whole(one: str, two: str) -> str | None:
    """The size that `?D[1:2:1]` and `?D[2:1:1]` make up, where op 1 is None."""
    found = [re.fullmatch(r"\?(.+)\[(\d+):(\d+):(\d+)\]", item) for item in (one, two)]
    if found[0] is None or found[1] is None or found[0][1] != found[1][1]:
        return None
    (a, b, step), (c, d, other) = found[0].groups()[1:], found[1].groups()[1:]
    none = step
    halves = a == none == d and b == c or c == none == b and d == a
    return found[0][1] if halves and step == other else None


def einsum(program: Program, args: Args) -> Shape | None:
    """Sizes by letter, where each has one."""
    equation, operands = literal(args["equation"]), args["operands"]
    if not isinstance(equation, str):
        return None
    inputs, result = letters_of(equation)
    sizes: dict[str, Dim] = {}
    leads: list[Shape] = []
    for letters, operand in zip(inputs, tensors((operands,)), strict=False):
        lead = _letter_sizes(letters, operand.shape, sizes)
        if lead is None:
            return None
        leads.append(lead)
    leading = shapes.broadcast(*leads)
    before, dots, after = result.partition("...")
    if leading.dims is None or leading.dims and not dots:
        return None
    ends = [tuple(sizes[item] for item in part) for part in (before, after)]
    return Shape((*ends[0], *leading.dims, *ends[1]))


def _letter_sizes(letters: str, shape: Shape, sizes: dict[str, Dim]) -> Shape | None:
    """Note the size of each letter of an operand; what its dots stand for, or None where that is not known."""
    before, dots, after = letters.partition("...")
    count = len(before) + len(after)
    if (
        shape.dims is None
        or count > len(shape.dims)
        or not dots
        and count < len(shape.dims)
    ):
        return None
    end = len(shape.dims) - len(after)
    first, last = shape.dims[: len(before)], shape.dims[end:]
    for letter, dim in zip(before + after, first + last, strict=True):
        if shapes.is_lead(dim) or dim == 1 or sizes.setdefault(letter, dim) != dim:
            return None
    return Shape(shape.dims[len(before) : end])


def diagonal(program: Program, args: Args) -> Shape | None:
    """The main diagonals of square matrices."""
    dims = args["x"].shape.dims
    main = literal(args["offset"]) == 0
    ends = {literal(args["dim1"]), literal(args["dim2"])} == {-2, -1}
    if main and ends and dims and args["x"].shape.trailing > 1:
        return Shape(dims[:-1]) if dims[-1] == dims[-2] else None
    plain = main and literal(args["dim1"]) in (0, -2)
    square = dims is not None and len(dims) == 2 and dims[0] == dims[1]
    return (
        Shape(dims[:1])
        if dims and square and plain and args["x"].shape.lead is None
        else None
    )
