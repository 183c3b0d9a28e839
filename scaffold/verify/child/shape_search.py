"""Shape search: find shapes for undeclared inputs by running the forward.

A user who leaves out shapes in `--inputs` gets tests with inputs of one shape; a forward such as an attention refuses that. The proof
then asks here for shapes, the op is generated again with them, and proven. In: the module of checks (`checks`), whose forward refuses the
shapes of its tests. Out: `Shapes`: dims of each such input, `q[B, S, D]`, and conditions on them, `D % 2 == 0`; or how far the forward
came. Invariant: the forward was run with the proposed shapes, and with other sizes of every named dim, all of them different.

Words: of `checks`, OPERATOR is the op, FORWARD the same in plain PyTorch, OWN_FORWARD the user's text as written; a *slot* is one dim of
one input; *data* are inputs other than biases and weights; a *place* is an instruction of the forward with a PyTorch call that passed: the
more places, the further the forward came.

Two searches. `_runnable` seeks ranks, and sizes most of which are equal: candidates nearest to a first guess, in turn with those nearest
to the shapes with which the forward came furthest. `_Naming` then tells the dims apart: a name stands for the fewest dims whose size can
be changed together.
"""

import heapq
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count, product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scaffold.verify.child.declared_shapes import leading_position
from scaffold.verify.child.derivatives import as_tuple, is_inexact
from scaffold.verify.child.function_questions import OF_SHAPES
from scaffold.verify.child.refusals import raised, raised_at
from scaffold.verify.child.size_relations import RELATIONS, stated

RUNS = 3000  # of the forward, at most
MORE_RUNS = 300  # ... once it has accepted shapes that broadcast beyond its data
SECONDS = 6.0  # of CPU time, for either search, as a machine may be busy
RANKS = range(5)  # the numbers of dims tried
USUAL = 4  # the first size of every dim
SIZES = (4, 12, 2, 3, 8, 6)  # the sizes tried for all dims, or for one
LETTERS = (*"NDKMHWPQRSUVEGJLT", *(f"N{at}" for at in range(99)))
# Names of vectors, and of matrices whose rank is not that of the data.
VECTOR = re.compile(r"(.*_)?(b|bias|gamma|beta|scale)|weight")
WEIGHT = re.compile(r"(.*_)?(w|weight|table|emb|embedding)\d?|w_?[a-z]{1,2}\d?")
PARAMETER = re.compile(f"{VECTOR.pattern}|{WEIGHT.pattern}")
OF_MODULE = "<verified"  # the file of the forward's frames

Sizes = tuple[tuple[int, ...], ...]  # the shape of each input
Slot = tuple[int, int]  # an input and one of its dims
Dims = tuple[str, ...]


class Shapes(NamedTuple):
    """Dims of inputs by name, as for `--inputs`, and conditions on them, as for `--require`."""

    shapes: Mapping[str, str]
    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{name}[{dims}]" for name, dims in self.shapes.items())


class NoShapes(NamedTuple):
    """A failed search: the shapes tried, and the inputs it was for."""

    words: str
    tried: tuple[str, ...]  # lines for the user, the closest shapes among them
    undeclared: tuple[str, ...]  # names


def shapes_taken(
    checks: Any,
    declared: bool = True,
    *,
    seconds: float = SECONDS,
    source: str = OF_MODULE,
) -> Shapes | NoShapes | None:
    """Search for shapes of the undeclared inputs, and return them, or how far the forward came; None if all are declared.

    With `declared=False`, shapes of all inputs are searched for, to tell a user who declared wrong ones. `source` begins the file name of the
    forward's frames; `seconds` of CPU time are given to either search.
    """
    forward = _Forward(checks, declared, seconds, source)
    if not forward.undeclared:
        return None
    with warnings.catch_warnings():
        # PyTorch's warnings about broadcasting that was hardly meant count as refusals.
        warnings.filterwarnings("error", OF_SHAPES)
        shapes = _runnable(forward)
        if shapes is None:
            return _beside_declared(forward) or forward.nearest()
        forward.until = time.process_time() + seconds
        return _Naming(forward, shapes).found()


# --- Running the forward.


class _Refused(NamedTuple):
    """How far the forward came, and the error that stopped it."""

    places: int  # PyTorch calls passed
    words: str = ""  # the error
    line: str = ""  # of the formula


