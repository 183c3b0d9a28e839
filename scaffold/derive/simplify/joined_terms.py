"""Join terms of a sum in the backward: parts of one tensor as a `cat` or `stack`, choices by one test as one choice.

A forward that reads `x[:, :n]` and `x[:, n:]` gives `x` a gradient of two terms, each among zeros; `cat((g, h), 1)` is the same.

In: the terms: gradients of `x[..., 0]`, `x[:, :n]`, `x[1::2]`, each among zeros in the shape of the tensor; choices by the same
test; values scattered into a tensor. Out: the same sum in fewer terms. Invariant: same value, same shape, whatever the sizes are:
parts are joined only if they are known to be disjoint and complete; a value with a name in the forward stays whole.

Words: a line is the gradient of `x[..., 0]`, zeros with a value at one index of a dim, its arguments `zeros, value, dim, index`; an
`unsliced` op is the gradient of a slice, a tensor of zeros with a value in the place of the slice: `value, dim, start, end, step`. A
choice is `a if test else 0`; branch 0 is taken if the test holds,
branch 1 if not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from scaffold.derive.graph import shapes, sizes
from scaffold.derive.graph.conditions import choose, may_be_zero
from scaffold.derive.graph.op import Op, Program, is_number, literal
from scaffold.derive.graph.shapes import Dim, Shape, is_lead
from scaffold.derive.simplify.constructors import Maker, Registry

# --- Parts of one tensor that make up a dim of it.


class Part(NamedTuple):
    """A value for the indices from `start` to `end` of a dim; with `line`, for a single index, without the dim."""

    start: int
    end: int
    value: Op
    line: bool


# The joined value, and the terms it replaces; None if they cannot be joined.
Joined = tuple[Op, Sequence[Op]] | None


def joined_parts(make: Maker, terms: Sequence[Op]) -> list[Op]:
    """Return the terms of a sum, with parts of one dim joined: `x[:, :n]` and `x[:, n:]`, each among zeros, are one `cat`.

    Four ways are tried for the parts of one dim; terms not joined are returned as they are.
    """
    left = list(terms)
    of_dims: dict[tuple[Shape, str, object], list[Op]] = {}
    for op in terms:
        if (dim := _dim(op)) is not None:
            # The dims -1 and 1 of a matrix are one; of an unknown rank only equal numbers are.
            at = shapes.position(op.shape, dim)
            key = (op.shape, op.kind, dim if at is None else at)
            of_dims.setdefault(key, []).append(op)
    for parts in of_dims.values():
        if len({*parts}) < len(parts):  # a term that counts twice: parts overlap
            continue
        for join in (_numbered, _every_nth, _chained, _disjoint):
            found = join(make, parts) if len(parts) > 1 else None
            if found is not None:
                whole, used = found
                left = [op for op in left if op not in used]
                left.insert(0, make.program.shaped(whole, parts[0].shape))
                break
    return left


def _dim(op: Op) -> int | None:
    """Return the dim an op fills in part, with zeros elsewhere, as the gradient of a slice or `x[..., 0]`; None for other ops."""
    # The arguments: `unsliced(g, dim, start, end, step)`, `select_scatter(zeros, g, dim, index)`.
    if op.rule == "unsliced":
        dim = literal(op.args[1])
    elif _is_line(op):
        dim = literal(op.args[2])
    else:
        return None
    return dim if type(dim) is int else None


def _is_line(op: Op) -> bool:
    """Return whether an op is zeros with a value at one index of a dim, as by `select_scatter`."""
    placed = op.facts.shape == "x" and len(op.args) == 4
    return placed and op.args[0].rule == "zeros" and type(literal(op.args[3])) is int


def _size(op: Op) -> Dim | None:
    """Return the size of the dim an op fills in part; None if unknown."""
    dim = _dim(op)
    return None if dim is None else shapes.size(op.shape, dim)


def _joined(make: Maker, values: Sequence[Op], dim: Op) -> Op:
    """Return the parts joined along a dim, as by `torch.cat`."""
    return make.cat(make.program.op("list", values), dim)


def _stacked(make: Maker, values: Sequence[Op], dim: Op) -> Op:
    """Return the parts along a new dim, as by `torch.stack`."""
    return make("stack", make.program.op("list", values), dim)


def _with_dim(make: Maker, part: Part, dim: int) -> Op:
    """Return the value of a part, with a dim of size 1 added to a line."""
    return make.unsqueeze(part.value, make.const(dim)) if part.line else part.value


# --- Parts whose indices all are numbers.


def _numbered(make: Maker, terms: Sequence[Op]) -> Joined:
    """Join parts whose indices are numbers, as `stack((g, h), -1)` for the gradients of `x[..., 0]` and `x[..., 1]` of a dim of size 2.

    Gaps are filled with zeros, at most half of the indices. None if indices overlap, or are not all numbers.
    """
    size, dim = _size(terms[0]), _dim(terms[0])
    if not isinstance(size, int) or dim is None:
        return None
    known = [part for part in (_part(op, size) for op in terms) if part is not None]
    parts = sorted(known, key=lambda part: (part.start, part.end))
    filled = sum(part.end - part.start for part in parts)
    overlap = any(one.end > two.start for one, two in pairwise(parts))
    # Some part has unknown indices, two have one in common, or most of the dim is zeros.
    if len(parts) < len(terms) or overlap or 2 * filled < size:
        return None
    lines = all(part.line for part in parts)
    values = list(_without_gaps(make, parts, size, dim, lines))
    join = _stacked if lines else _joined
    return join(make, values, make.const(dim)), terms


def _part(op: Op, size: int) -> Part | None:
    """Return the indices an op fills in a dim of that size, with its value; None if they are unknown or not consecutive."""
    if _is_line(op):  # `select_scatter(zeros, g, dim, index)`
        index = literal(op.args[3])
        assert isinstance(index, int)
        at = index + size if index < 0 else index
        return Part(at, at + 1, op.args[1], True) if 0 <= at < size else None
    start, end, step = (literal(item) for item in op.args[2:])
    if step not in (None, 1):
        return None
    if not (isinstance(start, int | None) and isinstance(end, int | None)):
        return None
    found = range(size)[
        start:end
    ]  # as Python reads bounds that are negative or missing
    return Part(found.start, found.stop, op.args[0], False) if found else None


def _without_gaps(
    make: Maker, parts: Sequence[Part], size: int, dim: int, lines: bool
) -> Iterator[Op]:
    """Yield the values of the parts in order, with zeros for indices between them and behind the last, to be joined.

    They are tensors for a `cat`; with `lines`, for a `stack`, one value for each index.
    """
    at = 0
    end = Part(size, size, parts[0].value, lines)
    for part in (*parts, end):
        if part.start > at:
            yield from _zeros(make, parts, part.start - at, dim, lines)
        if part is not end:
            yield part.value if lines else _with_dim(make, part, dim)
        at = part.end


def _zeros(
    make: Maker, parts: Sequence[Part], count: int, dim: int, lines: bool
) -> Iterator[Op]:
    """Yield zeros for `count` indices of a gap between `parts`: one tensor for a `cat`; with `lines`, for a `stack`, one for each index."""
    first = parts[0]
    if lines:
        zeros = make.zeros(first.value, first.value.shape)
        yield from [zeros] * count
        return
    shape = shapes.with_dim(_with_dim(make, first, dim).shape, dim, count)
    assert shape is not None
    yield make.zeros(first.value, shape)


# --- Every n-th index.


def _every_nth(make: Maker, terms: Sequence[Op]) -> Joined:
    """Join n parts of every n-th index, as `stack((g, h), -1).flatten(-2)` for `x[..., 0::2]` and `x[..., 1::2]` of an even size.

    None for an unknown dim, or a size not known to be a multiple of n.
    """
    size, dim = _size(terms[0]), _dim(terms[0])
    if size is None or is_lead(size) or dim is None:
        return None
    starts = _starts(terms)
    if starts is None or starts.keys() != {*range(len(terms))}:
        return None
    if sizes.divided(size, len(terms)) is None:
        return None
    values = [starts[at] for at in range(len(terms))]
    # The new dim stands right behind that of the parts, from either end.
    inner = dim if dim < 0 else dim + 1
    stacked = _stacked(make, values, make.const(inner))
    # The new dim is joined to that of the parts; `flatten(-2)` ends at the last dim by default.
    is_last = dim == -1 or terms[0].shape.rank == dim + 1
    ends = (dim - 1, dim) if dim < 0 else (dim, dim + 1)
    flat = make.flatten(stacked, *map(make.const, ends[:1] if is_last else ends))
    return flat, terms


def _starts(terms: Sequence[Op]) -> Mapping[int, Op] | None:
    """Map the start of each term to its value, 1 for `x[..., 1::2]`, if there are n terms of every n-th index; None for other terms.

    If the starts are 0 to n - 1, the terms fill the tensor.
    """
    found: dict[int, Op] = {}
    for op in terms:
        if op.rule != "unsliced":
            return None
        value, _, start, end, step = op.args
        first = literal(start) or 0
        # To the end, in steps of n.
        if literal(end) is not None or literal(step) != len(terms):
            return None
        if type(first) is not int or first in found:
            return None
        found[first] = value
    return found


# --- Parts with each one's end as the next one's start.


def _chained(make: Maker, terms: Sequence[Op]) -> Joined:
    """Join slices, each ending at the start of the next one: `cat((g, h), 1)` for `x[:, :n]` and `x[:, n:]`, for any `n`.

    None if the chain does not lead from the start of the dim to its end.
    """
    program = make.program
    plain = [
        op for op in terms if op.rule == "unsliced" and literal(op.args[4]) is None
    ]
    # Where each slice starts; the chain begins with the one from the start, None.
    begins = {program.value_of(op.args[2]): op for op in plain}
    bound: Op | None = make.const(None)
    chain: list[Op] = []
    while bound is not None and bound in begins:
        op = begins.pop(bound)
        end = program.value_of(op.args[3])
        # `x[:n]` and `x[n:]` fit for any `n`; a slice between two bounds only if these are in order.
        if chain and literal(end) is not None and not _follows(program, bound, end):
            return None
        chain.append(op)
        bound = end if literal(end) is not None else None  # None: the end is reached
    if bound is not None or len(chain) < 2:
        return None
    return _joined(make, [op.args[0] for op in chain], chain[0].args[1]), chain


def _follows(program: Program, start: Op, end: Op) -> bool:
    """Return whether the bound `end` is certainly not before `start`, both counted from the start: the slice between is no overlap."""
    one, two = program.size_of(start), program.size_of(end)
    return sizes.is_never_negative(one) and sizes.is_never_negative(
        sizes.minus(two, one)
    )


# --- Parts without a common index.


def _disjoint(make: Maker, terms: Sequence[Op]) -> Joined:
    """Join parts without a common index by putting one into the other: `x[..., 0]` and `x[..., 1]` of an unknown size.

    So only one of them is put into zeros, and nothing is added. None if two parts may have an index in common: indices counted from
    both ends.
    """
    lines = [op for op in terms if _is_line(op)]
    starts = None if lines else _starts(terms)
    # `x[0::2]` and `x[1::2]` have no index in common, whatever the size is.
    if starts is not None and starts.keys() == {*range(len(terms))}:
        return _put(make, terms)
    indices = {literal(op.args[3]) for op in lines}  # of a line always a number
    if len(lines) < 2 or len(indices) < len(lines):
        return None
    # -1 and 2 are one index of a dim of size 3.
    if len({index >= 0 for index in indices}) > 1:  # type: ignore[operator]
        return None
    whole = lines[0]
    for op in lines[1:]:
        whole = make.program.shaped(make(op.rule, whole, *op.args[1:]), op.shape)
    return whole, lines


def _put(make: Maker, terms: Sequence[Op]) -> Joined:
    """Join terms of every n-th index: each other one is put as a slice into the first, which has zeros there.

    For a size that is not known to be a multiple of n.
    """
    whole = terms[0]
    for op in terms[1:]:
        value, dim, start, _, step = op.args
        none = make.const(None)
        first = start if literal(start) else none  # `x[0::2]` is `x[::2]`
        put = make.slice_scatter(whole, value, dim, first, none, step)
        whole = make.program.shaped(put, op.shape)
    return whole, terms


# --- Values scattered into zeros, and choices by one test, as terms of a sum.

JOINED = Registry()
SCATTERS = frozenset({"index_add", "index_put", "scatter_add"})


@JOINED.on("add")
def scattered_onto(make: Maker, a: Op, b: Op) -> Op | None:
    """Return `a.index_add(0, index, g)` for `a + zeros.index_add(0, index, g)`: one addend takes the scatter, no zeros are made.

    Two addends with the same dims moved are added first, so that this applies to the values inside.
    """
    moved = a.rule == b.rule == "movedim" and a.args[1:] == b.args[1:]
    if moved and a.args[0].shape == b.args[0].shape:
        total = make.add(a.args[0], b.args[0])
        return make.program.shaped(make.movedim(total, *a.args[1:]), a.shape)
    for into, op in ((a, b), (b, a)):
        is_into_zeros = op.rule in SCATTERS and op.args[0].rule == "zeros"
        if not is_into_zeros or (into.kind, into.shape) != (op.kind, op.shape):
            continue
        # A number 0 has no memory to scatter into.
        if into.rule == "cond" or may_be_zero(into) or make.opaque(op):
            continue
        if op.rule == "index_put" and literal(op.args[3]) is not True:
            continue  # it replaces values, and adds none
        # PyTorch scatters values of the tensor's dtype alone.
        if make.precision(into) == make.precision(op):
            added = make(op.rule, into, *op.args[1:])
            return make.program.shaped(added, op.shape)
    return None


def as_one_choice(make: Maker, total: Op) -> Op:
    """Return `g + a if test else g` for `g + (a if test else 0)`, so no zeros are added; the sum itself if that is impossible.

    All choices of 0 in it must have one test, the test of the result.
    """
    terms = list(_terms(make, total, False))
    if len(terms) < 2:
        return total
    tests = {op.test for op, _ in terms if _comes_to_zero(make, op)}
    # A smaller term is broadcast; alone in a branch it would keep its own shape.
    alike = all(op.shape == total.shape and op.kind == total.kind for op, _ in terms)
    if len(tests) != 1 or not alike:
        return total
    (test,) = tests
    body, orelse = (_branch_sum(make, terms, test, at) for at in (0, 1))
    if body is None or orelse is None or {body.shape, orelse.shape} != {total.shape}:
        return total
    return choose(make.program, test, body, orelse)


def sure_of_one(make: Maker, total: Op) -> Op:
    """Return `(a if s else 0) + (b if t else 0)` as a choice of sums, so each branch is visibly a tensor or the number 0.

    A number has no shape and no dtype, so other code has to know which it is. If a term is surely a tensor, so is the sum: it stays.
    """
    if _comes_to_zero(make, total):  # such a sum may be one of its branches
        return choose(
            make.program, total.test, *(sure_of_one(make, op) for op in total.args)
        )
    terms = list(_terms(make, total, False))
    if len(terms) < 2 or not all(may_be_zero(op) for op, _ in terms):
        return total
    test = next(op.test for op, _ in terms if op.rule == "cond")
    sums = (_branch_sum(make, terms, test, at) for at in (0, 1))
    zero = make.program.const(0)
    return choose(
        make.program,
        test,
        *(zero if op is None else sure_of_one(make, op) for op in sums),
    )


def _terms(make: Maker, op: Op, minus: bool) -> Iterator[tuple[Op, bool]]:
    """Yield the terms of a sum or difference, each with whether it is subtracted; `minus` if the sum itself is."""
    if op.rule in ("add", "sub") and not make.opaque(op):
        one, two = op.args
        yield from _terms(make, one, minus)
        yield from _terms(make, two, minus != (op.rule == "sub"))
    elif op.rule == "neg" and not make.opaque(op):
        yield from _terms(make, op.args[0], not minus)
    else:
        yield op, minus


def _comes_to_zero(make: Maker, op: Op) -> bool:
    """Return whether an op is a choice between a value and 0, without a name in the forward."""
    return op.rule == "cond" and may_be_zero(op) and not make.opaque(op)


def _branch_sum(
    make: Maker, terms: Iterable[tuple[Op, bool]], test: Op, at: int
) -> Op | None:
    """Return the sum of `terms` in branch `at` of a test, 0 if it holds, 1 if not; None if all of them are 0 there.

    Each term comes with whether it is subtracted.
    """
    total: Op | None = None
    for op, minus in terms:
        # A choice by another test stays a term in both branches.
        is_decided = _comes_to_zero(make, op) and op.test is test
        term = op.args[at] if is_decided else op
        if is_number(term, 0):
            continue
        if total is None:
            total = make.neg(term) if minus else term
        else:
            total = make("sub" if minus else "add", total, term)
    return total
