"""Shapes of results by the `shape` of a table section: a word, sizes, or a call.

In: the arguments of a rule by parameter. Out: a shape, or None if unknown. Invariant: a returned shape is right in
every call that PyTorch accepts.

`application` asks `shape_said` for each op that it makes; a function here is behind one word (`SHAPES`) or call
(`CALLS`) of the table. Words: an op is one application of a primitive in the graph; `args` maps the parameters of a
rule to ops. A literal is written out in the formula, so it is known before the call; any other value is `UNKNOWN`. A
lead is the one run of dims of unknown number in a shape (`...`, `*batch`); dims behind it are counted from the end. A
size without a name is known by its origin, as a `Slice` of another. `said` is the table's text for a shape; sizes are
`given` or `asked` by a call, and `own` is the size that a dim had before it.
"""

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from scaffold.derive.graph import shapes, sizes
from scaffold.derive.graph.op import Op, Operation, Program, literal, tensors
from scaffold.derive.graph.shapes import SCALAR, Dim, Shape, UnnamedSize, is_lead
from scaffold.derive.graph.static_values import (
    UnsupportedError,
    is_sequence,
    may_be_none,
)
from scaffold.primitives.calls import facts_of_call

# --- Sizes without a name, by their origin: two of the same origin are equal.


@dataclass(frozen=True, slots=True, repr=False)
class Slice(UnnamedSize):
    """The length of `x[start:end:step]` in a dim of a size."""

    size: Dim
    start: Op
    end: Op
    step: Op


@dataclass(frozen=True, slots=True, repr=False)
class Rest(UnnamedSize):
    """The size for a -1 among sizes, for a tensor of a shape."""

    sizes: Op
    of: Shape | None


@dataclass(frozen=True, slots=True, repr=False)
class Resized(UnnamedSize):
    """A size changed by a call's other arguments: a scale, a kernel, the padding of an output.

    These may have a number for each dim, so the same sizes changed in different dims, `at`, are not equal.
    """

    size: Dim
    by: tuple[Op | Dim, ...]
    at: int


@dataclass(frozen=True, slots=True, repr=False)
class SizeAt(UnnamedSize):
    """The size of a dim of a tensor of unknown shape."""

    tensor: Op
    at: int


@dataclass(frozen=True, slots=True, repr=False)
class PartSize(UnnamedSize):
    """The size of one of several parts."""

    parts: Op
    position: int


# --- Equations of `torch.einsum`.


def letters_of(equation: str) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result: `"ij,jk->ik"` -> `(["ij", "jk"], "ik")`.

    Without an arrow, as in PyTorch, the result has the letters used once, in alphabetical order.
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if not arrow:
        plain = left.replace(".", "").replace(",", "")
        once = sorted(item for item in set(plain) if plain.count(item) == 1)
        result = "..." * ("..." in left) + "".join(once)
    return inputs, result


# --- Shapes with computed sizes: views, slices, padding, tensors made from sizes.


Args = Mapping[str, Op]


def size_left(dims: Sequence[Dim], given: Sequence[Dim]) -> Dim | None:
    """Return the size a view gives its `-1`: `dims` of the tensor are `(N, 6)`, `given` are the other sizes, `(2,)` -> `3*N`.

    None if a number of dims is unknown, or the quotient has no exact or simple form.
    """
    if any(map(is_lead, (*dims, *given))):
        return None
    exact = sizes.divided(sizes.multiplied(dims), sizes.multiplied(given))
    if exact is not None:
        return exact
    left, by = list(dims), list[Dim]()
    for size in given:  # `x.reshape(*x.shape[:-1], -1, 4)`
        if size in left:
            left.remove(size)
        else:
            by.append(size)
    # PyTorch refuses a remainder, and a -1 beside a 0.
    one = len(left) == len(by) == 1
    return sizes.quotient(left[0], by[0]) if one else None


def slice_size(program: Program, size: Dim, start: Op, end: Op, step: Op) -> Dim:
    """Return the length of `x[start:end:step]` along a dim of size `size`: a number, a difference, or else a `Slice`.

    `N, 1, None` -> `Slice(N, 1, None)`, as N may be 0; `8, 1, None` -> 7. `x[:n]` has length n only if n is surely
    not above N.
    """
    bounds = [literal(item) for item in (start, end, step)]
    plain = [item for item in bounds if item is None or type(item) is int]
    all_known = len(plain) == len(bounds)
    # PyTorch raises for a step of 0.
    if isinstance(size, int) and all_known and bounds[2] != 0:
        return len(range(size)[slice(*plain)])
    if bounds[2] in (None, 1):
        if all_known and (cut := _cut_off(bounds[0], bounds[1])):
            left, none = sizes.minus(size, cut), program.const(None)
            # If x may be too short: `x[1:]` and `x[:-1]` still have one and the same `Slice`.
            surely = _in_order(program, 0, left)
            return left if surely else Slice(size, program.const(cut), none, none)
        # `x[n:m]`, if 0 <= n <= m <= size surely holds
        first = _bound(program, start, 0)
        last = _bound(program, end, size)
        pairs = ((0, first), (first, last), (last, size))
        if all(_in_order(program, *pair) for pair in pairs):
            return sizes.minus(last, first)
    elif bounds[1] is None and all_known:
        # `x[1::2]`, of a size surely divisible by 2; `x[2::2]` is one shorter.
        stride, at = bounds[2], bounds[0] or 0
        if isinstance(stride, int) and isinstance(at, int) and 0 <= at < stride:
            part = sizes.divided(size, stride)
            if part is not None:
                return part
    return Slice(size, start, end, step)


