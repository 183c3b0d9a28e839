"""Lower indexing to primitives, one dimension at a time, and single results of several.

`x[0, :, 1:]` -> `slice(select(x, 0, 0), 1, 1, None)`: each has a simple gradient.

In: a tensor and the parts of its index. Out: `slice`, `select`, `unsqueeze` and `index` ops; for a call splitting a tensor into a
tuple (`chunk`, `unbind`): the number of parts, if known before the call, and the tensor equal to all parts joined. Invariant: dims
after an ellipsis are counted from the end, so they hold for any rank; statements about parts hold for any number of them.

Words: a part of an index is a number, `1:2` (a `range`), None (a new dim), `...`, or a tensor or list, which picks elements. The
parts of a tensor are those of `chunk`, `split` or `unbind`; they are `single` if each has lost its dim, as by `unbind`. A value is
`taken` by an index; the size of a dim is its `whole` size, beside that of a part.
"""

from collections.abc import Sequence

from scaffold.derive.graph import shapes, sizes
from scaffold.derive.graph.application import Applier, kind_of
from scaffold.derive.graph.op import Kind, Op, Program, SizeOf, is_number, literal
from scaffold.derive.graph.shape_rules import PartSize, dim_of, shape_said, slice_size
from scaffold.derive.graph.shapes import Dim, Shape
from scaffold.derive.graph.static_values import difference, part_of
from scaffold.formula import UNKNOWN


def taken(applier: Applier, value: Op, parts: Sequence[Op]) -> Op:
    """Return `value[parts]`; of the number 0, which is the gradient of an unused result, 0."""
    if is_number(value, 0):
        return value
    if any(part.is_tensor or part.rule == "list" for part in parts):
        return _advanced(applier, value, parts)
    ellipsis = [at for at, part in enumerate(parts) if is_ellipsis(part)]
    split = ellipsis[0] if ellipsis else len(parts)
    at = 0  # the dim of the next part: from the left, then from the right
    for part in parts[:split]:
        value, at = _step(applier, value, part, at, 1)
    at = -1
    # From the last part on, as dims from the right keep their numbers when one before is gone.
    for part in reversed(parts[split + 1 :]):
        value, at = _step(applier, value, part, at, -1)
    return value


def is_whole(part: Op) -> bool:
    """Return whether a part of an index is `:`."""
    return part.rule == "range" and all(literal(item) is None for item in part.args)


def is_ellipsis(part: Op) -> bool:
    return part.rule == "const" and part.value is ...


def _step(applier: Applier, value: Op, part: Op, at: int, way: int) -> tuple[Op, int]:
    """Apply one part of an index, `1:`, `None` or `i`, at dim `at`; return the value and the dim for the next part.

    `way` is 1 from the left, -1 from the right; after an integer the next dim has the same number, as one is gone.
    """
    if part.rule == "range":
        return sliced(applier, value, at, part.args), at + way
    if is_new_dim(part):
        return _with_new_dim(applier, value, at), at + way
    return selected(applier, value, at, part), at


def _with_new_dim(applier: Applier, value: Op, at: int) -> Op:
    """Return the value with a dim of size 1 at a position, as for a None in an index."""
    return applier.named("unsqueeze", value, applier.program.const(at))


def sliced(
    applier: Applier,
    value: Op,
    dim: int,
    bounds: Sequence[Op],
    known: Shape | None = None,
) -> Op:
    """Return `value[start:end:step]` along `dim`, all three in `bounds`; `known` is its shape, if that is another tensor's."""
    start, end, step = bounds
    program = applier.program
    if all(literal(item) is None for item in (start, end, step)):
        return value
    args = {"x": value, "dim": program.const(dim), "start": start, "end": end}
    args["step"] = step
    shape = known or _sliced_shape(program, value, dim, bounds)
    op = _viewed(program, "slice", args, shape)
    if known is None:  # else its size is written as that tensor's
        _note_size(applier, op, start, end, step)
    return op