class _Passed(TorchFunctionMode):
    """A mode to record the places of PyTorch calls in the forward."""

    def __init__(self, until: float, source: str) -> None:
        super().__init__()
        self.until, self.places = until, set[tuple[Any, int]]()
        self.source = source

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a PyTorch function; if it raises nothing, add the instruction of the forward that called it to `places`.

        The number of places tells how far the forward came. Raise TimeoutError after `until`.
        """
        frame = sys._getframe(1)
        while frame.f_back and not frame.f_code.co_filename.startswith(self.source):
            frame = frame.f_back
        if func is torch.nn.functional.scaled_dot_product_attention:
            _want_values_of_keys(*args[1:3], **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self.places.add((frame.f_code, frame.f_lasti))
        if time.process_time() > self.until:
            raise TimeoutError
        return result


def _want_values_of_keys(key: Tensor, value: Tensor, **_: Any) -> None:
    """Raise RuntimeError for attention with unequal numbers of keys and values: on a CPU, PyTorch reads out of bounds."""
    one, two = key.shape[-2], value.shape[-2]
    if one != two:
        raise RuntimeError(f"attention has {one} keys, but {two} values")


class _Forward:
    """The forward, its tensors, and the inputs without shapes; it counts its runs, and keeps the furthest one."""

    def __init__(
        self, checks: Any, declared: bool, seconds: float, source: str
    ) -> None:
        """Collect the tensors among the inputs: `names`, and in their order first shapes to try, and dims (None if undeclared).

        `tensors` has the position of each among the inputs. `data` are undeclared inputs other than vectors and weights, as their names tell
        them: the search gives all of them one rank. A variadic input, `*tensors`, is none of these.
        """
        # The user's own text has the unpacking `B, T, D = x.shape` even if its names are unused.
        self.own, self.operator = checks.OWN_FORWARD, checks.OPERATOR
        self.function = self.own or checks.FORWARD or self.operator
        self.usual = list(checks.make())
        self.inputs = tuple(checks.NAMES)
        # Not strict: the last input may be variadic, `*tensors`, with any number of values.
        pairs = zip(self.inputs, self.usual, strict=False)
        self.tensors = {
            name: at
            for at, (name, value) in enumerate(pairs)
            if isinstance(value, Tensor) and not name.startswith("*")
        }
        self.names = (*self.tensors,)
        self.first = (*map(partial(self._guess, checks.INPUT_SHAPES), self.names),)
        self.dims = [
            _one_by_one(checks.INPUT_SHAPES.get(name) if declared else None, len(shape))
            for name, shape in zip(self.names, self.first, strict=True)
        ]
        # Kept even if `declared` is False: then only as names for the dims that are found (`_usual`).
        self.declared = [checks.INPUT_SHAPES.get(name) or () for name in self.names]
        self.undeclared = [at for at, dims in enumerate(self.dims) if dims is None]
        self.data = {
            at
            for at in self.undeclared
            if len(self.first[at]) > 1 and not WEIGHT.fullmatch(self.names[at])
        }
        self.runs, self.source, self.seconds = 0, source, seconds
        self.until = time.process_time() + seconds
        self.furthest: tuple[_Refused, Sizes] = (_Refused(-1), ())
        self.rank = 0  # of the largest result of the last call

    def _guess(self, declared: Mapping[str, Any], name: str) -> tuple[int, ...]:
        """Return the first shape to try for the input `name`: a vector or a matrix by its name, unless a rank is declared.

        Integers and bools begin as vectors, whatever their name.
        """
        value = self.usual[self.tensors[name]]
        dims = declared.get(name)
        if dims is None:
            # `b` is a bias, but beside `a` another operand.
            named = VECTOR.fullmatch(name) and not (name == "b" and "a" in declared)
            is_vector = named or not is_inexact(value)
            return (USUAL,) * (1 if is_vector else 2)
        sizes = _one_by_one(dims, value.ndim) or ()
        return tuple(dim if isinstance(dim, int) else USUAL for dim in sizes)

    def run(self, shapes: Sizes) -> _Refused | None:
        """Return why the forward refuses these shapes, and how far it came; None if it accepts them.

        A result without elements counts as a refusal: it proves nothing of the shapes.
        """
        self.runs += 1
        inputs = list(self.usual)
        for at, shape in zip(self.tensors.values(), shapes, strict=True):
            inputs[at] = _values(self.usual[at], shape)
        passed = _Passed(self.until, self.source)
        try:
            with torch.no_grad(), passed:
                results = as_tuple(self.function(*inputs))
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
            words, line = raised(error), raised_at(error)[1]
        else:
            words, line = "gives no tensor with elements", ""
            if all(isinstance(item, Tensor) and item.numel() for item in results):
                words = self._unpacked(inputs)
            if not words:
                self.rank = max(item.ndim for item in results)
                return None
        refused = _Refused(len(passed.places), words, line)
        # Of two that came as far the earlier one stays: it is nearer to the first guess.
        self.furthest = max(self.furthest, (refused, shapes), key=lambda one: one[0][0])
        return refused

    def _unpacked(self, inputs: Sequence[Any]) -> str:
        """Run the op's backward, and return its error if it is that of unpacking a shape, `B, T, D = x.shape`; "" if there is none.

        A generated forward that uses none of these names has no such line, and would accept any rank; the backward still has it. The
        user's own text has the line in its forward, so there no backward is needed.
        """
        if self.own:
            return ""
        given = [x.clone().requires_grad_() if _has_gradient(x) else x for x in inputs]
        try:
            results = as_tuple(self.operator(*given))
            torch.autograd.backward([x.real.sum() for x in results if x.requires_grad])
        except Exception as error:  # noqa: BLE001 (reported for the case)
            return raised(error) if "values to unpack" in str(error) else ""
        return ""

    def broadcasts_beyond_data(self, shapes: Sizes) -> bool:
        """Return whether the last result has more dims than any input but weights, as for `x[N, D] * weight[:, None, None]`."""
        data = [
            len(shape)
            for at, (name, shape) in enumerate(zip(self.names, shapes, strict=True))
            # A declared bias or weight is no data; an undeclared input may be data whatever its name is.
            if at in self.undeclared or not PARAMETER.fullmatch(name)
        ]
        return self.rank > max(data, default=0)

    @property
    def is_over(self) -> bool:
        return self.runs >= RUNS or time.process_time() > self.until

    def nearest(self) -> NoShapes:
        """Return the failure of the search: the shapes with which the forward came furthest, and its error there."""
        refused, shapes = self.furthest
        # Not strict: there are no shapes if time was over before the first run.
        named = [(name, [*map(str, shape)]) for name, shape in zip(self.names, shapes)]
        near = Shapes({name: ", ".join(sizes) for name, sizes in named})
        place = ": ".join(filter(None, (refused.line, refused.words)))
        tried = (
            f"tried: ranks 0 to {RANKS[-1]} and sizes up to {max(SIZES)}",
            f"closest: {near}, which fails at: {place}",
        )
        names = (*(self.names[at] for at in self.undeclared),)
        return NoShapes(f"accepts none of the {self.runs} shapes tried", tried, names)


def _one_by_one(dims: Sequence[Any] | None, rank: int) -> tuple[Any, ...] | None:
    """Return declared dims with `...` as one "" for each of its dims: `(..., D)` of rank 3 -> `("", "", D)`; None if undeclared."""
    if dims is None:
        return None
    at = leading_position((*dims,))
    if at is None:
        return (*dims,)
    return (*dims[:at], *[""] * (rank - len(dims) + 1), *dims[at + 1 :])


def _has_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and is_inexact(value)


def _values(usual: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of this shape, of the dtype of `usual`, with values to suit many forwards.

    Floats are in [0, 1), integers 0 and 1 as in the tests, masks all True.
    """
    if is_inexact(usual):
        return torch.rand(shape, dtype=usual.dtype)
    if usual.dtype == torch.bool:
        return torch.ones(shape, dtype=usual.dtype)
    numbers = torch.arange(torch.Size(shape).numel()).remainder(2)
    return numbers.reshape(shape).to(usual.dtype)