def _cut_off(start: object, end: object) -> int:
    """Return the number of elements a slice always leaves out: 1 for `x[1:]` and `x[:-1]`, 2 for `x[1:-1]`.

    0 if the number depends on the size, as for `x[:3]` and `x[-1:]`.
    """
    before = 0 if start is None else start
    behind = 0 if end is None else end
    if not isinstance(before, int) or not isinstance(behind, int):
        return 0
    counted = before >= 0 and (behind < 0 or end is None)
    return before - behind if counted else 0


def _bound(program: Program, bound: Op, left_out: Dim) -> Dim:
    """Return a bound of a slice as a size; `left_out` is its value if the forward leaves it out, as in `x[:n]`."""
    return left_out if literal(bound) is None else program.size_of(bound)


def _in_order(program: Program, one: Dim, two: Dim) -> bool:
    """Return whether a size is certainly not larger than another, in every call, or by a condition of the user's (`R <= D`)."""
    excess, told = sizes.minus(two, one), program.nonnegative
    # `S <= D` follows from two of them, `S <= R` and `R <= D`.
    known = [sizes.added(pair) for n in range(3) for pair in combinations(told, n)]
    return any(sizes.is_never_negative(sizes.minus(excess, item)) for item in known)


def range_shape(program: Program, args: Sequence[Op]) -> Shape | None:
    """Return the shape of `torch.arange` with a step of 1: `(n)` and `(0, n)` -> `[n]`, `(1, n + 1)` -> `[n]`; None for others."""
    if len(args) == 3 and literal(args[2]) == 1:
        args = args[:2]
    if len(args) == 1:
        return Shape((program.size_of(args[0]),))
    if len(args) != 2 or type(start := literal(args[0])) is not int:
        return None
    if start == 0:
        return Shape((program.size_of(args[1]),))
    match program.operation(args[1]):
        case Operation("+", (size, more)) if literal(more) == start:
            return Shape((program.size_of(size),))
    return None


def _length(program: Program, args: Sequence[Op]) -> Shape:
    """Return the shape of a vector as long as the first argument says: `torch.randperm(n)`."""
    return Shape((program.size_of(args[0]),))


def _length_twice(program: Program, args: Sequence[Op]) -> Shape:
    """Return the shape of a matrix with the sizes of the first and the last argument: `torch.eye(n)`, `torch.eye(n, m)`."""
    return Shape((program.size_of(args[0]), program.size_of(args[-1])))


def _steps(program: Program, args: Sequence[Op]) -> Shape | None:
    """Return the shape of `torch.linspace(start, end, steps)`; None if not called with just these."""
    return Shape((program.size_of(args[2]),)) if len(args) == 3 else None


def _nested_numbers(program: Program, value: Op) -> Shape | None:
    """Return the shape of `torch.tensor(value)`: a scalar for a number, a vector for a list of numbers; None for others."""
    if value.rule == "list":
        inner = {_nested_numbers(program, item) for item in value.args}
        return Shape((len(value.args),)) if inner == {SCALAR} else None
    if value.rule == "static":
        name = value.expression
        is_number = name.kind == "name" and name.label in program.declared.numbers
        return SCALAR if is_number else None
    computed = value.is_python("binary") or value.is_python("unary")
    several = is_sequence(program, value)  # `[1] * n`
    return SCALAR if value.rule == "const" or computed and not several else None


def sizes_shape(program: Program, args: Sequence[Op]) -> Shape | None:
    """Return the shape given by sizes, `(2, 3)` or `((2, 3),)` or `(x.shape,)`, as `torch.zeros` takes them.

    None if one of them is not a Python value.
    """
    first = args[0]
    if first.rule == "shape":
        return first.asked
    given = first.args if first.rule == "list" else args
    if all(item.rule in ("const", "size", "static", "python") for item in given):
        return Shape(tuple(map(program.size_of, given)))
    return None


# For tensors made from Python values, by the words of `functions.toml`.
MADE: Mapping[str, Callable[[Program, Sequence[Op]], Shape | None]] = {
    "length": _length,
    "listed": lambda program, args: _nested_numbers(program, args[0]),
    "range": range_shape,
    "sizes": sizes_shape,
    "sizes_first": lambda program, args: sizes_shape(program, args[:1]),
    "length_twice": _length_twice,
    "steps": _steps,
}


def made_shape(program: Program, name: str, args: Sequence[Op]) -> Shape | None:
    """Return the shape of a tensor made from Python values alone, `torch.arange(n)`; `name` is the function. None if unknown.

    These functions have no section in the table of rules.
    """
    # Every word of `MADE` reads the first argument.
    words = (facts.shape for facts in facts_of_call(name) if args)
    return next((MADE[word](program, args) for word in words if word in MADE), None)


def new(program: Program, args: Args) -> Shape | None:
    """Return the shape of a new tensor of given sizes, `x.new_zeros(2, 3)`."""
    return sizes_shape(program, (args["size"],))


def compared(program: Program, args: Args) -> Shape | None:
    """Return the shape of a similarity or distance along one dim, by default the last: the broadcast shape without it."""
    both = shapes.broadcast(*(item.shape for item in tensors(args.values())))
    return _reduced_by(both, dims_of(args["dim"]) if "dim" in args else (-1,), args)


def together(program: Program, args: Args) -> Shape | None:
    """Return the broadcast shape of all tensors among the arguments."""
    return shapes.broadcast(*(item.shape for item in tensors(args.values())))