def selected(
    applier: Applier, value: Op, dim: int, index: Op, known: Shape | None = None
) -> Op:
    """Return `value.select(dim, index)`, without that dim; `known` is its shape, if known from elsewhere."""
    program = applier.program
    args = {"x": value, "dim": program.const(dim), "index": index}
    shape = known or shapes.reduced(value.shape, (dim,), False)
    return _viewed(program, "select", args, shape)


def _viewed(
    program: Program, rule: str, args: dict[str, Op], shape: Shape | None
) -> Op:
    """Return the op of a view of its argument "x", `slice` or `select`, of the same kind."""
    x = args["x"]
    return program.op(rule, args.values(), kind=x.kind, shape=shape, active=x.active)


def _sliced_shape(
    program: Program, value: Op, dim: int, bounds: Sequence[Op]
) -> Shape | None:
    """Return the shape of a slice in one dim; None if the dim's size is unknown, as the slice's is then."""
    whole = shapes.size(value.shape, dim)
    if whole is None:
        return None
    return shapes.with_dim(value.shape, dim, slice_size(program, whole, *bounds))


def _note_size(applier: Applier, op: Op, start: Op, end: Op, step: Op) -> None:
    """Note how to write the size of `x[:n]` or `x[n:]` if n is a part of x's size, as `x.shape[-1] // 2`: as n, or `size - n`.

    So the backward can write it without the slice.
    """
    program, dim = applier.program, dim_of(op.args[1])
    whole, part = shapes.size(op.args[0].shape, dim), shapes.size(op.shape, dim)
    # A number is written as it is.
    if whole is None or isinstance(part, int | None) or literal(step) is not None:
        return
    # `x[:n]` with `n = x.shape[-1] // 2`: n is surely no longer than x.
    if literal(start) is None and part_of(program, end) == whole:
        program.tell_size(part, end)
    elif literal(end) is None and part_of(program, start) == whole:
        size = program.op("size", (), SizeOf(whole))
        program.tell_size(part, difference(program, size, start))


def _advanced(applier: Applier, value: Op, parts: Sequence[Op]) -> Op:
    """Return the value at an index with tensors or lists.

    Slices, numbers and new dims are applied as ops of their own where PyTorch gives the same dims in the same order; the rest is
    one `index` op. Two parts that pick elements are together if no other part stands between them.
    """
    program = applier.program
    parts = _without_ellipsis(applier, value, [*parts])
    while is_whole(parts[-1]) or is_ellipsis(parts[-1]):  # `x[i, ...]` is `x[i]`
        parts.pop()
    # `x[i, None]`: the index without None first, then the new dims
    new = [at for at, part in enumerate(parts) if is_new_dim(part)]
    rank = value.shape.rank
    if new and rank is not None:
        others = [part for part in parts if not is_new_dim(part)]
        picking = [at for at, part in enumerate(parts) if _picks(part)]
        # Dims picked apart from each other come first in the result, and a mask covers several dims.
        together = picking == [*range(picking[0], picking[-1] + 1)]
        if together and not any(part.kind == "bool" for part in parts):
            found = taken(applier, value, others)
            return _with_new_dims(applier, found, parts, rank)
    if sum(part.is_tensor for part in parts) == 1 and _is_plain(parts):
        value, parts = _one_tensor(applier, value, parts)
    shape = _indexed_shape(value.shape, parts)
    return program.op(
        "index", (value, *parts), kind=value.kind, shape=shape, active=value.active
    )


def is_new_dim(part: Op) -> bool:
    """Return whether a part of an index is `None`."""
    return part.rule == "const" and part.value is None


def _picks(part: Op) -> bool:
    """Return whether a part of an index picks elements: a number, a list or a tensor, not a slice or a new dim."""
    return part.rule != "range" and not is_new_dim(part)