# --- Ranks.


def _runnable(forward: _Forward) -> Sizes | None:
    """Return shapes accepted by the forward, if possible without broadcasting beyond its data; None if time is over.

    A best-first search: candidates are changes of the ones tried, taken in turn from two queues, the cheapest, and those made of the shapes
    with which the forward came furthest.
    """
    accepted, last = None, RUNS
    # Heaps; a number makes equal costs comparable. `last`: how long to look for better shapes.
    likely, furthest = [(0.0, 0, forward.first)], [(0, 0.0, 0, forward.first)]
    seen, number = set[Sizes](), count(1)
    while likely and furthest and not forward.is_over and forward.runs < last:
        if len(seen) % 2:  # from each queue in turn
            *_, cost, _, shapes = heapq.heappop(furthest)
        else:
            cost, _, shapes = heapq.heappop(likely)
        if shapes in seen:
            continue
        seen.add(shapes)
        refused = forward.run(shapes)
        if refused is None and not forward.broadcasts_beyond_data(shapes):
            return shapes
        if refused is None and accepted is None:
            accepted, last = shapes, forward.runs + MORE_RUNS
        places = sys.maxsize if refused is None else refused.places
        for step, changed in _changes(shapes, forward):
            at = next(number)
            heapq.heappush(likely, (cost + step, at, changed))
            heapq.heappush(furthest, (-places, cost + step, at, changed))
    return accepted