def padded(program: Program, args: Args) -> Shape | None:
    """Return the shape of `F.pad`: `x[N, D]`, pad `(1, 2)` -> `[N, D + 3]`.

    None if a dim or the padding is unknown. Pairs of the padding count dims from the last one.
    """
    dims, given = args["x"].shape.dims, args["pad"]
    numbers = literal(given)
    amounts: list[Dim] = []
    if isinstance(numbers, tuple) and all(type(item) is int for item in numbers):
        amounts = [*numbers]
    elif given.rule == "list":
        amounts = [_amount(program, item) for item in given.args]
    if dims is None or not amounts or len(amounts) // 2 > args["x"].shape.trailing:
        return None
    done = list(dims)
    for at in range(len(amounts) // 2):
        both = sizes.plus(amounts[2 * at], amounts[2 * at + 1])
        done[-1 - at] = sizes.plus(done[-1 - at], both)
    return Shape(tuple(done))


def _amount(program: Program, item: Op) -> Dim:
    """Return a number of elements, possibly negative, as a size: of padding, `-1` cuts one off."""
    value = literal(item)
    return value if type(value) is int else program.size_of(item)


def flattened(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.flatten(start_dim, end_dim)`: `x[N, C, D]`, 1, 2 -> `[N, C*D]`; None for an unknown rank."""
    dims, shape = args["x"].shape.dims, args["x"].shape
    ends = (dim_of(args[name]) for name in ("start_dim", "end_dim"))
    first, last = (shapes.position(shape, end) for end in ends)
    if dims is None or shape.lead is not None or first is None or last is None:
        return None
    size = sizes.multiplied(dims[first : last + 1])
    return Shape((*dims[:first], size, *dims[last + 1 :]))


def unflattened(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.unflatten(dim, sizes)`: `x[N, 6]`, 1, `(2, -1)` -> `[N, 2, 3]`; None if a size is unknown."""
    shape, parts, dim = args["x"].shape, args["sizes"], dim_of(args["dim"])
    size_of_dim, asked = shapes.size(shape, dim), sized(program, parts)
    if size_of_dim is None or asked is None or asked.dims is None:
        return None
    if any(map(_may_be_minus_one, asked.dims)):
        return None
    given = [dim for dim in asked.dims if not _is_rest(dim, parts)]
    # PyTorch refuses a remainder.
    rest = sizes.quotient(size_of_dim, sizes.multiplied(given))
    made = (rest if _is_rest(size, parts) else size for size in asked.dims)
    return shapes.with_dim(shape, dim, *made)


def with_diagonal(program: Program, args: Args) -> Shape | None:
    """Return the shape of `diag_embed`, with the last dim twice: `[N, D]` -> `[N, D, D]`; None for other diagonals."""
    dims = args["x"].shape.dims
    plain = literal(args["offset"]) == 0 and args["x"].shape.trailing > 0
    ends = {literal(args["dim1"]), literal(args["dim2"])} == {-2, -1}
    return Shape((*dims, dims[-1])) if dims and plain and ends else None


# --- Shapes of several tensors combined, or of one with itself: `stack`, `cat`, `einsum`, `diagonal`.


def stacked(program: Program, args: Args) -> Shape | None:
    """Return the shape of `torch.stack`: a new dim as long as the number of tensors; None for an unknown dim."""
    parts, dim = list(tensors(args.values())), dim_of(args["dim"])
    if not parts or not isinstance(dim, int):
        return None
    first, count = parts[0].shape, len(parts)
    known = shapes.with_dim(shapes.unsqueezed(first, dim), dim, count)
    return known or shapes.unknown(shapes.Stacked(first, dim, count))


def joined(program: Program, args: Args) -> Shape | None:
    """Return the shape of `torch.cat`: the sizes along `dim` are added.

    `x[:k]` and `x[k:]` are as long as `x` together. Dims of a part of unknown shape are taken from the others:
    PyTorch asks for equal ones. None if no part has a known shape, or the known ones differ in rank.
    """
    parts, dim = list(tensors(args.values())), dim_of(args["dim"])
    # The shapes known; `at` is the place of `dim` in them.
    known = [part.shape for part in parts if part.shape.dims is not None]
    at = shapes.position(known[0], dim) if known else None
    if at is None or len({len(shape.dims or ()) for shape in known}) > 1:
        return None
    several = [
        part.shape.dims[at] if part.shape.dims else SizeAt(part, at) for part in parts
    ]
    rejoined = _rejoined_size(*several) if len(several) == 2 else None
    size = sizes.added(several) if rejoined is None else rejoined
    return shapes.with_dim(known[0], dim, size)


def _rejoined_size(one: Dim, two: Dim) -> Dim | None:
    """Return the size made up by `x[:k]` and `x[k:]`, in either order: that of x. None for other slices."""
    if not (isinstance(one, Slice) and isinstance(two, Slice)):
        return None
    if one.size != two.size or {literal(one.step), literal(two.step)} != {None}:
        return None
    none = one.step  # omitted bounds are the same op
    in_order = one.start is none is two.end and one.end is two.start
    turned = two.start is none is one.end and two.end is one.start
    return one.size if in_order or turned or _are_complementary(one, two) else None


def _are_complementary(one: Slice, two: Slice) -> bool:
    """Return whether two slices of x are `x[k:]` and `x[-k:]`, together as long as x, so their `cat` has its size.

    `slice_size` gives `x[:-k]` the length of `x[k:]`, so `x[:-k]` and `x[-k:]` come here too.
    """
    counts = [literal(item.start) for item in (one, two) if literal(item.end) is None]
    match counts:
        case [int() as first, int() as second]:
            return first == -second
    return False


def einsum(program: Program, args: Args) -> Shape | None:
    """Return the shape of `einsum` by the size of each letter: "ij,jk->ik" of `[N, K]`, `[K, M]` -> `[N, M]`.

    None if the size of a letter of the result is unknown, or not surely the same in all operands.
    """
    equation, operands = literal(args["equation"]), args["operands"]
    if not isinstance(equation, str):
        return None
    inputs, result = letters_of(equation)
    sizes: dict[str, Dim | None] = {}
    leads: list[Shape] = []  # the dims of `...` in each operand
    # PyTorch refuses another number of operands than of terms in the equation.
    for letters, operand in zip(inputs, tensors((operands,)), strict=False):
        lead = _letter_sizes(letters, operand.shape, sizes)
        if lead is None:
            return None
        leads.append(lead)
    leading = shapes.broadcast(*leads)
    before, dots, after = result.partition("...")
    # Without `...` in the result, PyTorch sums over those dims: that is not followed here.
    if leading.dims is None or leading.dims and not dots:
        return None
    known = {letter: size for letter, size in sizes.items() if size is not None}
    # A letter that no operand has makes PyTorch raise.
    if not {*before, *after} <= known.keys():
        return None
    ends = [tuple(known[item] for item in part) for part in (before, after)]
    return Shape((*ends[0], *leading.dims, *ends[1]))


def _letter_sizes(
    letters: str, shape: Shape, sizes: dict[str, Dim | None]
) -> Shape | None:
    """Add the size of each letter of an operand to `sizes`; return the dims of its `...` as a shape, None if they are unknown.

    `letters` is the operand's part of the equation. The size is None if it is a 1 or differs from the size noted before: einsum
    broadcasts a 1, so it does not tell the size of the letter.
    """
    before, dots, after = letters.partition("...")
    count = len(before) + len(after)
    # Too few dims for the letters, or, without `...`, too many
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
        if shapes.is_lead(dim):
            return None
        if dim == 1 or sizes.setdefault(letter, dim) != dim:
            sizes[letter] = None
    return Shape(shape.dims[len(before) : end])


def diagonal(program: Program, args: Args) -> Shape | None:
    """Return the shape of the main diagonals of square matrices: `[N, D, D]` -> `[N, D]`; None for others."""
    shape, dims = args["x"].shape, args["x"].shape.dims
    if dims is None or shape.trailing < 2 or literal(args["offset"]) != 0:
        return None
    # One matrix has no other two dims; `x.diagonal()` has 0 and 1 as numbers.
    ends = {literal(args["dim1"]), literal(args["dim2"])} == {-2, -1}
    of_last = ends or shape.rank == 2
    # A diagonal is as long as the smaller size, which names do not tell.
    return Shape(dims[:-1]) if of_last and dims[-1] == dims[-2] else None


# --- Shapes of losses: a scalar, or one loss per element or example.


def loss_shape(program: Program, args: Mapping[str, Op]) -> Shape | None:
    """Return the shape of an elementwise loss: a scalar, or for `reduction="none"` the broadcast of its tensors.

    None if the reduction is unknown before the call, or the loss takes a `weight`: that may be None in a call.
    """
    reduction = literal(args["reduction"])
    if reduction in ("mean", "sum", "batchmean"):
        return SCALAR
    if reduction != "none" or "weight" in args:
        return None
    return shapes.broadcast(*(item.shape for item in tensors(args.values())))


def class_loss(program: Program, args: Mapping[str, Op]) -> Shape | None:
    """Return the shape of a loss of class scores: a scalar, or for `reduction="none"` one loss per example.

    The target holds class indices, or probabilities of the shape of the scores.
    """
    if literal(args["reduction"]) in ("mean", "sum"):
        return SCALAR
    x, target = _operands(args)
    rank = x.rank
    if rank is None or literal(args["reduction"]) != "none":
        return None
    if target.rank == rank:  # probabilities; the classes are dim 1, or the only dim
        return shapes.reduced(x, (min(1, rank - 1),), False)
    return target if target.rank == rank - 1 else None


# --- Shapes of sliding windows over the last dims: convolutions.


def convolved(program: Program, args: Args) -> Shape | None:
    """Return the shape of a convolution: `input[N, C, L]`, `weight[K, C, 3]`, padding 1 -> `[N, K, L]`.

    A size not known to stay equal is a `Resized`, by the kernel and the other `settings`. None for an unknown rank.
    """
    # With a batch: the `when` of the rules asks for it.
    dims, weight = args["input"].shape.dims, args["weight"].shape
    if dims is None or args["input"].shape.rank is None:
        return None
    kernel: Sequence[Dim] = weight.dims or ()
    if len(kernel) != len(dims) or weight.rank is None:  # not declared
        kernel = [SizeAt(args["weight"], at) for at in range(len(dims))]
    settings = tuple(args[name] for name in ("stride", "padding", "dilation"))
    counts = list[Dim]()
    for at in range(2, len(dims)):
        numbers = (_number(item, at - 2) for item in settings)
        unknown = Resized(dims[at], (kernel[at], *settings), at - 2)
        counts.append(_count(unknown, kernel[at], *numbers))
    return Shape((dims[0], kernel[0], *counts))


def _count(
    unknown: Resized,
    kernel: Dim | None,
    stride: int | None,
    padding: int | None = 0,
    dilation: int | None = 1,
) -> Dim:
    """Return the number of positions of a sliding kernel along a dim: the number, or the dim's own size if it stays equal.

    `unknown`, which also holds the dim's size, is returned if neither is certain.
    """
    if not isinstance(kernel, int) or not stride or padding is None or not dilation:
        return unknown
    size, change = unknown.size, 2 * padding - dilation * (kernel - 1) - 1
    if isinstance(size, int):
        return (size + change) // stride + 1
    # `(size - 1) // 1 + 1`: padding makes up for what the kernel takes away.
    return size if stride == 1 and change == -1 else unknown


def _number(value: Op, at: int) -> int | None:
    """Return one dim's number of an argument as `stride=(2, 1)`, or the number given for all dims; None if unknown.

    `at` is the dim's place among those that the kernel slides over.
    """
    given = literal(value)
    if isinstance(given, tuple):
        # Also for an `at` counted from the end; a tuple of one number is for all dims.
        given = given[at % len(given)] if given else None
    return given if type(given) is int else None


# --- The table's words for shapes.


Infer = Callable[[Program, Args], Shape | None]


def dims_of(dim: Op | None) -> shapes.Axes | None:
    """Return the dims named by a `dim` argument; None for all dims, an absent argument or None.

    A dim known only at run time is one `UnwrittenAxis`, which may stand for several.
    """
    if dim is None or (value := literal(dim)) is None:
        return None
    if isinstance(value, int):
        return (value,)
    if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
        return value
    return (shapes.UnwrittenAxis(dim),)


def dim_of(dim: Op) -> shapes.Axis:
    """Return the dim named by an argument; an `UnwrittenAxis` if its number is unknown before the call."""
    value = literal(dim)
    return value if isinstance(value, int) else shapes.UnwrittenAxis(dim)


def _transposed(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.transpose(dim0, dim1)`; None if a dim is unknown before the call."""
    # A team's function with this shape may have more parameters behind the dims.
    one, two, *_ = (dim_of(item) for name, item in args.items() if name != "x")
    if not isinstance(one, int) or not isinstance(two, int):
        return None
    return shapes.transposed(args["x"].shape, one, two)


def _swapped(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.mT`; a vector or a scalar keeps its shape, as for `x.t()`."""
    x = args["x"].shape
    return x if x.rank in (0, 1) else shapes.transposed(x, -2, -1)


def _reversed(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.T`, with all dims in reverse order; None if the rank is unknown."""
    x = args["x"].shape
    return None if x.dims is None or x.rank is None else Shape(x.dims[::-1])


def _permuted(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.permute(dims)`; None if a dim is unknown before the call."""
    dims = literal(args["dims"])
    if not isinstance(dims, tuple) or not all(isinstance(dim, int) for dim in dims):
        return None
    return shapes.permuted(args["x"].shape, dims)


def _moved(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.movedim(source, destination)`: the other dims keep their order. None if a dim or the rank is unknown."""
    shape, rank = args["x"].shape, args["x"].shape.rank
    source = dims_of(args["source"]) or ()
    destination = dims_of(args["destination"]) or ()
    numbers = [dim for dim in (*source, *destination) if isinstance(dim, int)]
    # Each source has a destination, and all are known.
    if rank is None or not numbers or len(numbers) != 2 * len(source):
        return None
    if any(not -rank <= dim < rank for dim in numbers):
        return None
    places = [dim % rank for dim in numbers]
    target = dict(zip(places[len(source) :], places[: len(source)], strict=True))
    others = iter(dim for dim in range(rank) if dim not in target.values())
    return shapes.permuted(
        shape, [target[at] if at in target else next(others) for at in range(rank)]
    )


def _squeezed(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.squeeze(dim)`, for one dim or several; None without dims, as only the call tells sizes of 1.

    Dims are removed one by one, in an order which leaves the numbers of the remaining ones valid.
    """
    dims = dims_of(args["dim"]) if "dim" in args else None
    if not dims:
        return None
    shape, rank = args["x"].shape, args["x"].shape.rank
    numbers = [dim for dim in dims if isinstance(dim, int)]
    if rank and numbers and min(numbers) < 0 <= max(numbers):  # from both ends
        numbers = [dim % rank for dim in numbers]
    # From the left the last dim goes first, from the right the one furthest from the end.
    for dim in sorted(numbers, reverse=numbers[0] >= 0) if numbers else dims:
        shape = shapes.squeezed(shape, dim)
    return shape


def sized(program: Program, shape: Op, of: Shape | None = None) -> Shape | None:
    """Return the shape requested by an op for sizes; None if their number is unknown, as with `*sizes`.

    A `-1` becomes a `Rest`: the size left for it in a tensor of the shape `of`.
    """
    if shape.rule == "shape":
        return shape.asked
    if shape.rule != "list" or any(dim.rule == "starred" for dim in shape.args):
        return None
    rest = Rest(shape, of)
    return Shape(
        tuple(rest if literal(n) == -1 else program.size_of(n) for n in shape.args)
    )


def _pairwise(program: Program, args: Args) -> Shape | None:
    """Return the shape of `torch.cdist`: `x[B, N, D]`, `y[B, M, D]` -> `[B, N, M]`; None if batches may differ."""
    x, y = (shape.dims for shape in _operands(args))
    if x is None or y is None or min(len(x), len(y)) < 2 or x[:-2] != y[:-2]:
        return None
    return Shape((*x[:-1], y[-2]))


def _sizes(args: Args) -> Op:
    """Return the sizes requested of a view, under any parameter name: the table's is `shape`, `sizes` or `size`."""
    return next(args[name] for name in ("shape", "sizes", "size") if name in args)


def _reshaped(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.reshape(sizes)`; a `-1` becomes the size left over if it can be computed.

    None if a requested size may be -1 at run time, as `n - 1`: then that one is the size left over.
    """
    x, sizes = args["x"].shape, _sizes(args)
    shape = sized(program, sizes, x)
    # The sizes of `x.reshape(y.shape)` are no list, and none is -1.
    if shape is None or shape.dims is None or sizes.rule != "list":
        return shape
    given = [program.size_of(item) for item in sizes.args if literal(item) != -1]
    if any(_may_be_minus_one(size) for size in given):
        return None
    rest = None if x.dims is None else size_left(x.dims, given)
    if rest is None:
        return shape
    return Shape(tuple(rest if _is_rest(dim, sizes) else dim for dim in shape.dims))


def _is_rest(dim: Dim, asked: Op) -> bool:
    """Return whether a size is the -1 among these requested sizes (`asked`), not of another view."""
    return isinstance(dim, Rest) and dim.sizes is asked


def _may_be_minus_one(size: Dim) -> bool:
    """Return whether a requested size may be -1 at run time, for PyTorch to infer: `n - 1` with `n == 0`."""
    # `()` is the number in a sum: the -1 of `n - 1`.
    return not isinstance(size, int) and sizes.terms_of(size).get(()) == -1


def _expanded(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.expand(sizes)`; a `-1` keeps the size of x there.

    None if it stands for a dim of x which cannot be counted from the end. `left` dims of the result are in front of
    those of x that can.
    """
    whole = sized(program, _sizes(args))
    if whole is None or whole.dims is None or _sizes(args).rule != "list":
        return whole
    dims, left = args["x"].shape.dims or (), len(whole.dims) - args["x"].shape.trailing
    kept = [at for at, dim in enumerate(_sizes(args).args) if literal(dim) == -1]
    if any(at < left for at in kept):
        return None
    done = list(whole.dims)
    for at in kept:
        done[at] = dims[at - len(done)]  # counted from the end, as the dims align
    return Shape(tuple(done))


def _operands(args: Mapping[str, Op]) -> tuple[Shape, Shape]:
    """Return the shapes of the first two tensors; raise UnsupportedError if there are fewer, as a number in the place of one."""
    found = [item.shape for item in tensors(args.values())]
    if len(found) < 2:
        raise UnsupportedError("an argument that is not a tensor, where one is needed")
    return found[0], found[1]


def _matmul(program: Program, args: Args) -> Shape | None:
    """Return the shape of a matrix product; if the dims do not tell it, one identified by the two shapes."""
    left, right = _operands(args)
    found = shapes.multiplied(left, right)
    return found or shapes.unknown(shapes.MatrixProduct(left, right))


def _vector(program: Program, args: Args) -> Shape | None:
    """Return the shape of `torch.mv`, of a matrix and a vector."""
    x, y = _operands(args)
    return shapes.multiplied(x, y) or shapes.unknown(shapes.ProductWithVector(x, y))


def _attention(program: Program, args: Args) -> Shape | None:
    """Return the shape of `F.scaled_dot_product_attention`: of `(query @ key.mT) @ value`."""
    key = shapes.transposed(args["key"].shape, -2, -1)
    scores = shapes.multiplied(args["query"].shape, key)
    return None if scores is None else shapes.multiplied(scores, args["value"].shape)


def _linear(program: Program, args: Args) -> Shape | None:
    """Return the shape of `F.linear`: of `x @ weight.mT`."""
    weight = shapes.transposed(args["weight"].shape, -2, -1)
    x = args.get("x") or args["input"]
    return shapes.multiplied(x.shape, weight)


def _solved(program: Program, args: Args) -> Shape | None:
    """Return the shape of a linear system's solution, equal to the right side's; None if batches may broadcast."""
    left, right = _operands(args)
    # One matrix has no batches.
    if left.rank == 2 and right.rank in (1, 2):
        return right
    if shapes.same_rank(left, right) and left.dims and right.dims:
        same = left.dims[:-2] == right.dims[:-2]
        return right if same else None
    return None


def _indexed(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.index_select(dim, index)`, with the dim as long as the index; None if either is unknown."""
    x, index = args["x"].shape, args["index"].shape
    if index.dims is None or index.rank != 1:
        return None
    return shapes.with_dim(x, dim_of(args["dim"]), *index.dims)


def _along(program: Program, args: Args) -> Shape | None:
    """Return the shape of `take_along_dim`: `dim` is as long as in the index, the other dims are broadcast.

    Without a `dim` both tensors are flattened; None then, unless both are vectors.
    """
    x, index = args["x"].shape, args["indices"].shape
    if literal(args["dim"]) is None:
        return index if x.rank == index.rank == 1 else None
    dim = dim_of(args["dim"])
    # With a 1 along `dim`, what the two broadcast to does not depend on it.
    like, size = shapes.with_dim(x, dim, 1), shapes.size(index, dim)
    others = shapes.with_dim(index, dim, 1)
    if like is None or others is None or size is None or x.rank != index.rank:
        return None
    return shapes.with_dim(shapes.broadcast(like, others), dim, size)


def _like_operand(program: Program, args: Args) -> Shape | None:
    """Return the main operand's shape, for an op with a result of that shape."""
    x = first_tensor(args)
    return None if x is None else x.shape


def _reduced(program: Program, args: Args) -> Shape | None:
    """Return the shape of a reduction of the main operand over its `dim` argument."""
    x = first_tensor(args)
    return None if x is None else _reduced_by(x.shape, dims_of(args.get("dim")), args)


def first_tensor(args: Args) -> Op | None:
    """Return the main operand of a primitive: `x`, `input`, or the first tensor."""
    return args.get("x") or args.get("input") or next(tensors(args.values()), None)


def _reduced_by(shape: Shape, dims: shapes.Axes | None, args: Args) -> Shape | None:
    """Return the shape after a reduction over some dims, None for all; `args` may have a `keepdim`. None if its value is unknown."""
    keepdim = literal(args["keepdim"]) if "keepdim" in args else False
    return shapes.reduced(shape, dims, keepdim) if isinstance(keepdim, bool) else None


def _unfolded(program: Program, args: Args) -> Shape | None:
    """Return the shape of `x.unfold(dimension, size, step)`: `x[N]` -> `[number of windows, size]`; None for an unknown dim."""
    x, dim = args["x"].shape, dim_of(args["dimension"])
    window, whole = (args["size"], args["step"]), shapes.size(x, dim)
    if whole is None:
        return None
    count = _count(Resized(whole, window, 0), *(_number(item, 0) for item in window))
    windows = shapes.with_dim(x, dim, count)
    assert windows is not None and windows.dims is not None
    return Shape((*windows.dims, program.size_of(args["size"])))


def _transform(last: Callable[[Dim, bool], Dim]) -> Infer:
    """Return a shape rule for a Fourier transform: `last(size, is_given)` maps the length of its last dim.

    `is_given` says whether the call asks for that length; otherwise it is the operand's.
    """

    def shape(program: Program, args: Args) -> Shape | None:
        """Return the shape of a Fourier transform over the dims in `dim`, of the length `n` if it is given; None if one is unknown.

        None for given lengths `s`: the rules for these have a `value`, of transforms in one dim each.
        """
        x, dims = args["x"].shape, dims_of(args["dim"])
        asked = program.value_of(args["n"] if "n" in args else args["s"])
        is_given = literal(asked) is not None
        if is_given and ("s" in args or may_be_none(program, asked)):
            return None
        if dims is None:
            dims = tuple(range(x.rank or 0))
        places = [at for dim in dims if (at := shapes.position(x, dim)) is not None]
        if x.dims is None or not places or len(places) < len(dims):
            return None
        # A real transform halves the last dim (`rfft`), or doubles it (`irfft`).
        size = program.size_of(asked) if is_given else x.dims[places[-1]]
        found = list(x.dims)
        found[places[-1]] = last(size, is_given)
        return Shape(tuple(found))

    return shape


def _half(size: Dim, given: bool) -> Dim:
    """Return the number of frequencies `rfft` returns for a real signal's length: `N // 2 + 1`, `given` by the call or not."""
    return sizes.plus(sizes.quotient(size, 2), 1)


def _twice(size: Dim, given: bool) -> Dim:
    """Return the length of the real signal `irfft` returns for a number of frequencies, unless the call asks for a length."""
    return size if given else sizes.times(2, sizes.minus(size, 1))


# The table's words for shapes; `shape_said` also reads tuples and calls.
SHAPES: dict[str, Infer] = {
    "along": _along,
    "attention": _attention,
    "broadcast": together,
    "class_loss": class_loss,
    "compared": compared,
    "convolved": convolved,
    "diagonal": diagonal,
    "einsum": einsum,
    "expanded": _expanded,
    "first": _like_operand,
    "flattened": flattened,
    "half_spectrum": _transform(_half),
    "indexed": _indexed,
    "joined": joined,
    "linear": _linear,
    "loss": loss_shape,
    "padded": padded,
    "pairs": _pairwise,
    "moved": _moved,
    "permuted": _permuted,
    "product": _matmul,
    "product_with_vector": _vector,
    "reduced": _reduced,
    "reshaped": _reshaped,
    "reversed": _reversed,
    "signal": _transform(_twice),
    "sizes": new,
    "solved": _solved,
    "spectrum": _transform(lambda size, given: size),
    "squeezed": _squeezed,
    "stacked": stacked,
    "swapped": _swapped,
    "transposed": _transposed,
    "unknown": lambda program, args: None,
    "unflattened": unflattened,
    "unsqueezed": lambda _, of: shapes.unsqueezed(of["x"].shape, dim_of(of["dim"])),
    "with_diagonal": with_diagonal,
    "without_matrix": lambda _, args: shapes.reduced(args["x"].shape, (-2, -1), False),
    "unfolded": _unfolded,
}


# --- Shapes given by the table as expressions.


@cache
def _tree(text: str) -> ast.expr:
    """Return the parsed shape expression of a table section, each once."""
    return ast.parse(text, mode="eval").body


def shape_said(program: Program, said: str, args: Args) -> Shape | None:
    """Return the shape of a result by the `shape` of its table section; None if unknown.

    `said` is a parameter, whose shape the result has, a word of `SHAPES`, sizes as `"(*x[:-1], n)"`, or a call of
    `CALLS`.
    """
    if said in args:
        return args[said].shape
    if said in SHAPES:
        return SHAPES[said](program, args)
    match _tree(said):
        case ast.Tuple(parts):
            return _stated_sizes(program, parts, args)
        case ast.Call(ast.Name(word), [ast.Name(x), *rest]):
            given = (
                args[item.id] if isinstance(item, ast.Name) else ast.literal_eval(item)
                for item in rest
            )
            return CALLS[word](program, args[x].shape, *given)
    return None


def _stated_sizes(
    program: Program, parts: Sequence[ast.expr], args: Args
) -> Shape | None:
    """Return the shape of sizes as in `(*x[:-1], y[-1], n, 2)`, the table's text; None if one is unknown.

    A shape holds at most one run of dims of unknown number.
    """
    dims: list[Dim] = []
    for part in parts:
        found = _stated_dims(program, part, args)
        if found is None:
            return None
        dims += found
    return Shape(tuple(dims)) if sum(map(is_lead, dims)) < 2 else None


def _stated_dims(program: Program, part: ast.expr, args: Args) -> Sequence[Dim] | None:
    """Return the dims for a part of a shape in the rule table: `n`, `*x`, `x[0]`; None if unknown.

    A parameter that is None or negative is no size.
    """
    match part:
        case ast.Constant(int(size)):
            return (size,)
        case ast.Name(name):
            known = literal(args[name])
            no_size = known is None or isinstance(known, int) and known < 0
            return None if no_size else (program.size_of(args[name]),)
        case ast.Starred(ast.Name(name)):
            return args[name].shape.dims
        case ast.Starred(ast.Subscript(ast.Name(name), ast.Slice() as cut)):
            return _cut(args[name].shape, cut)
        case ast.Subscript(ast.Name(name), index):
            known = shapes.size(args[name].shape, ast.literal_eval(index))
            return None if known is None else (known,)
    return None


def _cut(shape: Shape, cut: ast.Slice) -> Sequence[Dim] | None:
    """Return the dims of a slice of a shape, as `x[:-2]` in the table; None if a bound's place among the known dims is unknown."""
    bounds = [
        None if end is None else ast.literal_eval(end) for end in (cut.lower, cut.upper)
    ]
    placed = [None if end is None else _end(shape, end) for end in bounds]
    if shape.dims is None or [item is None for item in placed] != [
        item is None for item in bounds
    ]:
        return None
    return shape.dims[placed[0] : placed[1]]


def _end(shape: Shape, end: int) -> int | None:
    """Return the index in `shape.dims` of a slice's bound, for `x.shape[1:-1]` as sizes.

    None if unknown dims stand between: a bound from the left must stand before dims of unknown number, one from the
    right behind.
    """
    if shape.dims is None:
        return None
    if end < 0:
        return len(shape.dims) + end if -end <= shape.trailing else None
    before = len(shape.dims) if shape.lead is None else shape.lead
    return end if end <= before else None


def _resized(program: Program, x: Shape, dim: Op, n: Op) -> Shape | None:
    """Return the shape with the size of `dim` replaced by `n`, as of `x.narrow(dim, start, n)`; a None for `n` keeps it."""
    if literal(n) is None:
        return x
    return shapes.with_dim(x, dim_of(dim), program.size_of(n))


def _windows(program: Program, x: Shape, count: int, *given: Op) -> Shape | None:
    """Return the shape of pooling over the last `count` dims, each as long as the number of window positions.

    `given` are the kernel, stride, padding, dilation and `ceil_mode` of the call. None if one is unknown, or
    `ceil_mode` may be true.
    """
    # An `UNKNOWN` `ceil_mode` counts as true, as any object does.
    if x.dims is None or x.trailing < count or len(given) > 4 and literal(given[4]):
        return None
    counts: list[Dim] = []
    for at in range(-count, 0):
        numbers = [_number(item, at) for item in given[:4]]
        if len(given) < 2 or literal(given[1]) is None:  # the stride is the kernel
            numbers[1:2] = numbers[:1]
        if None in numbers:
            return None
        counts.append(_count(Resized(x.dims[at], given, at), *numbers))
    return Shape((*x.dims[:-count], *counts))


def _resampled(
    program: Program, x: Shape, count: int, size: Op, scale: Op | None = None
) -> Shape | None:
    """Return the shape with the last `count` dims of a requested `size`, or scaled by `scale`; None if a size is unknown.

    For `F.interpolate` and adaptive pooling.
    """
    if x.dims is None or x.trailing < count:
        return None
    found: list[Dim] = []
    for at in range(-count, 0):
        one = _given_size(program, x.dims[at], size, scale, at)
        if one is None:
            return None
        found.append(one)
    return Shape((*x.dims[:-count], *found))


def _given_size(
    program: Program, own: Dim, size: Op, scale: Op | None, at: int
) -> Dim | None:
    """Return the new size of the dim `at`, counted from the end; `own` is its old one.

    A None among requested sizes keeps the old size; a size or scale unknown before the call gives a `Resized`.
    """
    # `y.shape` of another tensor; dim `at` must stand behind its leading dims.
    if size.rule == "shape":
        dims = size.asked.dims
        return dims[at] if dims is not None and size.asked.trailing >= -at else None
    if size.rule == "list" and size.args:
        one = size.args[at % len(size.args)]  # a single one is for all dims
        return own if literal(one) is None else program.size_of(one)
    known = literal(size)  # one size for all dims, or a tuple
    if isinstance(known, tuple) and known:
        known = known[at % len(known)]
        if not known:
            return own
    if isinstance(known, int):
        return known
    # `known` is None if no size is given, and `UNKNOWN` if it is known only in the call.
    if scale is None or known is not None:
        return Resized(own, (size,), at)
    factor = _number(scale, at)
    if factor is not None:
        return sizes.times(own, factor)
    return Resized(own, (scale,), at)


def _conv_transposed(
    program: Program, x: Shape, count: int, weight: Op, *rest: Op
) -> Shape | None:
    """Return the shape of a transposed convolution over `count` dims: batch, channels, and `Resized` spatial dims.

    `rest` are its other arguments, with `groups` as the last but one. None for an unknown rank. The channels are
    known without groups alone.
    """
    rank = x.rank
    if x.dims is None or rank not in (count + 1, count + 2):  # the batch may be missing
        return None
    groups = rest[-2]
    channels: Dim = Resized(x.dims[-count - 1], (weight, groups), 1)
    # With groups, the result has `groups` times as many channels.
    if weight.shape.rank == count + 2 and weight.shape.dims and literal(groups) == 1:
        channels = weight.shape.dims[1]
    by = (weight, *rest)
    spread = (Resized(x.dims[at], by, at) for at in range(-count, 0))
    return Shape((*x.dims[: -count - 1], channels, *spread))


# Words of the table's calls, each of a tensor's shape, numbers and arguments.
CALLS: dict[str, Callable[..., Shape | None]] = {
    "resampled": _resampled,
    "resized": _resized,
    "spread": _conv_transposed,
    "windows": _windows,
}


def is_shape(said: str, parameters: Collection[str]) -> bool:
    """Return whether the text `said` is a valid `shape` of a table section: a parameter, a word, sizes, or a call over `parameters`.

    Asked when a table is read, of the user's own rules too.
    """
    if said in SHAPES or said in parameters:
        return True
    size = r"\*?(\w+)(?:\[[-:\d]*\])?"
    call = rf"(?:{'|'.join(CALLS)})?(\((?:{size}(?:, {size})*,?)?\))"
    found = re.fullmatch(call, said)
    names = re.findall(r"[A-Za-z_]\w*", found[1]) if found else ()
    return found is not None and {*names} <= {*parameters}