def _without_ellipsis(applier: Applier, value: Op, parts: list[Op]) -> list[Op]:
    """Return an index with `:` for each dim of its ellipsis, `x[:, :, i]` for `x[..., i]`; unchanged if the rank is unknown.

    `value` is the indexed tensor.
    """
    places = [at for at, part in enumerate(parts) if is_ellipsis(part)]
    rank = value.shape.rank
    given = sum(not is_new_dim(part) for part in parts) - 1  # without the ellipsis
    # A mask covers as many dims as it has.
    if len(places) != 1 or rank is None or any(part.kind == "bool" for part in parts):
        return parts
    none = applier.program.const(None)
    colon = applier.program.op("range", (none, none, none))
    return [*parts[: places[0]], *[colon] * (rank - given), *parts[places[0] + 1 :]]


def _with_new_dims(applier: Applier, found: Op, parts: Sequence[Op], rank: int) -> Op:
    """Return `found`, a tensor of that rank at an index without its new dims, with them, before and after the indexed dims.

    `parts` is the whole index. It has no ellipsis and no mask, and the parts that pick elements stand together.
    """
    # Indexed dims become dims at the place of the first: None before it is counted from the left, behind it from the right.
    first = next(at for at, part in enumerate(parts) if _picks(part))
    used = sum(not is_new_dim(part) for part in parts)
    behind_all = rank - used  # dims behind all parts of the index
    for at, part in enumerate(parts[:first]):
        if is_new_dim(part):
            found = _with_new_dim(applier, found, at)
    behind = -1 - behind_all
    for part in reversed(parts[first:]):
        if is_new_dim(part):
            found = _with_new_dim(applier, found, behind)
        behind -= 1
    return found


def _indexed_shape(shape: Shape, parts: Sequence[Op]) -> Shape | None:
    """Return the shape of `value[parts]`: the picked dims are replaced by the shape the picking parts broadcast to; None if unknown.

    `x[N, D]`, index `[:, i[K]]` -> `[N, K]`. At least one part picks.
    """
    places = [at for at, part in enumerate(parts) if part.rule != "range"]
    first, last = places[0], places[-1]
    ranges = [part for part in parts if part.rule == "range"]
    # The picking parts must stand together, and the others be `:`.
    if len(places) != last - first + 1 or not all(map(is_whole, ranges)):
        return None
    picked = [_picked_shape(part) for part in parts[first : last + 1]]
    if None in picked:
        return None
    index = shapes.broadcast(*(item for item in picked if item is not None))
    if shape.rank == len(parts) == len(places):  # all dims are picked
        return index
    # All indexed dims must be known ones, counted from the left.
    known = len(shape.dims or ()) if shape.lead is None else shape.lead
    if shape.dims is None or index.dims is None or len(parts) > known:
        return None
    # A shape has leading dims, any number of them, at one place.
    if shape.lead is not None and index.lead is not None:
        return None
    return Shape((*shape.dims[:first], *index.dims, *shape.dims[last + 1 :]))


def _picked_shape(part: Op) -> Shape | None:
    """Return the shape of a list or tensor of integers as an index; None for a mask, whose count of True only the call tells."""
    if part.rule == "list":
        are_ints = all(type(literal(item)) is int for item in part.args)
        return Shape((len(part.args),)) if are_ints else None
    return part.shape if part.kind == "int" else None


def _is_plain(parts: Sequence[Op]) -> bool:
    """Return whether numbers beside the only tensor of an index can be applied first without another order of dims.

    `x[0, index]` is `x[0][index]`, but `x[0, :, index]` has the dims of `index` first: PyTorch puts them there if a slice stands
    between them and a number. So the tensor must be first, or next to the numbers.
    """
    if any(
        part.rule == "list" or is_ellipsis(part) or is_new_dim(part) for part in parts
    ):
        return False
    places = [at for at, part in enumerate(parts) if part.rule != "range"]
    return parts[0].is_tensor or places == list(range(places[0], places[-1] + 1))