def _changes(shapes: Sizes, forward: _Forward) -> Iterator[tuple[float, Sizes]]:
    """Yield changed shapes, each after its cost: the less likely a change, the higher.

    Changed are the commonest size, in all its dims; the shape of all data inputs, of all but the first undeclared input, or of one; one size.
    """
    sizes = [size for shape in shapes for size in shape if size > 1]
    usual = max({*sizes}, key=sizes.count, default=USUAL)
    alike = [slot for slot in _slots(shapes) if _size(shapes, slot) == usual]
    for size in SIZES:
        # With 2 in all dims a wrong factor may be right by chance, as n / 2 or n - 1 is 1.
        cost = 1.5 if size > 2 else 2.5
        yield cost, _with_sizes(shapes, dict.fromkeys(alike, size))
    # Shapes that broadcast with anything: a last resort.
    tiny: list[tuple[int, ...]] = [(1,), ()]
    of_ranks = [(usual,) * rank for rank in RANKS[1:]]
    small = [of_ranks[0], *tiny]  # a vector, or what broadcasts as a parameter does
    # Each pair: the inputs to change together, the shapes to give them.
    together = [
        (forward.data, of_ranks),
        ({*forward.undeclared[1:]}, small),
        *(({at}, [*small, *of_ranks[1:]]) for at in forward.undeclared),
    ]
    for inputs, candidates in together:
        for shape in candidates:
            pairs = enumerate(shapes)
            changed = tuple(shape if at in inputs else x for at, x in pairs)
            yield 2.5 if shape in tiny else 1.0, changed
    for slot in _slots(shapes):
        for size in (*SIZES, 1) if slot[0] in forward.undeclared else ():
            yield 2.0 if size > 1 else 4.0, _with_sizes(shapes, {slot: size})


def _slots(shapes: Sizes) -> list[Slot]:
    return [(at, axis) for at, shape in enumerate(shapes) for axis in range(len(shape))]


def _size(shapes: Sizes, slot: Slot) -> int:
    return shapes[slot[0]][slot[1]]


def _with_sizes(shapes: Sizes, sizes: Mapping[Slot, int]) -> Sizes:
    """Return the shapes with other sizes in some dims, each an (input, dim)."""
    changed = {at for at, _ in sizes}  # others stay shared: a search holds many
    return tuple(
        (
            tuple(sizes.get((at, axis), size) for axis, size in enumerate(shape))
            if at in changed
            else shape
        )
        for at, shape in enumerate(shapes)
    )


# Two choices of sizes for new names, by position.
FREE = ((5, 6, 10, 7), (3, 9, 11, 14))


def _beside_declared(forward: _Forward) -> Shapes | None:
    """Return shapes of the undeclared inputs, in names of declared dims and new ones; None if none are found.

    The last resort, for declared sizes that depend on each other, so that none can be changed alone. Declared inputs keep the tests'
    sizes, or these times an integer attribute, as a forward may require `dim % heads == 0`.
    """
    beside = _Beside(forward)
    # A budget of its own; afterwards all runs count again, as a failure tells their number.
    before, forward.runs = forward.runs, 0
    forward.until = time.process_time() + forward.seconds
    tried = (
        _together(beside.sizes, len(forward.undeclared)) if beside.sizes else iter(())
    )
    for dims, factor in ((dims, one) for dims in tried for one in beside.factors):
        if forward.is_over:
            break
        if beside.takes(dims, factor, beside.sizes):
            names = (forward.names[at] for at in forward.undeclared)
            shapes = dict(zip(names, map(", ".join, dims), strict=True))
            return Shapes(shapes, beside.conditions(dims, factor))
    forward.runs += before
    return None