def _one_tensor(applier: Applier, value: Op, parts: list[Op]) -> tuple[Op, list[Op]]:
    """Apply the slices and numbers of an index; return the value, and the rest of the index: the tensor, with `:` before it.

    From the right, so that removed dims do not change the numbers of the others.
    """
    rest: list[Op] = []
    none = applier.program.const(None)
    colon = applier.program.op("range", (none, none, none))
    for at in reversed(range(len(parts))):
        part = parts[at]
        if part.is_tensor:
            rest.insert(0, part)
        elif part.rule == "range":
            value = sliced(applier, value, at, part.args)
            rest.insert(0, colon)
        else:
            value = selected(applier, value, at, part)
    while rest[-1] is colon:
        rest.pop()
    return value, rest


def item_of(
    program: Program, applier: Applier, op: Op, position: int
) -> tuple[Shape | None, Kind, bool]:
    """Return the shape and the kind of one of several results of a call, and whether a gradient may pass through it.

    No gradient leads back from some results: the indices of `x.max(0)`, the mean of a norm.
    """
    rule = applier.table.of_op(op.rule)
    assert rule is not None
    args = rule.by_parameter(op.args)
    kind = kind_of(program, rule, args, position)
    active = op.active and kind in ("real", "complex")
    names = rule.results
    # `("*parts",)`: any number of parts, the word of the table for a tuple.
    if names[0].startswith("*") or len(names) <= position:
        return _part_shape(program, op, position), kind, active
    # The mean of a norm has another shape than the norm, which the table does not say.
    if kind == "real" and not rule.leads_back(names[position]):
        return None, kind, False
    return shape_said(program, rule.facts.shape, args), kind, active


def _part_shape(program: Program, op: Op, position: int) -> Shape | None:
    """Return the shape of a part of a tensor split along a dim: `unbind` removes the dim, `chunk` and `split` shorten it."""
    # Of `unbind(x, dim)`, and of `chunk(x, count, dim)` or `split(x, lengths, dim)`.
    x, *count_or_lengths, dim_op = op.args
    dim = literal(dim_op)
    if not isinstance(dim, int):
        return None
    if not count_or_lengths:  # each part is at one index
        return shapes.reduced(x.shape, (dim,), False)
    whole = shapes.size(x.shape, dim)
    if whole is None:
        return None
    return shapes.with_dim(x.shape, dim, _part_size(program, op, whole, position))


def _part_size(program: Program, op: Op, whole: Dim, position: int) -> Dim:
    """Return the size of one part along the split dim: by given lengths, `split([3, 1])`, or equal shares, `chunk(3)` of `3*D`.

    `whole` is the size of the dim. An unknown size is a `PartSize`, equal to no other.
    """
    # The size of each part (`split`), or the number of parts (`chunk`).
    count, unknown = literal(op.args[1]), PartSize(op, position)
    if "sized" in op.facts.flags:
        length = _stated_length(program, op.args[1], whole, position)
        return unknown if length is None else length
    if "shares" not in op.facts.flags or type(count) is not int or count < 1:
        return unknown
    share = sizes.divided(whole, count)
    if share is None and count == 2 and _has_both_halves(program, op, position):
        half = sizes.quotient(whole, 2)
        return sizes.minus(whole, half) if position == 0 else half
    if share is None and position == count - 1:
        # The last of `count` parts exists only if all before it do, which are equal.
        before = (_part_size(program, op, whole, at) for at in range(position))
        return sizes.minus(whole, sizes.added(before))
    return unknown if share is None else share


def _has_both_halves(program: Program, op: Op, position: int) -> bool:
    """Return whether both parts of `chunk(2)` exist, so the first is at least as large: a size of 1 gives one part.

    They do if the program reads the second, or unpacks them.
    """
    return position == 1 or (position == 0 and program.is_unpacked(op))


def _stated_length(
    program: Program, lengths: Op, whole: Dim, position: int
) -> Dim | None:
    """Return a part's length from an argument of `split`, all lengths or their common one; None if unknown.

    The last part may be shorter than the common length.
    """
    stated = literal(lengths)
    if isinstance(stated, tuple):
        known = stated[position] if position < len(stated) else None
        return known if type(known) is int else None
    if type(stated) is int and stated > 0 and isinstance(whole, int):
        # From the end: the number of parts, rounded up, less as many.
        at = position if position >= 0 else -(-whole // stated) + position
        return max(0, min(stated, whole - at * stated))
    # `x.split(n)` of the size `3 * n`: three parts, all of the length n.
    if stated is UNKNOWN and lengths.rule != "list":
        length = program.size_of(lengths)
        count = sizes.divided(whole, length)
        return length if isinstance(count, int) and position < count else None
    return None


# --- Splitting a tensor into a tuple, and joining such a tuple.


def are_parts(applier: Applier, op: Op) -> bool:
    """Return whether an op splits a tensor along a dim, its last argument, into a tuple: `unbind`, `chunk`, `split`."""
    rule = applier.table.of_op(op.rule)
    return rule is not None and rule.results[0].startswith("*")


def are_single(op: Op) -> bool:
    """Return whether each part is one index of the dim, without the dim: `unbind` has a tensor and a dim as its only arguments."""
    return len(op.args) == 2


def count_of(applier: Applier, op: Op) -> int | None:
    """Return the number of parts a tensor is split into; None if its sizes or the arguments leave it unknown."""
    if not are_parts(applier, op):
        return None
    stated, whole = literal(op.args[1]), shapes.size(
        op.args[0].shape, dim_of(op.args[-1])
    )
    if are_single(op):
        return whole if isinstance(whole, int) else None
    sized = "sized" in op.facts.flags  # the argument gives sizes, not a count
    if sized and isinstance(stated, tuple):
        return len(stated)
    if type(stated) is not int or stated < 1 or not isinstance(whole, int) or whole < 1:
        return None
    if sized:
        return -(-whole // stated)  # rounded up: the last part may be shorter
    # A size of 5 in 4 chunks gives 3: sizes of 2.
    return -(-whole // -(-whole // stated)) if "shares" in op.facts.flags else None


def position_of(applier: Applier, op: Op, position: int) -> int | None:
    """Return a negative position as counted from the first part, if the number of parts is known.

    Otherwise itself, if the gradient can count from the end: the last part, or any of `unbind`; None if not.
    """
    if position >= 0:
        return position
    count = count_of(applier, op)
    if count is not None:
        return position + count if position + count >= 0 else None
    from_end = are_parts(applier, op) and (position == -1 or are_single(op))
    return position if from_end else None


def joined(applier: Applier, stacked: bool, parts: Op, dim: Op) -> Op | None:
    """Return all parts of a tensor joined by `cat` or (with `stacked`) `stack`, without splitting it.

    `torch.stack(x.unbind(1))` is `x.movedim(1, 0)`. None if `parts` are no parts of one tensor, or joined along another dim.
    """
    if not are_parts(applier, parts):
        return None
    x, taken = parts.args[0], parts.args[-1]
    to, at = literal(dim), literal(taken)
    if type(to) is not int or type(at) is not int:
        return None
    if are_single(parts):  # of `unbind`: without the dim
        # `cat` counts dims without the one that `unbind` took: its -1 is -2 beside it.
        first = to if stacked or to >= 0 else to - 1
        moved = applier.named("movedim", x, taken, applier.program.const(first))
        ends = map(applier.program.const, (first, first + 1))
        return moved if stacked else applier.named("flatten", moved, *ends)
    # The parts of `chunk` and `split` give x if they are joined along the dim they were split along.
    places = {shapes.position(x.shape, at), shapes.position(x.shape, to)}
    same = at == to or len(places) == 1 and None not in places
    return x if same and not stacked else None