class _Beside:
    """Runs of the forward beside inputs of declared shapes."""

    def __init__(self, forward: _Forward) -> None:
        """Collect the tests' shapes, the declared sizes among them by name, and the integer attributes by name (`factors`).

        Declared sizes are tried as they are, and multiplied by each factor: by 8 if there is `heads: int = 8`.
        """
        self.forward = forward
        self.usual = [tuple(forward.usual[at].shape) for at in forward.tensors.values()]
        # `dims` and `usual` have an item for each tensor. `one` is None for an undeclared input: it gives
        # no names. Else it has a dim for each size in `two` (`_one_by_one`).
        pairs = [zip(one or (), two) for one, two in zip(forward.dims, self.usual)]
        known = chain(*pairs)
        # A dim may also be a number, or "" for one of those that `...` stands for (`_one_by_one`).
        self.sizes = {dim: n for dim, n in known if isinstance(dim, str) and dim}
        # Not strict: the last input may be variadic, `*tensors`, with any number of values.
        values = zip(forward.inputs, forward.usual, strict=False)
        # The factor "" leaves sizes as they are.
        # By type, as True is an int for Python, but no number of heads.
        self.factors = {"": 1, **{one: n for one, n in values if type(n) is int}}

    def takes(self, dims: tuple[Dims, ...], factor: str, scaled: Iterable[str]) -> bool:
        """Return whether the forward accepts these dims of the undeclared inputs, for two choices of the sizes of new names.

        The declared sizes in `scaled` are multiplied by the attribute `factor`; "" stands for 1.
        """
        by = dict.fromkeys(scaled, self.factors[factor])
        sizes = {name: size * by.get(name, 1) for name, size in self.sizes.items()}
        every = []
        for free in FREE:
            # Every new name is among the first input's dims; declared ones keep their size.
            named = {**dict(zip(dims[0], free)), **sizes, "1": 1}
            shapes = [
                tuple(sizes.get(dim, size) for dim, size in zip(one or usual, usual))
                for one, usual in zip(self.forward.dims, self.usual)
            ]
            for at, own in zip(self.forward.undeclared, dims, strict=True):
                shapes[at] = tuple(named[dim] for dim in own)
            every.append((*shapes,))
        # `run` returns a refusal, or None.
        return not any(map(self.forward.run, every))

    def conditions(self, dims: tuple[Dims, ...], factor: str) -> tuple[str, ...]:
        """Return conditions `dim % heads == 0` on declared sizes that must be multiples of the attribute `factor` ("" if there is no such).

        Sizes are left out of these one at a time, as long as the forward accepts the dims all the same; so is a size that is a multiple of
        another one.
        """
        needed = list[str]() if self.factors[factor] == 1 else [*self.sizes]
        for name in self.sizes:
            fewer = [one for one in needed if one != name]
            # It is accepted though this size is no multiple: the condition need not name it.
            needed = fewer if self.takes(dims, factor, fewer) else needed
        sizes = {name: self.sizes[name] for name in needed}
        least = [
            name
            for name, size in sizes.items()
            # In the tests a size of 8 is twice one of 4: a condition on the smaller one is enough.
            if not any(size > one and size % one == 0 for one in sizes.values())
        ]
        return tuple(f"{name} % {factor} == 0" for name in least)


def _together(sizes: Mapping[str, int], count: int) -> Iterator[tuple[Dims, ...]]:
    """Yield dims of all undeclared inputs together, likely ones first; `count` is their number, `sizes` the declared names.

    Every other input has the dims of the first, one or two of these, or those of a mask that broadcasts with it, as (B, 1, 1, T).
    """
    for first in _near(sizes):
        some = [dims for rank in (1, 2) for dims in product(first, repeat=rank)]
        # Four dims of a mask over the first's: its first or 1, 1, 1 or any, any: ("B", "1", "1", "T").
        rows = product((first[0], "1"), ("1",), ("1", *first), first)
        for others in product((first, *some, *rows), repeat=count - 1):
            yield (first, *others)


def _near(sizes: Mapping[str, int]) -> list[Dims]:
    """Return dims for one input, the likeliest first: new names with one, none or two of them replaced by declared ones."""
    letters = [one for one in LETTERS if one not in sizes]
    plain = [(*letters[:rank],) for rank in RANKS[1:]]
    one = [new for dims in plain for new in _declaring(dims, sizes)]
    two = [new for dims in one for new in _declaring(dims, sizes)]
    two.sort(key=lambda dims: len({*dims}) < len(dims))  # repeated names come last
    return [*one, *plain, *dict.fromkeys(two)]


def _declaring(dims: Dims, sizes: Mapping[str, int]) -> Iterator[Dims]:
    """Yield the dims with a new name replaced by a declared one: `N, D` with `T` declared -> `N, T`, then `T, D`."""
    for at in reversed(range(len(dims))):
        if dims[at] not in sizes:
            yield from ((*dims[:at], name, *dims[at + 1 :]) for name in sizes)


# --- Names of dims.


class _Kind(NamedTuple):
    """The sizes allowed for a dim: any, at least `number`, or its multiples; and two to try."""

    tried: tuple[int, int]
    relation: str = ""  # "" for any, ">=" or "%"
    number: int = 0

    def allows(self, size: int) -> bool:
        return not self.relation or RELATIONS[self.relation](size, self.number)


def _kinds(size: int) -> Iterator[_Kind]:
    """Yield kinds a dim with this accepted size may be of: any size first, then at least this one, then multiples of 2, 3 or 4.

    If none of them is accepted, as of a larger factor, the dim becomes a number (`_Naming.found`).
    """
    # Two sizes are tried, neither of them the accepted one: that would show nothing.
    one, another, *_ = (by for by in (7, 2, 5) if by != size)
    yield _Kind((one, another))
    yield _Kind((size + 1, size + 3), ">=", size)
    for number in (2, 3, 4):
        # Only what the accepted size is a multiple of can be asked for.
        if size % number == 0:
            one, another, *_ = (x * number for x in (5, 3, 2) if x * number != size)
            yield _Kind((one, another), "%", number)


class _Group(NamedTuple):
    """Dims with the same name: their sizes change together."""

    slots: list[Slot]
    kind: _Kind  # the sizes allowed for all of them


class _Naming:
    """Naming of accepted shapes: find the dims of independent size."""

    def __init__(self, forward: _Forward, shapes: Sizes) -> None:
        """Begin with shapes accepted by the forward, no group of dims, and all dims left but those declared as numbers."""
        self.forward, self.shapes = forward, shapes
        self.groups = list[_Group]()
        self.left = [
            slot for slot in _slots(shapes) if type(self._dim(slot)) is not int
        ]

    def _dim(self, slot: Slot) -> Any:
        """Return the declared name or size of a dim; None if its input is undeclared."""
        dims = self.forward.dims[slot[0]]
        return dims[slot[1]] if dims else None

    def found(self) -> Shapes:
        """Return the dims and conditions of the undeclared inputs; a dim of only one accepted size becomes a number.

        Dims are grouped first, each group under one name: from few dims, then, for those left, from all dims of equal size.
        """
        # `most`: in the second round, a group begins with all dims of equal size.
        for most, slot in product((False, True), [*self.left]):
            for kind in _kinds(_size(self.shapes, slot)):
                group = self._group(slot, kind, most) if slot in self.left else None
                # A group may be accepted alone, and not beside others: dims may depend on each other.
                if group and self._go_together([*self.groups, group]):
                    self.groups.append(group)
                    self.left = [one for one in self.left if one not in group.slots]
        name_of, conditions = dict[Slot, str](), list[str]()
        names = self._names()
        for group in sorted(self.groups, key=lambda one: one.slots):
            said = [str(self._dim(slot)) for slot in group.slots if self._dim(slot)]
            usual = (one for one in self._usual(group) if one not in name_of.values())
            # The declared name of one of them, else a usual one, else a new letter.
            name = said[0] if said else next(usual, "") or next(names)
            name_of |= dict.fromkeys(group.slots, name)
            if group.kind.relation:
                other = self._bounding_dim(group) or str(group.kind.number)
                conditions.append(stated(name, group.kind.relation, other))
        texts = {
            slot: name_of.get(slot, str(_size(self.shapes, slot)))
            for slot in _slots(self.shapes)
        }
        dims = {
            self.forward.names[at]: ", ".join(
                text for slot, text in texts.items() if slot[0] == at
            )
            for at in self.forward.undeclared
        }
        return Shapes(dims, (*conditions,))

    def _usual(self, group: _Group) -> Iterator[str]:
        """Yield the names the user declared for these dims, for a search that leaves the declaration aside."""
        for at, axis in group.slots:
            dims = self.forward.declared[at]
            # The names fit only if the rank found is the declared one; `...` and numbers are no names.
            if len(dims) == len(self.shapes[at]) and str(dims[axis]).isidentifier():
                yield str(dims[axis])

    def _bounding_dim(self, group: _Group) -> str:
        """Return the declared dim that bounds these, as T in `S >= T`, instead of the number in the condition; "" if there is none.

        A search finds `S >= 4`, with T = 4 in the tests. T bounds S if, once the declared dim is 3 larger, the forward accepts its new
        size for these dims too, and refuses one less.
        """
        named = dict[str, list[Slot]]()
        for slot in _slots(self.shapes):
            if isinstance(said := self._dim(slot), str):
                named.setdefault(said, []).append(slot)
        # All dims with this bound: each may have to grow with the declared one.
        alike = [one.slots for one in self.groups if one.kind == group.kind]
        size = group.kind.number + 3
        for name, slots in named.items():
            sizes = dict.fromkeys([*slots, *chain(*alike)], size)
            less = sizes | dict.fromkeys(group.slots, size - 1)
            # Only a dim with the size in the condition can be the bound: T = 4 for `S >= 4`.
            bounds = _size(self.shapes, slots[0]) == group.kind.number
            if bounds and not self._run(sizes) and self._run(less):
                return name
        return ""

    def _run(self, sizes: Mapping[Slot, int]) -> _Refused | None:
        return self.forward.run(_with_sizes(self.shapes, sizes))

    def _names(self) -> Iterator[str]:
        """Yield names not used by an input or a declared dim."""
        declared = {str(dim) for dims in self.forward.declared for dim in dims}
        return (one for one in LETTERS if one not in {*self.forward.inputs} | declared)

    def _group(self, slot: Slot, kind: _Kind, most: bool) -> _Group | None:
        """Return a dim and the fewest others to change size with it, as one name; None if the forward refuses them all.

        `most`: start from all dims of its size, instead of adding one after the other. A least size is lowered as far as the forward
        accepts.
        """
        size = _size(self.shapes, slot)
        alike = [one for one in self.left if _size(self.shapes, one) == size]
        alike.remove(slot)
        slots = [slot, *alike] if most else self._grown(slot, alike, kind.tried[0])
        if not self._takes(slots, kind):
            return None
        for one in slots[1:]:
            fewer = [other for other in slots if other != one]
            slots = fewer if self._takes(fewer, kind) else slots
        if kind.relation == ">=":
            # Not down to 1: a size of 1 broadcasts, which proves nothing.
            while kind.number > 2 and not self._refused(slots, kind.number - 1):
                kind = kind._replace(number=kind.number - 1)
        return _Group(sorted(slots), kind)

    def _grown(self, slot: Slot, alike: Sequence[Slot], size: int) -> list[Slot]:
        """Return the dims to change to `size`: `slot`, and those of `alike` (dims of the same size) it drags along.

        A dim is added while the forward comes further with it before it raises: they are one dim with one name.
        """
        slots, reached = [slot], self._reached([slot], size)
        while reached < sys.maxsize:
            others = [one for one in alike if one not in slots]
            others.sort(key=lambda one: one[1] != slot[1])  # same position first
            several = [self._reached([*slots, one], size) for one in others]
            further = max(several, default=reached)
            if further <= reached:
                break
            slots, reached = [*slots, others[several.index(further)]], further
        return slots

    def _reached(self, slots: Sequence[Slot], size: int) -> int:
        """Return how many places the forward passes with these dims of this size; sys.maxsize if it accepts them."""
        refused = self._refused(slots, size)
        return sys.maxsize if refused is None else refused.places

    def _refused(self, slots: Sequence[Slot], size: int) -> _Refused | None:
        return self._run(dict.fromkeys(slots, size))

    def _takes(self, slots: Sequence[Slot], kind: _Kind) -> bool:
        return not any(self._refused(slots, size) for size in kind.tried)

    def _go_together(self, groups: Sequence[_Group]) -> bool:
        """Return whether the forward accepts another size for each group of dims: then each group gets a name of its own.

        It is asked with small sizes (2, 3, ...) and larger ones (7, 8, ...), as either may be accepted by accident.
        """
        for first in (2, 7):
            sizes = dict[Slot, int]()
            for group in groups:
                # Each group has a size of its own, or two groups could pass as one.
                free = (one for one in count(first) if one not in sizes.values())
                size = next(filter(group.kind.allows, free))
                sizes |= dict.fromkeys(group.slots, size)
            if self._run(sizes):  # a refusal
                return False
        return True
