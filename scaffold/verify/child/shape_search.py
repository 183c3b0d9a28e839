"""Shapes that the forward takes, of inputs of which nobody declared any, tried on it.

In: the module of checks, whose forward refuses the one shape that the tests give to all. Out: `Shapes`: dims for each such input,
`q[B, S, D]`, and conditions on them, `D % 2 == 0`. Invariant: the forward was called with what is proposed, and with other sizes
for every dim that has a name; two dims have one name only where the forward refused different sizes.

It is a best-first search. At first every dim has a size of its own, so that a size that PyTorch complains of tells whose dim it is. What
the forward did before it refused is how good shapes are; what is tried next follows from the tensors that it could not combine.
"""

import ast
import heapq
import inspect
import keyword
import linecache
import re
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain, combinations, islice, product, starmap
from math import gcd, prod
from operator import itemgetter
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scaffold.verify.child.accepted_shapes import expressions
from scaffold.verify.child.told_ranks import STACKED, Ranks, Told, told_ranks

RUNS = 4000  # of the forward, at most
LARGEST = 6  # ranks that are tried
SECONDS = 8.0  # of this process's time, as a machine may be busy
DESCRIBED = 4.0  # more, in which free sizes are told from others
# Sizes, first those that a forward can divide; of many dims small ones, as an einsum may make a tensor of them all.
POOL = (8, 12, 6, 18, 10, 16, 14, 9, 7, 11, 24, 13, 15, 20, 17, *range(31, 64))
SMALL = (4, 6, 3, 8, 5, 10, 7, 9, 12, 11, 14, 13, 15, 16, 18, 20, 17, *range(31, 64))
MANY = 8  # dims
# What a dim may have to be; what is 1 broadcasts.
NUMBERS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 1)
# What it is changed to, to see whether it is free.
OTHERS = (*range(2, 13), 14, 16, 18, 20, 24)
NAMES = tuple("NDKMHWPQRSUVEGJLT")
SQUARE = 3.0  # how unlikely it is that two dims of one input are equal
SQUARE_WEIGHT = 1.5  # ... of a parameter: `x + x @ w`
RARE = 4.0  # a change that is less likely waits for all others
BRANCHES = 70  # changes of one state
FURTHER = 400  # runs, once shapes are found that the user would have to declare
ELEMENTS = 500_000  # of a tensor that the forward makes: more take too long
# What PyTorch warns of where a forward was not meant to take such shapes.
OF_SHAPES = (
    r"Using a target size|The use of `x.T` on tensors|Tensor\.m?[TH] is deprecated on"
)
STILL = 10  # changes in a row that do not get any further: an einsum names many dims
OF_MODULE = "<verified"  # where the forward's frames are
# Names of inputs by which their rank is guessed at first; it may change.
VECTORS = frozenset(
    {"bias", "b", "gamma", "beta", "weight", "scale", "timestep", "timesteps"}
)
MATRICES = frozenset({"weight", "w", "table", "emb", "embedding", "kernel"})
# `wq`, `wk`, `wv`: most often of one shape, and not `wo`.
ALIKE = re.compile(r"w_?[a-ce-np-z]|w_?\w_gate")
NORM = re.compile(r"(?:norm|ln)\d?_(?:w|b|weight|bias|scale)$|^lambda_")  # vectors, too
MASK = re.compile(r"mask|bias")
OF_WEIGHT = re.compile(r"w[qkvofgihzrudb]{1,3}")  # `wq`, `w_q`: weights
PAIRED = re.compile(r"cos(?:ine)?|sin(?:e)?")
NUMBERLIKE = frozenset({"temperature", "temp", "tau"})
# What parameters of a call have, by their positions: a letter for each dim, equal ones for equal dims.
PARAMETERS = {
    "linear": {1: "oi", 2: "o"},
    "conv1d": {1: "o  ", 2: "o", 0: "   "},
    "conv2d": {1: "o   ", 2: "o", 0: "    "},
    "conv3d": {1: "o    ", 2: "o", 0: "     "},
    "conv_transpose1d": {1: "   ", 2: " ", 0: "   "},
    "conv_transpose2d": {1: "    ", 2: " ", 0: "    "},
    "grid_sample": {0: "n   ", 1: "n  2"},
    "layer_norm": {2: "i", 3: "i"},
    "group_norm": {2: "i", 3: "i"},
    "batch_norm": {1: "i", 2: "i", 3: "i", 4: "i"},
    "instance_norm": {1: "i", 2: "i", 3: "i", 4: "i"},
    "rms_norm": {2: "i"},
    "embedding": {1: "  "},
    "bmm": {0: "   ", 1: "   "},
    "mm": {0: "  ", 1: "  "},
}
# What PyTorch and Python say of a rank, rather than of a size.
OF_RANK = re.compile(
    r"unpack|but self is \dD|tuple index|too many indices|ordering of dimensions|\dD|subscripts|Dimension|expected .*dim|has no dimensions|at least \d+ dim|number of dim|number of sizes"
)

# Sizes that a convolution wants equal.
CHANNELS = re.compile(
    r"to have (\d+) channels, but got (\d+)|at least (\d+) at dimension 0, but got weight of size \[(\d+)"
)

NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.]*[A-Za-z])|(?<=\dx)\d+|\d+(?=x\d)")
NO_BROADCAST = re.compile(r"Sizes of tensors must match except|mat1 and mat2")
PRODUCT = re.compile(
    r"(?:shape '|Provided sizes )\[([-\d, ]+)\]'? .*?\D(\d+)\)?(?: in the input|$)"
)
OF_SIZE = re.compile(r"to have size \d|of size equal to")
TOO_SMALL = re.compile(r"should be less than|can't be greater than|is too small")
PARTS = " in parts"
UNPACKED = re.compile(r"to unpack \(expected (\d+)")
COUNTED = re.compile(r"(?:dimension|dim|operand|number|#) ?#?\d+")
DIVIDED = re.compile(r"divide axis of length (\d+) in chunks of (\d+)")
LARGE = 256  # sizes that are tried
Dims = tuple[int, ...]  # of an input: which dim it is, not how large
Size = tuple[int, ...]


class Found(NamedTuple):
    """The dims of inputs by their names, as `--inputs` has them, and conditions as `--require` has them."""

    dims: dict[str, str]
    conditions: tuple[str, ...] = ()
    refused: str = ""  # where none were found, what is said of these, the nearest


class _State(NamedTuple):
    """Dims of the undeclared inputs, and the size of each dim."""

    shapes: tuple[Dims, ...]
    sizes: tuple[tuple[int, int], ...]
    fitted: frozenset[int] = frozenset()  # dims whose size follows from something
    ranked: frozenset[int] = frozenset()  # inputs of which something told the rank

    def size_of(self) -> dict[int, int]:
        """The sizes of the dims that are there."""
        used = {dim for dims in self.shapes for dim in dims}
        return {dim: size for dim, size in self.sizes if dim in used}


_Change = tuple[float, Callable[[], _State]]  # how unlikely it is; most are never made


class _Refused(NamedTuple):
    """How far the forward came, and what stopped it."""

    words: str
    places: int
    operands: tuple[Size, ...]
    of_rank: bool = False  # rather than of a size
    # The inputs that what stopped it may be of.
    reached_by: frozenset[int] = frozenset()
    unequal: tuple[tuple[int, int], ...] = ()  # sizes that an equation wants equal
    line: str = ""  # that raised


class _Waiting(NamedTuple):
    """A state that was not tried yet."""

    reached: int  # how far the forward came before it was changed
    cost: float
    still: int  # changes in a row that did not get any further
    unlike: float  # what the text tells against it
    made: Callable[[], _State]
    words: str = ""  # that were raised before it was changed

    def later(self, step: float, state: _State, unlike: float) -> "_Waiting":
        """The state once it is made, which is less likely than it was thought to be."""
        far = self.reached if step < RARE else 0
        return _Waiting(
            far, self.cost + step, self.still, unlike, lambda: state, self.words
        )


class _Queue:
    """What is to be tried, in turn what comes of the furthest and what is likely of all."""

    def __init__(self) -> None:
        self.furthest = list[tuple[int, float, int, _Waiting]]()
        self.likely = list[tuple[float, int, _Waiting]]()
        self.taken = set[int]()
        self.count = 0

    def __bool__(self) -> bool:
        return len(self.taken) < self.count

    def add(self, item: _Waiting) -> None:
        self.count += 1
        far = (-item.reached, item.cost, self.count, item)
        heapq.heappush(self.furthest, far)
        heapq.heappush(self.likely, (item.cost, self.count, item))

    def add_changes(
        self, changes: Iterable[_Change], of: _Waiting, refused: _Refused
    ) -> None:
        """What is tried instead of a state that was refused; nothing where many changes did not get any further."""
        still = of.still + 1 if refused.places <= of.reached and of.cost else 0
        if still > STILL:
            return
        for step, change in sorted(changes, key=itemgetter(0))[:BRANCHES]:
            far = 0 if step > RARE else refused.places
            words = NUMBER.sub("", refused.words)
            self.add(_Waiting(far, of.cost + step, still, of.unlike, change, words))

    def next(self) -> _Waiting:
        while True:
            if len(self.taken) % 3 and self.furthest:
                *_, number, item = heapq.heappop(self.furthest)
            else:
                *_, number, item = heapq.heappop(self.likely)
            if number not in self.taken:
                self.taken.add(number)
                return item


class _Passed(TorchFunctionMode):
    """Notes from which places of the forward PyTorch was called, and the shapes of what it could not combine."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self.until = until
        self.places = set[tuple[Any, int]]()
        self.operands: tuple[Size, ...] = ()
        self.unequal: tuple[tuple[int, int], ...] = ()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        frame = sys._getframe(1)
        while frame.f_back and not frame.f_code.co_filename.startswith(OF_MODULE):
            frame = frame.f_back
        try:
            if func is torch.nn.functional.scaled_dot_product_attention:
                _want_values_of_keys(*args[1:3], **(kwargs or {}))
            found = func(*args, **(kwargs or {}))
        except Exception:
            self.operands = tuple(_tensor_sizes([*args, *(kwargs or {}).values()]))
            if func is torch.einsum and args:
                self.unequal = (*_unequal(str(args[0]), self.operands),)
            raise
        self.places.add((frame.f_code, frame.f_lasti))
        large = isinstance(found, Tensor) and found.numel() > ELEMENTS
        if large or time.process_time() > self.until:
            raise TimeoutError
        return found


def _want_values_of_keys(key: Tensor, value: Tensor, **_: Any) -> None:
    """A value for each key, else what PyTorch reads on a CPU lies outside of the tensors: it does not look."""
    one, two = key.shape[-2], value.shape[-2]
    if one != two:
        raise RuntimeError(f"attention has {one} keys, but {two} values")


def _unequal(equation: str, operands: Sequence[Size]) -> Iterator[tuple[int, int]]:
    """The sizes that one letter of an `einsum` stands for."""
    seen: dict[str, int] = {}
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    for term, shape in zip(terms, operands, strict=False):
        if len(term) == len(shape):
            for letter, size in zip(term, shape, strict=True):
                if seen.setdefault(letter, size) != size:
                    yield seen[letter], size


def _tensor_sizes(values: Sequence[Any]) -> Iterator[Size]:
    for value in values:
        if isinstance(value, Tensor):
            yield tuple(value.shape)
        elif isinstance(value, list | tuple):
            yield from _tensor_sizes(value)


def shapes_taken(checks: Any) -> Found | None:
    """Shapes of the undeclared inputs that the forward takes; where a few seconds do not find them those with which it came furthest, None where \
there are none."""
    search = _Search(checks)
    if not search.names:
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("error", OF_SHAPES)
        state = search.found()
        if state is None:
            return search.nearest()
        search.until = time.process_time() + DESCRIBED
        return _Described(search, state).found()


class _Search:
    """Runs the forward with shapes."""

    def __init__(self, checks: Any) -> None:
        # The user's own text has the unpacking `B, T, D = x.shape` also where nothing reads it.
        self.function = checks.OWN_FORWARD or checks.FORWARD or checks.OPERATOR
        self.usual = list(checks.make())
        self.positions = [
            position
            for position, name in enumerate(checks.NAMES)
            if checks.INPUT_SHAPES.get(name, ()) is None
            and isinstance(self.usual[position], Tensor)
        ]
        self.every = tuple(checks.NAMES)
        self.names = [checks.NAMES[position] for position in self.positions]
        self.plain = {name: _is_plain(name, self.names) for name in self.names}
        self.declared = {
            dim for dims in checks.INPUT_SHAPES.values() for dim in dims or ()
        }
        self.attributes = {
            name: value
            for name, value in zip(checks.NAMES, self.usual, strict=False)
            if type(value) is int and value > 1
        }
        written = getattr(checks, "own_forward", None)
        self.written = written or checks.TESTS.surrogate or checks.TESTS.reference
        self.body = _body(self.function, self.every)
        self.text = _body(self.written, self.every)
        self.told, self.likely, self.least = self._told(checks)
        self.optional = {
            name
            for name, item in inspect.signature(self.function).parameters.items()
            if item.default is None
        }
        inner = (ast.walk(item) for item in self.text.functions.values())
        every = chain(self.text.nodes, *inner)
        self.squeezes = any(getattr(node, "attr", "") == "squeeze" for node in every)
        self.parameters = {
            at for at, name in enumerate(self.names) if self._is_weight(name)
        }
        self.runs = 0
        self.refused: list[tuple[_Refused, _State]] = []
        self.fixed = frozenset[int]()  # dims whose sizes the text tells
        self.until = time.process_time() + SECONDS

    def _is_weight(self, name: str) -> bool:
        words = self.told.get(name, ())
        return not self.plain[name] or any(word[:2] in ("o ", "i ") for word in words)

    def _told(self, checks: Any) -> Ranks:
        """What the text says of the ranks of the inputs."""
        rank_of: dict[str, int | None] = {
            name: value.ndim if isinstance(value, Tensor) else 0
            for name, value in zip(self.every, self.usual, strict=False)
        }
        rank_of |= dict.fromkeys(self.names)
        text = self.text
        ranks = {own: rank_of.get(name, 0) for own, name in text.inputs.items()}
        pairs = zip(self.names, self.positions, strict=True)
        whole = {one for one, at in pairs if not _is_float(self.usual[at])}
        positions = {own for own, name in text.inputs.items() if name in whole}
        found = told_ranks(text.body, ranks, positions, text.functions, _told_by)
        told, likely, least = map(text.of_inputs, found)
        for name, words in text.of_inputs(_documented(text.body, text.inputs)).items():
            if name in self.names and len(words) >= least.get(name, 0):
                likely[name] = words
                before = told.get(name, words)
                if len(before) == len(words) and not any(before):
                    told[name] = words
        for name in filter(
            PAIRED.fullmatch, self.names
        ):  # for tokens, or for positions
            likely.pop(name, None)
        for name in whole:  # as many as an index needs
            likely.setdefault(name, ("",) * max(1, least.get(name, 0)))
        return Ranks(told, likely, least)

    def run(
        self, shapes: Sequence[Dims], size_of: Mapping[int, int]
    ) -> _Refused | None:
        """What keeps the forward from taking these shapes; None where it takes them. When time is up nothing is taken any more."""
        self.runs += 1
        if time.process_time() > self.until:
            return _Refused("", 0, ())
        inputs = list(self.usual)
        for position, dims in zip(self.positions, shapes, strict=True):
            size = [size_of[dim] for dim in dims]
            inputs[position] = _values(self.usual[position], size)
        mode = _Passed(self.until)
        try:
            with torch.no_grad(), mode:
                found = self.function(*inputs)
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
            line, held = _in_statement(error)
            words = str(error)
            operands = mode.operands or (*_tensor_sizes([*held.values()]),)
            of_rank = bool(OF_RANK.search(words)) and not OF_SIZE.search(words)
            if "unpack" in words:
                of_rank = ".shape" in line or ".size()" in line
                words += PARTS * ("chunk(" in line or "split(" in line)
            told = re.search(r"for operand (\d+) and", words)
            if told and int(told[1]) < len(operands):
                operands = (operands[int(told[1])],)
            reached_by = self._reaching(error, operands)
            unequal = mode.unequal
            if channels := CHANNELS.search(words):
                one, two = filter(None, channels.groups())
                unequal, of_rank = ((int(one), int(two)),), False
            places = len(mode.places)
            further = (places, operands, of_rank, reached_by, unequal, line.strip())
            return _Refused(words, *further)
        several = found if isinstance(found, tuple) else (found,)
        if all(isinstance(item, Tensor) for item in several):
            return None
        return _Refused("no tensor", 0, ())

    def _reaching(self, error: Exception, operands: Sequence[Size]) -> frozenset[int]:
        """The undeclared inputs of which the statement that raised computes what it could not combine; all where its text does not tell."""
        places = [
            at
            for at in _walked(error)
            if at.tb_frame.f_code.co_name == self.body.name
            and at.tb_frame.f_code.co_filename.startswith(OF_MODULE)
        ]
        names = set[str]()
        if places:
            line, held = places[0].tb_lineno, places[0].tb_frame.f_locals
            names = _names_before(self.body.statements, line, _others(held, operands))
        own = {self.every[position] for position in self.positions}
        given = self.body.inputs
        reached = {given[name] for name in names & given.keys()} & own
        numbers = enumerate(self.names)
        return frozenset(at for at, name in numbers if not reached or name in reached)

    def found(self) -> _State | None:
        """The first state that the forward takes, of those without two equal dims of one input if there is one."""
        floating = [self.usual[at].is_floating_point() for at in self.positions]
        first = _begin(self.names, floating, {**self.likely, **self.told}, self.least)
        self.fixed = first.fitted
        waiting = _Queue()
        waiting.add(_Waiting(0, 0.0, 0, 0, lambda: first))
        squares, seen = list[_State](), set[Any]()
        most = RUNS
        while waiting and self.runs < most and time.process_time() < self.until:
            item = waiting.next()
            state = item.made()
            form = _form(state)
            if form in seen:
                continue
            unlike = self._unlike(state)
            if unlike > item.unlike:  # which is not known before it is made
                step = unlike - item.unlike
                waiting.add(item.later(step, state, unlike))
                continue
            seen.add(form)
            refused = self.run(state.shapes, state.size_of())
            if refused is not None:
                self.refused.append((refused, state))
                words = NUMBER.sub("", refused.words)
                further = refused.places > item.reached or words != item.words
                changes = self.changes(state, refused, further)
                waiting.add_changes(changes, item, refused)
            elif self._is_wanted(state, squares, first):
                return state
            elif any(map(_is_square, state.shapes)):  # which is for the user to say
                most = most if squares else 2 * self.runs + FURTHER
                squares.append(state)
        return self._broadcasting(squares[0]) if squares else None

    def nearest(self) -> Found | None:
        """The shapes with which the forward came furthest, and what it raised."""
        told = [one for one in self.refused if one[0].words]
        if not told:
            return None
        refused, state = max(told, key=lambda one: one[0].places)
        size_of = state.size_of()
        letters = (name for name in chain(NAMES, "ABCFIOXYZ") if name not in self.every)
        name_of = {dim: next(letters, str(size_of[dim])) for dim in size_of}
        fixed = {dim: str(size_of[dim]) for dim in state.fitted & size_of.keys()}
        dims = {
            name: ", ".join({**name_of, **fixed}[dim] for dim in own)
            for name, own in zip(self.names, state.shapes, strict=True)
        }
        words = refused.words.removesuffix(PARTS).splitlines()[0]
        place = ": ".join(filter(None, (refused.line, words)))
        near = ", ".join(f"{name}[{own}]" for name, own in dims.items())
        return Found(dims, (), f"'{near}' came furthest, to: {place}")

    def _is_wanted(
        self, state: _State, squares: Sequence[_State], first: _State
    ) -> bool:
        """Whether the tests may have shapes: no two dims of an input are equal, or only by accident."""
        if not any(map(_is_square, state.shapes)):
            return not squares or _is_instead(state, squares[0], first)
        few = len(squares) < 3  # it takes many runs
        return few and not any(map(_is_square, _Described(self, state).shapes))

    def _broadcasting(self, state: _State) -> _State:
        """A number, where a parameter that has two equal dims may be one; of two equal dims of a mask the size 1, which it has in a mask of all rows."""
        for at, name in enumerate(self.names):
            dims = state.shapes[at]
            if _is_square(dims) and name not in self.told and not MASK.search(name):
                several = [
                    (*state.shapes[:at], fewer, *state.shapes[at + 1 :])
                    for fewer in (dims[-1:], ())
                ]
                size_of = state.size_of()
                if self.run(several[1], size_of) is None:
                    vector = self.least.get(name, 0) > 0
                    vector = vector and self.run(several[0], size_of) is None
                    state = state._replace(shapes=several[0 if vector else 1])
                    continue
            is_mask = MASK.search(name) or name in self.optional
            again = [dim for dim in {*dims} if dims.count(dim) > 1 and is_mask]
            if again:
                new, size_of = _fresh(state, 1)
                last = {
                    dim: max(i for i, one in enumerate(dims) if one == dim)
                    for dim in again
                }
                ones = tuple(
                    new[0] if last.get(dim, i) != i else dim
                    for i, dim in enumerate(dims)
                )
                shapes = (*state.shapes[:at], ones, *state.shapes[at + 1 :])
                sizes = size_of | {new[0]: 1}
                if self.run(shapes, sizes) is None:
                    fitted = state.fitted | {new[0]}
                    state = _State(shapes, (*sizes.items(),), fitted, state.ranked)
        return state

    def _unlike(self, state: _State) -> float:
        """How unlikely the ranks are, and the sizes, of inputs of which the text tells others."""
        found, size_of = 0.0, state.size_of()
        for name, dims in zip(self.names, state.shapes, strict=True):
            told = self.told.get(name)
            if told is not None:
                sizes = dict(zip(told, map(size_of.get, dims), strict=False))
                wrong = any(
                    word.isdecimal() and int(word) != size
                    for word, size in sizes.items()
                )
                found += 3.0 * (len(told) != len(dims) or wrong)
            elif name in self.likely:
                found += 1.5 * (len(self.likely[name]) != len(dims))
            found += 3.0 * (len(dims) < self.least.get(name, 0))
        return found

    def changes(
        self, state: _State, refused: _Refused, further: bool
    ) -> Iterator[_Change]:
        """What to try instead, each with how unlikely it is; `further`: the forward has not come as far before."""
        numbers = [
            int(text) for text in re.findall(r"(?<![a-wyzA-Z_])\d+", refused.words)
        ]
        of_rank = refused.of_rank
        if refused.words.endswith(PARTS):
            yield from self._solved(state, refused)
            yield from self._of_rank(state, refused, [], 0.8)
            return
        if further:
            yield from self._solved(state, refused)
        if of_rank and self.squeezes:
            for at in sorted(refused.reached_by):
                dims = state.shapes[at]
                if at in self.parameters and len(dims) > 1:
                    for dim in dims:
                        yield 1.0, partial(_alone_of_size, state, at, dim, 1)
        yield from self._flattened(state, refused)
        uneven = len({*map(len, refused.operands)}) > 1
        uneven = uneven or "invalid for input of size" in refused.words
        far = 0 if of_rank else 0.8 if uneven else 2
        yield from self._of_rank(state, refused, numbers, far)
        yield from self._alike(state, refused, 1 if of_rank else 0)
        yield from self._agreeing(state, refused, numbers, 3 if of_rank else 0)
        yield from self._sized(state, refused, numbers, 4 if of_rank else 2)

    def _solved(self, state: _State, refused: _Refused) -> Iterator[_Change]:
        """A size by which two numbers that differ would be equal, where what they are of each dim is seen by changing it."""
        said = _numbers(refused)
        yield from self._divided(state, refused)
        parts = UNPACKED.search(refused.words)
        if parts and refused.words.endswith(PARTS):  # `(x @ w).chunk(6, -1)`
            size_of = state.size_of()
            own = {dim for at in refused.reached_by for dim in state.shapes[at]}
            for dim, one in product(own - self.fixed, size_of):
                size = int(parts[1]) * size_of[one]
                places = sum(dim in dims for dims in state.shapes)
                if dim != one and size <= LARGE:
                    far = 0.2 * places + 0.01 * one
                    yield far, partial(_of_size, state, dim, size)
            return
        if refused.of_rank or not 1 < len(said) < 24:
            return
        rates = self._rates(state, refused, said)
        if TOO_SMALL.search(refused.words):
            for dim, times in product(rates, (2, 4)):
                yield 0, partial(_of_size, state, dim, times * max(said))
        least = 1 if NO_BROADCAST.search(refused.words) else 2
        for cost, one, two in _to_be_equal(refused, said):
            pair = (one, two)
            yield from self._meeting(state, pair, said, rates, cost, least)

    def _rates(
        self, state: _State, refused: _Refused, said: Sequence[int]
    ) -> dict[int, list[Fraction]]:
        """By how much each of the numbers grows with each dim, of those that do not keep the forward from coming as far."""
        size_of = state.size_of()
        found: dict[int, list[Fraction]] = {}
        near = {dim for at in refused.reached_by for dim in state.shapes[at]}
        for dim in [*size_of]:
            for other in (2 * size_of[dim], size_of[dim] + 1) if dim in near else ():
                again = self.run(state.shapes, size_of | {dim: other})
                if again is None or not _is_alike(again, refused):
                    continue
                grown = zip(_numbers(again), said, strict=True)
                more = other - size_of[dim]
                found[dim] = [Fraction(new - old, more) for new, old in grown]
                break
        return {dim: rates for dim, rates in found.items() if any(rates)}

    def _meeting(
        self,
        state: _State,
        pair: tuple[int, int],
        said: Sequence[int],
        rates: Mapping[int, Sequence[Fraction]],
        cost: float,
        least: int,
    ) -> Iterator[_Change]:
        """Two dims as one where either number is that of a dim; else another size for one dim."""
        size_of = state.size_of()
        one, two = pair
        plain = [
            [dim for dim in rates if rates[dim][at] and size_of[dim] == said[at]]
            for at in pair
        ]
        for left, right in product(*plain):
            if left != right and not {left, right} & self.fixed:
                square = self._square(state, left, right)
                yield cost - 0.9 + square, partial(_united, state, left, right)
                for at, dims in enumerate(state.shapes) if square else ():
                    for this, that in ((left, right), (right, left)):
                        if this in dims and that not in dims:
                            only = partial(_replaced, state, at, this, that)
                            yield cost - 0.5, only
        several = [[dim for dim in rates if rates[dim][at]] for at in pair]
        if len(several[0]) == len(several[1]) == 2 and not {*several[0]} & {
            *several[1]
        }:
            both = state  # `x.flatten(0, 1)` and `y.flatten()`
            for left, right in zip(*several, strict=True):
                both = _united(both, left, right)
            yield cost - 0.7, lambda: both
        for dim, rate in rates.items():
            by = rate[one] - rate[two]
            if not by or dim in self.fixed:
                continue
            if rate[one] and rate[two]:
                far = cost - 0.4
                yield from self._apart(state, dim, said[one], said[two], far)
            size = size_of[dim] - (said[one] - said[two]) / by
            if size.denominator > 1 or not least <= size <= LARGE:
                continue
            places = sum(dim in dims for dims in state.shapes)
            further = cost - 0.8 + 0.2 * places + (dim in state.fitted)
            for change in self._as_large(state, dim, int(size)):
                yield further + change[0], change[1]

    def _apart(
        self, state: _State, dim: int, one: int, two: int, cost: float
    ) -> Iterator[_Change]:
        """A dim of one input as another one than that of the others, as it is repeated: `k` has fewer heads than `q`."""
        size_of = state.size_of()
        having = [at for at, dims in enumerate(state.shapes) if dim in dims]
        if size_of[dim] not in (one, two) or len(having) < 2:
            return
        own = size_of[dim]
        sizes = {Fraction(own * one, two), Fraction(own * two, one)} - {own}
        for at, size in product(having, sorted(sizes)):
            same = [other for other in size_of if size_of[other] == size]
            for other in same:
                if other not in state.shapes[at]:
                    yield cost - 0.1, partial(_replaced, state, at, dim, other)
            if not same and size.denominator == 1 and 1 < size <= LARGE:
                far = cost + 0.1 * (size > own)
                yield far, partial(_alone_of_size, state, at, dim, int(size))

    def _as_large(self, state: _State, dim: int, size: int) -> Iterator[_Change]:
        """A dim of a size; where another has it most likely the same dim."""
        size_of = state.size_of()
        same = [other for other in size_of if size_of[other] == size and other != dim]
        for other in same if size > 1 else ():
            square = self._square(state, dim, other)
            yield square - 0.2, partial(_united, state, dim, other)
        if not same or size == 1:
            yield 0, partial(_of_size, state, dim, size)

    def _divided(self, state: _State, refused: _Refused) -> Iterator[_Change]:
        """A size by which the elements are as many as those of the shape that they should have."""
        wanted = _product_of(refused.words)
        if wanted is None:
            return
        whole, elements, is_open = wanted
        size_of = state.size_of()
        for dim in {dim for at in refused.reached_by for dim in state.shapes[at]}:
            size = size_of[dim]
            again = self.run(state.shapes, size_of | {dim: 2 * size})
            if _is_further(again, refused) and dim not in self.fixed:
                yield -0.5, partial(_of_size, state, dim, 2 * size)
            then = again and again.places == refused.places and _product_of(again.words)
            if not then or dim in self.fixed:
                continue
            if then[1] == 2 * elements and then[0] == whole:
                times = Fraction(whole, gcd(elements, whole) if is_open else elements)
            elif then[1] == elements and then[0] == 2 * whole and not is_open:
                times = Fraction(elements, whole)
            else:
                continue
            other = times * size
            if other.denominator == 1 and 1 < other <= LARGE:
                last = [shape[-1:] for shape in refused.operands] == [(size,)]
                further = (dim in state.fitted) + 0.5 * (not last)
                for cost, change in self._as_large(state, dim, int(other)):
                    yield cost - 0.6 + further, change

    def _square(self, state: _State, left: int, right: int) -> float:
        """How unlikely it is that two dims are one, as an input has both."""
        found = [
            SQUARE if self.plain[name] else SQUARE_WEIGHT
            for name, dims in zip(self.names, state.shapes, strict=True)
            if {left, right} <= {*dims}
        ]
        return max(found, default=0)

    def _near(self, state: _State, refused: _Refused) -> list[int]:
        """The inputs that what could not be combined was made of, by its sizes; all where that does not tell."""
        size_of = state.size_of()
        sizes = {size for shape in refused.operands for size in shape}
        near = [
            at
            for at, dims in enumerate(state.shapes)
            if at in refused.reached_by
            and (
                any(size_of[dim] in sizes for dim in dims)
                or not dims
                and () in refused.operands
            )
        ]
        return near or sorted(refused.reached_by)

    def _of_rank(
        self, state: _State, refused: _Refused, numbers: Sequence[int], least: float
    ) -> Iterator[_Change]:
        """Another rank for one input, or for all that are near."""
        near = self._near(state, refused)
        if not near:  # it returned no tensor, or time is up
            return
        alike = {at: [*self._alike_in_rank(state, at)] for at in near}
        ranks = {len(state.shapes[at]) for at in near}
        near_said = {one for number in numbers for one in (number, number + 1)}
        too_high = "but self is" in refused.words or "greater or equal" in refused.words
        more = {  # dims than one has: of its own, or of what it was computed of
            number - len(shape) for number in numbers for shape in refused.operands
        }
        for rank in range(LARGEST):
            far_cost = least + (
                0 if rank in numbers else 0.3 if rank in near_said else 0.8
            )
            far = min(abs(rank - one) for one in ranks)
            far_cost += (
                2.5 * (rank == 0)
                + 0.1 * far
                + 0.5 * (refused.of_rank and rank < min(ranks) and not too_high)
                - 0.6 * (too_high and rank < max(ranks))
            )
            for at in near:
                if rank == 0 and not _is_float(self.usual[self.positions[at]]):
                    continue  # positions and masks have dims
                alone = 0.2 if refused.of_rank else 0
                said = refused.of_rank and rank - len(state.shapes[at]) in more - {0}
                cost = far_cost - 0.3 * said
                for dims in dict.fromkeys(state.shapes):
                    if len(dims) == rank and dims != state.shapes[at]:
                        yield cost + alone - 0.05, partial(_as_another, state, at, dims)
                if len(state.shapes[at]) == rank:
                    continue
                yield cost + alone, partial(_with_rank, state, [at], rank)
                if rank < len(state.shapes[at]):
                    last = partial(_with_rank, state, [at], rank, last=True)
                    yield cost + alone + 0.1, last
                for also in alike[at]:
                    both = partial(_with_rank, state, [at, *also], rank)
                    yield cost + 0.2 - alone, both

    def _alike_in_rank(self, state: _State, at: int) -> Iterator[list[int]]:
        """Other inputs whose rank is most often the same: those called like it, `next_value` and `next_done`, `lq1` and `lk1`, `cos` and `sin`, \
and of what is no parameter all of which nothing has told the rank."""
        name = self.names[at]
        kin = [
            other
            for other, dims in enumerate(state.shapes)
            if other != at
            and dims == state.shapes[at]
            and len(name) > 2
            and _is_called_like(name, self.names[other])
            and self.plain[name] == self.plain[self.names[other]]
        ]
        if kin:
            yield kin
        if not self.plain[name]:
            return
        yield [
            other
            for other, name in enumerate(self.names)
            if other != at
            and self.plain[name]
            and (other not in state.ranked or state.shapes[other] == state.shapes[at])
            and self.usual[self.positions[other]].is_floating_point()
        ]

    def _flattened(self, state: _State, refused: _Refused) -> Iterator[_Change]:
        """One dim where a size is that of all the elements: `t.view(-1, 1)`."""
        size_of = state.size_of()
        said = {size for shape in refused.operands for size in shape}
        for at, dims in enumerate(state.shapes):
            sizes = tuple(size_of[dim] for dim in dims)
            if len(dims) > 1 and prod(sizes) in said and sizes not in refused.operands:
                yield -0.5, partial(_with_rank, state, [at], 1, last=True)
                yield -0.4, partial(_with_rank, state, [at], 1)

    def _alike(
        self, state: _State, refused: _Refused, least: float
    ) -> Iterator[_Change]:
        """An input with the shape of what it is combined with; one that is called like a parameter with its last dim."""
        size_of = state.size_of()
        joined = re.search(r"must match except in dimension (\d+)", refused.words)
        for at, dims in enumerate(state.shapes):
            own = tuple(size_of[dim] for dim in dims)
            if own not in refused.operands or at not in refused.reached_by:
                continue
            for other in refused.operands:
                if other == own or {0, 1} & {*other}:
                    continue
                if joined and len(other) > (along := int(joined[1])):
                    one = (*other[:along], 1, *other[along + 1 :])  # `torch.cat`
                    yield least - 0.6, partial(_like, state, at, one)
                whole = partial(_like, state, at, other)
                last = partial(_like, state, at, other[-1:])
                first, then = (
                    (last, whole)
                    if _is_vector(self.names[at], self.names)
                    else (whole, last)
                )
                yield least + 0.4, first
                yield least + 0.9, then

    def _agreeing(
        self, state: _State, refused: _Refused, numbers: Sequence[int], least: float
    ) -> Iterator[_Change]:
        """Two dims that are one."""
        size_of = state.size_of()
        if refused.unequal and not refused.of_rank:
            united = _all_united(state, refused.unequal)
            more = any(map(_is_square, united.shapes))
            yield -0.5 + SQUARE * more, lambda: united
            data = max(state.shapes, key=len)
            for at, dims in enumerate(state.shapes):  # `a[B, T, H]` of `x[B, T, H, D]`
                if 0 < len(dims) < len(data) and dims == data[-len(dims) :]:
                    yield -0.4, partial(_as_another, state, at, data[: len(dims)])
        for cost, one, two in _pairs(refused.operands, numbers, refused.words):
            for left, right in _multiples(size_of, one, two):
                yield least + cost + 0.5, partial(_united, state, left, right)
            for (far, left), (away, right) in product(
                _dims_of(size_of, one), _dims_of(size_of, two)
            ):
                if left != right and not {left, right} & self.fixed:
                    square = self._square(state, left, right)
                    further = 0.7 * (far + away) + square
                    yield least + cost + further, partial(_united, state, left, right)
                    shared = sum(left in dims for dims in state.shapes) > 1
                    for at, dims in reversed([*enumerate(state.shapes)]):
                        only = 1.6 if square else 0.2  # `k` of fewer heads than `mask`
                        if left in dims and right not in dims and (square or shared):
                            only += least + cost + 0.7 * (far + away)
                            yield only, partial(_replaced, state, at, left, right)

    def _sized(
        self, state: _State, refused: _Refused, numbers: Sequence[int], least: float
    ) -> Iterator[_Change]:
        """A dim of a size that something else has."""
        size_of = state.size_of()
        said = {size for shape in refused.operands for size in shape} or {*numbers}
        used = {dim for dims in state.shapes for dim in dims}
        near = {
            dim: far for size in said for far, dim in reversed(_dims_of(size_of, size))
        }
        if near:  # of a dim that is seen nowhere a part is: `(x @ w).chunk(3, -1)`
            for dim, times, one in product(used - near.keys(), (2, 3, 4), {*size_of}):
                if times * size_of[one] not in size_of.values() and dim != one:
                    multiple = partial(_of_size, state, dim, times * size_of[one])
                    yield least + 1.5 + times / 10, multiple
        of = {*self.attributes.values()}
        twice = {  # `x[..., ::2] * cos`
            2 * max(one, two)
            for left, right in combinations(refused.operands, 2)
            for one, two in zip(reversed(left), reversed(right), strict=False)
            if one == 2 * two or two == 2 * one
        }
        more = {number + 1 for number in numbers}
        further_of = {
            size: (
                -1.5 if size in said and size > 1 else 0 if size in of | twice else 0.5
            )
            + (6 if size == 1 else size / 1000)
            for size in {*said, *NUMBERS, *of, *more, *twice}
            if 0 < size <= 256 and size not in size_of.values()
        }
        for dim in used & near.keys() or used:
            cost = least + near.get(dim, 2)
            having = [at for at, dims in enumerate(state.shapes) if dim in dims]
            for size, further in further_of.items():
                yield cost + further, partial(_of_size, state, dim, size)
                for at in having if len(having) > 1 else ():
                    alone = partial(_alone_of_size, state, at, dim, size)
                    yield cost + further + 0.3, alone


def _numbers(refused: _Refused) -> list[int]:
    """The numbers of which what was raised speaks, and the sizes of what could not be combined."""
    found = _said(refused.words)
    parts = re.search(r"split_sizes=\[([\d, ]+)\]", refused.words)
    found += [sum(map(int, parts[1].split(",")))] if parts else []
    return found + [size for shape in refused.operands for size in shape]


def _said(words: str) -> list[int]:
    """The numbers in what was raised, without those that count dims and operands."""
    return [int(text) for text in NUMBER.findall(COUNTED.sub("", words))]


def _is_further(one: _Refused | None, other: _Refused) -> bool:
    return one is None or one.places > other.places


def _is_alike(one: _Refused, other: _Refused) -> bool:
    """Whether the same was raised at the same place, but for the numbers."""
    ranks = [[*map(len, refused.operands)] for refused in (one, other)]
    texts = {NUMBER.sub("0", refused.words) for refused in (one, other)}
    return one.places == other.places and ranks[0] == ranks[1] and len(texts) == 1


def _to_be_equal(
    refused: _Refused, said: Sequence[int]
) -> Iterator[tuple[float, int, int]]:
    """Positions of numbers that have to be equal, with how unlikely that is."""
    count = len(_said(refused.words))
    match = re.search(r"(\d+)x(\d+) and (\d+)x(\d+)", refused.words)
    if match:
        first = len(_said(refused.words[: match.start()]))
        yield 0, first + 1, first + 2
        return
    if "invalid for input of size" in refused.words:
        return
    of_sizes = sum(map(len, refused.operands))
    for one, two in combinations(range(len(said) - of_sizes), 2):
        if said[one] != said[two]:
            yield 0, one, two
    starts, at = list[tuple[int, Size]](), len(said)
    for shape in reversed(refused.operands):
        at -= len(shape)
        starts.append((at, shape))
    for (left, sizes), (right, others) in combinations(reversed(starts), 2):
        for back in range(1, min(len(sizes), len(others)) + 1):
            pair = (sizes[-back], others[-back])
            if pair[0] != pair[1] and (count < 2 or 1 not in pair):
                yield 0.4, left + len(sizes) - back, right + len(others) - back


def _product_of(words: str) -> tuple[int, int, bool] | None:
    """The product of the sizes that something should have, how many elements it has, and whether they need only be a multiple."""
    match = DIVIDED.search(words)
    if match:
        return int(match[2]), int(match[1]), True
    match = PRODUCT.search(words)
    if not match:
        return None
    sizes = [int(text) for text in match[1].split(",") if text.strip()]
    return prod(size for size in sizes if size > 0), int(match[2]), -1 in sizes


def _is_float(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _values(usual: Tensor, size: Sequence[int]) -> Tensor:
    """Values that suit many forwards: between 0 and 1; the indices that the tests have, which are 0 and 1; all rows of a mask, of which `x[mask]` takes some."""
    if _is_float(usual):
        return torch.rand(size, dtype=usual.dtype)
    if usual.dtype == torch.bool:
        return torch.ones(size, dtype=usual.dtype)
    return torch.arange(prod(size)).remainder(2).reshape(size).to(usual.dtype)


def _others(values: Mapping[str, Any], sizes: Sequence[Size]) -> frozenset[str]:
    """The names of the tensors that have none of these shapes; none where a shape is that of no name: `q @ k.mT`."""
    shapes = {
        name: tuple(value.shape)
        for name, value in values.items()
        if isinstance(value, Tensor)
    }
    if not {*sizes} <= {*shapes.values()}:
        return frozenset()
    return frozenset(name for name, shape in shapes.items() if shape not in sizes)


def _in_statement(error: Exception) -> tuple[str, dict[str, Any]]:
    """The line that raised, and the values that it names: `b, t = x.shape`."""
    own = [
        at
        for at in _walked(error)
        if at.tb_frame.f_code.co_filename.startswith(OF_MODULE)
    ]
    if not own:
        return "", {}
    frame = own[-1].tb_frame
    code = linecache.getline(frame.f_code.co_filename, own[-1].tb_lineno)
    names = re.findall(r"[^\W\d]\w*", code)
    return code, {name: frame.f_locals.get(name) for name in names}


def _is_square(dims: Dims) -> bool:
    return len({*dims}) < len(dims)


def _is_instead(state: _State, square: _State, first: _State) -> bool:
    """Whether the inputs that would be square have in another state no lower rank, or that which they had at first: `x @ x` is no \
reason to test vectors."""
    several = zip(state.shapes, square.shapes, first.shapes, strict=True)
    size_of = state.size_of()
    return all(
        (len(dims) >= len(equal) or len(dims) == len(guessed))
        and 1 not in [size_of[dim] for dim in dims]
        for dims, equal, guessed in several
        if _is_square(equal)
    )


def _walked(error: Exception) -> Iterator[TracebackType]:
    at = error.__traceback__
    while at is not None:
        yield at
        at = at.tb_next


def _begin(
    names: Sequence[str],
    floating: Sequence[bool],
    told: Told,
    least: Mapping[str, int],
) -> _State:
    """What is called like data has one shape, every dim of a parameter is another; what the text tells comes first."""
    pairs = zip(names, floating, strict=True)
    plain = [name for name, holds in pairs if holds and _is_plain(name, names)]
    data = tuple(range(_rank_of_data(plain, told, least)))
    number_of = {f"dim {at} of {len(data)}": at for at in data}  # that the text names
    used = len(data)
    fixed: dict[int, int] = {}  # sizes
    data_words: tuple[str, ...] = ()
    shapes: list[Dims] = []
    for name, holds_values in zip(names, floating, strict=True):
        dims = _without_unknown(told.get(name), number_of)
        if not data_words and name in plain and len(dims or ()) == len(data):
            data_words, number_of, data = _named(dims or (), number_of, data)
        if name in plain and not {*(dims or ())} - {""}:
            rank = len(dims or ()) or least.get(name, 0)
            few = dims or rank > 2  # `x.unflatten(2, (heads, -1))`
            shapes.append(data[max(0, len(data) - rank) :] if few else data)
            continue
        rank = 1 if not holds_values else _rank_of(name, names)
        words = ("",) * rank if dims is None else dims
        own = []
        if dims is None and rank < least.get(name, 0) <= len(data):
            shapes.append(data if holds_values else data[: least[name]])
            continue
        if not (holds_values or any(words)) and 1 < len(words) <= len(data):
            shapes.append(data[: len(words)])  # `logits[B, T, V], labels[B, T]`
            continue
        if len(words) == 2 and ALIKE.fullmatch(name.lower()):
            words = ("0 of w", "1 of w")
        for word in words:
            fresh = not word or word not in number_of
            if word.isdecimal():
                fixed[used] = int(word)
            own.append(used if fresh else number_of[word])
            number_of |= {word: used} if word and fresh else {}
            used += fresh
        shapes.append(tuple(own))
    ranked = frozenset(at for at, name in enumerate(names) if name in told)
    sizes = _first_sizes(used, fixed)
    return _State((*shapes,), (*sizes.items(),), frozenset(fixed), ranked)


def _rank_of_data(plain: Sequence[str], told: Told, least: Mapping[str, int]) -> int:
    """The rank of what is called like data, of which nothing else is told."""
    said = [told[name] for name in plain if STACKED not in told.get(name, (STACKED,))]
    ranks = [least.get(name, 0) for name in plain]
    return max(max(map(len, said), default=2), *ranks, 0)


def _first_sizes(count: int, fixed: Mapping[int, int]) -> dict[int, int]:
    """A size of its own for each dim."""
    pool = SMALL if count > MANY else POOL
    free = (size for size in pool if size not in fixed.values())
    return {dim: fixed.get(dim) or next(free) for dim in range(count)}


def _named(
    words: tuple[str, ...], number_of: dict[str, int], data: Dims
) -> tuple[tuple[str, ...], dict[str, int], Dims]:
    """The dims of data, where the words for their sizes are those of dims that are there already."""
    if not any(word.startswith("size ") for word in words):
        return (), number_of, data
    own = {word: at for at, word in enumerate(words) if word}
    places = zip(words, data, strict=True)
    number_of = own | number_of
    return (
        words,
        number_of,
        tuple(number_of[word] if word else at for word, at in places),
    )


def _without_unknown(
    words: tuple[str, ...] | None, known: Mapping[str, int]
) -> tuple[str, ...] | None:
    """Words without those that are positions in a value of another rank."""
    if words is None:
        return None
    return tuple(
        "" if word.startswith("dim ") and word not in known else word for word in words
    )


def _last_word(name: str) -> str:
    return name.lower().rpartition("_")[2].rstrip("0123456789")


def _is_vector(name: str, names: Sequence[str]) -> bool:
    """Whether a name is that of a vector of parameters; `b` is where there is a `w`, and no `a`: `w + b @ a`."""
    last, words = _last_word(name), {*map(_last_word, names)}
    if NORM.search(name.lower()):
        return True
    beside = bool(words & MATRICES) and "a" not in words
    return last in VECTORS - MATRICES and (last != "b" or beside)


def _rank_of(name: str, names: Sequence[str]) -> int:
    """The rank that a name suggests."""
    if _last_word(name) in NUMBERLIKE:
        return 0
    return 1 if _is_vector(name, names) else 2


def _is_plain(name: str, names: Sequence[str]) -> bool:
    """Whether a name is that of data, not of a parameter."""
    first = name.lower().partition("_")[0].rstrip("0123456789")
    parameter = {first, _last_word(name)} & (MATRICES | NUMBERLIKE)
    parameter |= {*filter(OF_WEIGHT.fullmatch, (first, name.lower()))}
    return not parameter and not _is_vector(name, names)


def _is_called_like(one: str, two: str) -> bool:
    """Whether two names begin alike, or are the two of a pair: `cos` and `sin`."""
    return one[:2] == two[:2] or PAIRED.sub("", one) == PAIRED.sub("", two) != one


def _form(state: _State) -> tuple[Any, ...]:
    """The same for states that differ in the names of dims alone."""
    size_of = state.size_of()
    order = dict.fromkeys(dim for dims in state.shapes for dim in dims)
    number = {dim: index for index, dim in enumerate(order)}
    shapes = tuple(tuple(number[dim] for dim in dims) for dims in state.shapes)
    sizes = tuple(size_of[dim] if dim in state.fitted else 0 for dim in order)
    return shapes, sizes


def _fresh(state: _State, count: int) -> tuple[list[int], dict[int, int]]:
    """Dims that are not there yet, with sizes that no dim has."""
    used = {dim for dims in state.shapes for dim in dims}
    size_of = {dim: size for dim, size in state.sizes if dim in used}
    taken = {*size_of.values()}
    free = [size for size in POOL if size not in taken]
    new = [max([-1, *used]) + 1 + index for index in range(count)]
    return new, size_of | dict(zip(new, free, strict=False))


def _with_rank(
    state: _State, positions: Sequence[int], rank: int, last: bool = False
) -> _State:
    """New dims in front, or the first or the last ones gone; inputs of one shape go on having one."""
    known: dict[Dims, Dims] = {}
    for at in positions:
        dims = state.shapes[at]
        new, size_of = _fresh(state, max(0, rank - len(dims)))
        kept = dims[:rank] if last else dims[max(0, len(dims) - rank) :]
        changed = known.setdefault(dims, (*new, *kept))
        shapes = (*state.shapes[:at], changed, *state.shapes[at + 1 :])
        ranked = state.ranked | {at}
        state = _State(shapes, (*size_of.items(),), state.fitted, ranked)
    return state


def _like(state: _State, at: int, shape: Size) -> _State:
    """One input with the dims that another value has; a size that is no dim's is a new dim."""
    size_of = state.size_of()
    dims: list[int] = []
    fitted = state.fitted
    for size in shape:
        exact = [dim for dim, value in size_of.items() if value == size]
        exact = [
            dim for dim in exact if any(dim in dims for dims in state.shapes)
        ] or exact
        if not exact:
            exact = [max(size_of, default=-1) + 1]
            size_of[exact[0]] = size
            fitted |= {exact[0]}
        dims.append(exact[0])
    shapes = (*state.shapes[:at], tuple(dims), *state.shapes[at + 1 :])
    return _State(shapes, (*size_of.items(),), fitted, state.ranked | {at})


def _united(state: _State, one: int, two: int) -> _State:
    """Two dims as one, the one whose size follows from something."""
    kept, gone = (two, one) if two in state.fitted else (one, two)
    shapes = tuple(
        tuple(kept if dim == gone else dim for dim in dims) for dims in state.shapes
    )
    return state._replace(shapes=shapes)


def _all_united(state: _State, pairs: Sequence[tuple[int, int]]) -> _State:
    """Dims of several pairs of sizes as one each."""
    of_size = {size: dim for dim, size in reversed(state.size_of().items())}
    now: dict[int, int] = {}
    for one, two in pairs:
        left, right = of_size.get(one), of_size.get(two)
        while left in now:
            left = now[left]
        while right in now:
            right = now[right]
        if left is not None and right is not None and left != right:
            gone = left if right in state.fitted else right
            now[gone] = right if gone == left else left
            state = _united(state, left, right)
    return state


def _of_size(state: _State, dim: int, size: int) -> _State:
    sizes = state.size_of() | {dim: size}
    return state._replace(sizes=(*sizes.items(),), fitted=state.fitted | {dim})


def _replaced(state: _State, at: int, dim: int, by: int) -> _State:
    """One input with another dim that is there already."""
    changed = tuple(by if one == dim else one for one in state.shapes[at])
    return state._replace(shapes=(*state.shapes[:at], changed, *state.shapes[at + 1 :]))


def _as_another(state: _State, at: int, dims: Dims) -> _State:
    """One input with the dims that another one has."""
    shapes = (*state.shapes[:at], dims, *state.shapes[at + 1 :])
    return state._replace(shapes=shapes, ranked=state.ranked | {at})


def _alone_of_size(state: _State, at: int, dim: int, size: int) -> _State:
    """One input with a dim of its own in the place of one that others have too."""
    (new,), size_of = _fresh(state, 1)
    changed = tuple(new if one == dim else one for one in state.shapes[at])
    shapes = (*state.shapes[:at], changed, *state.shapes[at + 1 :])
    sizes = (size_of | {new: size}).items()
    return _State(shapes, (*sizes,), state.fitted | {new}, state.ranked)


def _dims_of(size_of: Mapping[int, int], size: int) -> list[tuple[int, int]]:
    """The dims that have a size, and those that are near it: `x[:, 1:]` has one less."""
    exact = [(0, dim) for dim, value in size_of.items() if value == size]
    near = [(1, dim) for dim, value in size_of.items() if abs(value - size) == 1]
    return exact or near


def _multiples(
    size_of: Mapping[int, int], one: int, two: int
) -> Iterator[tuple[int, int]]:
    """Dims that are as many times as large as two sizes: `wq` and `wk` of `x.view(B, T, heads, -1)`."""
    for (left, large), (right, other) in product(size_of.items(), repeat=2):
        if 1 < one < large and large % one == 0 and other * one == two * large:
            yield left, right


def _pairs(
    operands: Sequence[Size], numbers: Sequence[int], words: str
) -> Iterator[tuple[float, int, int]]:
    """Sizes that may have to agree, each pair with how unlikely that is."""
    if len(operands) == 2 and min(map(len, operands)) > 1 and "mat1" in words:
        yield 0.1, operands[0][-1], operands[1][-2]
    elif len(numbers) < 6:
        for one, two in combinations(dict.fromkeys(numbers), 2):
            yield 0.2, one, two
    for left, right in combinations(operands, 2):
        for one, two in zip(reversed(left), reversed(right), strict=False):
            if one != two:
                yield 0.4, one, two
        if left and len(right) > 1 and left[-1] != right[-2]:
            yield 0.3, left[-1], right[-2]
        for one, two in product({*left}, {*right}):
            if one != two:
                yield 1.0, one, two
    for shape in operands:
        for one, two in combinations({*shape}, 2):
            yield 1.5, one, two


# --- What is found, in words.


class _Described:
    """Which dims are free, which follow from others, and what they are called."""

    def __init__(self, search: _Search, state: _State) -> None:
        self.search, self.shapes = search, state.shapes
        self.size_of, self.fitted = state.size_of(), state.fitted
        self.multiples: dict[int, int] = {}  # of another dim: `Hq // Hk` repeats
        self.unnamed = set[int]()  # numbers: no condition reads them
        self._trim()
        for dim in [*self.size_of]:
            self._split(dim)
        used = dict.fromkeys(dim for dims in self.shapes for dim in dims)
        self.size_of = {dim: self.size_of[dim] for dim in used}
        self.fitted &= used.keys()
        self.name_of = self._names()

    def found(self) -> Found | None:
        """The dims and conditions; a dim that no name fits is a number."""
        fits = {dim: self._sizes(dim) for dim in self.size_of}
        conditions = []
        for same in chain(*self.multiples.items()):  # change together, or not at all
            fits[same] = [self.size_of[same]] * 3
        self._as_large_as(fits)
        free = {
            dim
            for dim, sizes in fits.items()
            if len(sizes) > 2 and (sizes[-1] > 8 or sizes[0] == sizes[-1])
        }
        single, free = free, {dim for dim in free if self._is_said(dim, fits[dim])}
        free = self._free_together(free, fits)
        self.unnamed = single - free
        fits |= {dim: [self.size_of[dim]] * 3 for dim in self.unnamed}
        for dim, other in self.multiples.items():
            one, two = self.name_of[dim], self.name_of[other]
            both = {dim, other} <= free
            conditions += [f"{one} % {two} == 0", f"{one} > {two}"] if both else []
        conditions += [text for dim in free for text in self._bound(dim, fits[dim])]
        bound = [dim for dim in self.size_of if dim not in single]
        related = self._related(bound, fits) or {}
        alone = self._alone(bound, related)
        if related and all(starmap(self._is_said, alone.items())):
            said = {dim: text for dim, text in related.items() if text.isdecimal()}
            conditions += [
                f"{self.name_of[dim]} == {text}"
                for dim, text in related.items()
                if dim not in said
            ]
            conditions += chain(*starmap(self._bound, alone.items()))
        else:
            said = {dim: str(self.size_of[dim]) for dim in bound}
        said |= {dim: str(self.size_of[dim]) for dim in self.unnamed}
        dims = {
            name: ", ".join(said.get(dim, self.name_of[dim]) for dim in own)
            for name, own in zip(self.search.names, self.shapes, strict=True)
        }
        return Found(dims, (*conditions,))

    def _free_together(
        self, free: set[int], fits: Mapping[int, Sequence[int]]
    ) -> set[int]:
        """Those that may all have other sizes at once: of `x.view(n, -1, size)` two may be multiples each, and not both."""
        while free:
            every = dict.fromkeys(dim for dims in self.shapes for dim in dims)
            order = [dim for dim in every if dim in free]
            chosen = {  # as the tests choose them
                dim: (
                    least
                    if dim in self.multiples.values()
                    else next((n for n in fits[dim] if n >= least), fits[dim][-1])
                )
                for least, dim in enumerate(order, start=2)
            }
            pairs = self.multiples.items()
            twice = {dim: 2 * chosen[one] for dim, one in pairs if one in chosen}
            chosen |= {dim: size for dim, size in twice.items() if dim in chosen}
            if self._takes(chosen):
                break
            alone = [
                dim
                for dim in reversed(order)
                if self._takes({n: size for n, size in chosen.items() if n != dim})
            ]
            gone = {(alone or order[::-1])[0]}
            both = [{*pair} for pair in self.multiples.items() if {*pair} & gone]
            free = free.difference(gone, *both)
        return free

    def _as_large_as(self, fits: dict[int, list[int]]) -> None:
        """One dim of two where the one has to be as large as the other: `B[:, t]` for each t of another tensor."""
        for dim, sizes in [*fits.items()]:
            least = sizes[0] if sizes else 0
            if least < 3 or [*sizes] != [size for size in OTHERS if size >= least]:
                continue
            same = [
                other
                for other, size in self.size_of.items()
                if size == least and other != dim
                if not any({dim, other} <= {*dims} for dims in self.shapes)
            ]
            if same:
                self.shapes = tuple(
                    tuple(same[0] if one == dim else one for one in dims)
                    for dims in self.shapes
                )
                del fits[dim], self.size_of[dim]
                fits[same[0]] = self._sizes(same[0])

    def _takes(self, sizes: Mapping[int, int]) -> bool:
        return self.search.run(self.shapes, {**self.size_of, **sizes}) is None

    def _trim(self) -> None:
        """Leave out leading dims that broadcast alone: of parameters all that can go, of others those that the first input lacks."""
        told = self.search.told
        for dim in [*self.size_of]:
            own = [
                _is_plain(name, self.search.names)
                for name, dims in zip(self.search.names, self.shapes, strict=True)
                if dim in dims
            ]
            if dim not in self.shapes[0] and dim not in self.fitted and all(own):
                fewer = tuple(
                    dims[1:] if dims[:1] == (dim,) and name not in told else dims
                    for name, dims in zip(self.search.names, self.shapes, strict=True)
                )
                self._try(fewer)
        for at, name in enumerate(self.search.names):
            while len(self.shapes[at]) > len(told.get(name, "1")) and _is_vector(
                name, self.search.names
            ):
                before = self.shapes
                self._try((*before[:at], before[at][1:], *before[at + 1 :]))
                if self.shapes == before:
                    break

    def _try(self, shapes: tuple[Dims, ...]) -> None:
        if shapes != self.shapes and self.search.run(shapes, self.size_of) is None:
            self.shapes = shapes

    def _split(self, dim: int) -> None:
        """Another name for those of its places where the forward takes another size, be it larger or smaller."""
        places = [
            (at, axis)
            for at, dims in enumerate(self.shapes)
            for axis, one in enumerate(dims)
            if one == dim
        ]
        along = {axis: [one for one in places if one[1] == axis] for _, axis in places}
        several = [tuple(one) for one in along.values()]  # that dim of each input
        for count in (0, 1, 2, 3)[: 4 if len(places) < 7 else 3]:
            for chosen in combinations(places, count) if count else several:
                if len(chosen) >= len(places) or not {*chosen} <= {*places}:
                    continue
                new = max(self.size_of) + 1
                shapes = tuple(
                    tuple(
                        new if (at, axis) in chosen else one
                        for axis, one in enumerate(dims)
                    )
                    for at, dims in enumerate(self.shapes)
                )
                size = self.size_of[dim]
                taken = [
                    self.search.run(shapes, {**self.size_of, new: other}) is None
                    for other in (2 * size, size // 2, 3 * size, size + 1)
                ]
                free = all(taken[:2])
                if not free and taken == [True, False, True, False]:
                    self.multiples[new] = dim
                if free or new in self.multiples:
                    self.shapes = shapes
                    self.size_of[new] = size if free else 2 * size
                    places = [place for place in places if place not in chosen]

    def _sizes(self, dim: int) -> list[int]:
        """What a dim may be, the others being as they are."""
        return [size for size in OTHERS if self._takes({dim: size})]

    def _bound(self, dim: int, sizes: Sequence[int]) -> Iterator[str]:
        """That a dim is large enough, or a multiple."""
        least, name = sizes[0], self.name_of[dim]
        if least > 2 and [*sizes] == [size for size in OTHERS if size >= least]:
            yield f"{name} >= {least}"
        elif len(sizes) < len(OTHERS):  # 3 has parts of 2 and 1, which broadcasts
            large = [size for size in sizes if size != 3 or least == 3]
            if large == [size for size in OTHERS if size % least == 0]:
                yield f"{name} % {least} == 0"

    def _alone(
        self, bound: Sequence[int], related: Mapping[int, str]
    ) -> dict[int, list[int]]:
        """What the dims may be that others follow from: `x.view(B, T, heads, -1)`."""
        several = {
            dim: [size for size in OTHERS if self._holds(related, {dim: size})]
            for dim in bound
            if related and dim not in related
        }
        return {dim: sizes for dim, sizes in several.items() if sizes}

    def _is_said(self, dim: int, sizes: Sequence[int]) -> bool:
        """Whether what a dim may be can be written as a condition: a power of 2 cannot."""
        every = [*sizes] == [*OTHERS] or sizes[0] == sizes[-1]
        return every or any(self._bound(dim, sizes))

    def _related(
        self, bound: Sequence[int], fits: Mapping[int, Sequence[int]]
    ) -> dict[int, str] | None:
        """Of dims that cannot change alone those that follow from others, all at once; None where it is not found."""
        fitted = tuple(dim for dim in bound if dim in self.fitted)
        alone = [(dim,) for dim in (*fitted, *reversed(bound))]
        groups = [*alone, fitted]  # a number stands for all of them at the last
        for dependent in filter(None, dict.fromkeys(groups)):
            for factor, more in ((1, 1), (2, 0), (3, 0)):
                own = [dim for dim in bound if dim not in dependent]
                factors = {dim: factor + at for at, dim in enumerate(own)}
                changed = {
                    dim: (
                        factors[dim] * size + more if dim in factors else fits[dim][-1]
                    )
                    for dim, size in self.size_of.items()
                    if dim not in dependent
                }
                found = self._following(dependent, changed)
                less = {dim: fits[dim][-2] for dim in changed if dim not in bound}
                if found is not None and self._holds(found, changed | less):
                    return found
        return None if bound else {}

    def _following(
        self, dependent: Sequence[int], changed: Mapping[int, int]
    ) -> dict[int, str] | None:
        """What some dims are of the others, so that the forward takes these changed."""
        terms = self._terms(changed)
        several = [
            [*islice(self._expressions(terms, self.size_of[dim]), 12)]
            for dim in dependent
        ]
        for chosen in islice(product(*several), 400):
            pairs = [*zip(dependent, chosen, strict=True)]
            sizes = {dim: value for dim, (_, value) in pairs}
            if self._takes({**changed, **sizes}):
                return {dim: text for dim, (text, _) in pairs}
        return None

    def _holds(self, found: Mapping[int, str], changed: Mapping[int, int]) -> bool:
        """Whether it is so for further sizes, and no accident."""
        usual = {n: size for n, size in self.size_of.items() if n not in found}
        terms = self._terms({**usual, **changed})
        values = {text: value for text, _, value in expressions(terms)}
        sizes = {
            dim: int(text) if text.isdecimal() else values[text]
            for dim, text in found.items()
        }
        return self._takes({**changed, **sizes})

    def _terms(self, changed: Mapping[int, int]) -> dict[str, tuple[int, int]]:
        """Each name with its size, and with that of a change."""
        dims = {
            self.name_of[dim]: (self.size_of[dim], size)
            for dim, size in changed.items()
            if dim not in self.unnamed
        }
        attributes = self.search.attributes.items()
        return dims | {name: (size, size) for name, size in attributes}

    def _expressions(
        self, terms: Mapping[str, tuple[int, int]], size: int
    ) -> Iterator[tuple[str, int]]:
        for text, one, two in expressions(terms):
            if one == size and two > 0:
                yield text, two
        yield str(size), size

    def _names(self) -> dict[int, str]:
        """What the forward calls a dim, `B, S, D = x.shape`; a letter where it does not."""
        taken = {*self.search.every, *map(str, self.search.declared)}
        known: dict[int, str] = {}
        text = self.search.text
        for name, said in text.of_inputs(_unpacked(text.nodes)).items():
            if name not in self.search.names:
                continue
            dims = self.shapes[self.search.names.index(name)]
            pairs = said if len(said) == len(dims) else ()
            for dim, text in zip(dims, pairs, strict=False):
                word = text.lstrip("_")
                fit = word.isidentifier() and not keyword.iskeyword(word)
                if fit and word not in taken and dim not in known:
                    known[dim] = word
                    taken.add(word)
        free = (name for name in NAMES + tuple(f"N{n}" for n in range(40)))
        rest = (name for name in free if name not in taken)
        return {dim: known.get(dim) or next(rest) for dim in self.size_of}


def _told_by(node: ast.AST, number: int) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """What one expression tells of the ranks of what stands in it."""
    match node:
        case ast.Call(ast.Attribute(_, "einsum"), [ast.Constant(str(text)), *operands]):
            operands = getattr(operands[0], "elts", operands) if operands else []
            terms = text.replace(" ", "").partition("->")[0].split(",")
            for term, operand in zip(terms, operands, strict=False):
                if term.isalpha():
                    yield operand, tuple(f"{letter} {number}" for letter in term)
        case ast.Subscript(value, ast.Tuple(parts)):
            words = _words_of_index(parts)
            match value:
                case ast.Name() | ast.Call(ast.Attribute(ast.Name()), []) if words:
                    yield getattr(getattr(value, "func", None), "value", value), words
        case ast.Assign([ast.Tuple(targets)], value) if len(targets) < 4:
            yield value, (str(len(targets)), "")  # `src, dst = edges`
        case ast.Call(ast.Attribute(value, "t"), []) | ast.Attribute(value, "T"):
            yield value, ("", "")
            match value:
                case ast.Subscript(whole, ast.Name()):  # `for i in ...: w[i].t()`
                    yield whole, (STACKED, f"0 of {number}", f"1 of {number}")
        case ast.Call(ast.Attribute(value, "permute"), [ast.Tuple(dims)]):
            yield value, ("",) * len(dims)
        case ast.Call(ast.Attribute(value, "permute"), [_, _, *_] as dims):
            yield value, ("",) * len(dims)
        case ast.Call(ast.Attribute(value, "view" | "reshape"), sizes):
            texts = [*map(ast.unparse, sizes)]
            if len(texts) > 1 and sorted(texts) == ["-1", *["1"] * (len(texts) - 1)]:
                at = texts.index("-1")  # `scale.view(1, -1, 1, 1)`
                yield value, (f"dim {at} of {len(texts)}",)
        case ast.Call(ast.Attribute(_, "stft" | "istft"), arguments, keywords):
            by_name = [item.value for item in keywords if item.arg == "window"]
            for value in (*arguments[4:5], *by_name):
                yield value, (f"window {number}",)
        case ast.Call(ast.Attribute(_, word), arguments, keywords) if (
            word in PARAMETERS
        ):
            yield from _told_by_call(word, arguments, keywords, number)


def _told_by_call(
    word: str,
    arguments: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
    number: int,
) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """What a call of `F.linear`, of a convolution tells of its parameters."""
    of_name = {item.arg: item.value for item in keywords}
    for (at, letters), name in zip(
        PARAMETERS[word].items(), ("weight", "bias", "input"), strict=False
    ):
        words = tuple(
            (letter if letter.isdecimal() else letter.strip() and f"{letter} {number}")
            for letter in letters
        )
        if at == 1 and word.startswith("conv"):
            words = _of_kernel(words, of_name)
        given = arguments[at] if at < len(arguments) else of_name.get(name)
        if given is not None:
            yield given, words


DOCUMENTED = re.compile(r"[\[(]([^][()\n]*)[\])]")
NO_DIM = frozenset({"optional", "float", "int", "bool", "tensor", "str", "default"})


def _documented(
    body: Sequence[ast.stmt], names: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """The dims that a docstring says of inputs: `q: (B, T, D)`, `u: r(B D L)`."""
    match body:
        case [ast.Expr(ast.Constant(str(text))), *_]:
            pass
        case _:
            return {}
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        places = re.finditer(rf"(?<![\w.]){name}(?![\w(\[.])`*(.*)", text)
        for part in (match[1] for match in places):
            bracket = DOCUMENTED.search(part)
            dims = _dims_said(bracket[1]) if bracket and bracket.start() < 40 else ()
            if dims:
                found.setdefault(name, dims)
    return found


def _dims_said(text: str) -> tuple[str, ...]:
    """A word for each dim of a text, `B, T, 2 * D`; none where it is no list of dims."""
    words = [word.strip() for word in text.rstrip(", ").split(",")]
    if "," not in text:
        words = text.split()
        if not all(len(word) < 3 for word in words):
            return ()  # words of a sentence
    plain = [re.fullmatch(r"\d+|[A-Za-z_]\w*|[\w*+/ -]+", word) for word in words]
    if not all(plain) or len(words) > LARGEST or NO_DIM & {*map(str.lower, words)}:
        return ()
    sized = (word if word.isdecimal() else f"size {word}" for word in words)
    return tuple(
        word if word.replace("size ", "").isidentifier() or word.isdecimal() else ""
        for word in sized
    )


class _Statement(NamedTuple):
    """Names that a statement of a forward reads and changes, and the lines where it stands; `again`: in a loop until that line."""

    first: int
    last: int
    reads: frozenset[str]
    changes: frozenset[str]
    again: int


class _Body(NamedTuple):
    """The function that the user wrote: its name, its statements, and the inputs by the names that they have in it."""

    name: str = ""
    statements: Sequence[_Statement] = ()
    inputs: Mapping[str, str] = {}
    nodes: Sequence[ast.AST] = ()
    body: Sequence[ast.stmt] = ()
    functions: Mapping[str, ast.FunctionDef] = {}  # that stand beside it

    def of_inputs(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What is known by its names, by those of the inputs."""
        pairs = self.inputs.items()
        return {name: found[own] for own, name in pairs if own in found}


def _body(function: Callable[..., Any], names: Sequence[str]) -> _Body:
    """The text of a forward; of one that only calls a function that is defined in it, that of this function."""
    try:
        lines, start = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return _Body()
    ast.increment_lineno(tree, max(start, 1) - 1)
    match tree.body:
        case [ast.FunctionDef() as own, *_]:
            given = dict(zip(_parameters(own), names, strict=False))
        case _:
            return _Body()
    beside = _functions(own)
    match own.body[-1]:
        case ast.Return(ast.Call(ast.Name(called), values, words)):
            inner = beside.get(called)
        case ast.Return(ast.Call(ast.Call(ast.Name(called), []), values, words)):
            inner = None  # `return of_the_file()(x=x)`
            match beside.get(called):
                case ast.FunctionDef(body=[*_, ast.Return(ast.Name(last))]) as whole:
                    beside = _functions(whole)
                    inner = beside.get(last)
        case _:
            inner = None
    if inner is not None:
        pairs = [*zip(_parameters(inner), values, strict=False)]
        pairs += [(word.arg or "", word.value) for word in words]
        named = [(one, item.id) for one, item in pairs if isinstance(item, ast.Name)]
        given = {one: given[name] for one, name in named if name in given}
        own = inner
    nodes = [*ast.walk(own)]
    return _Body(own.name, _statements(own.body), given, nodes, own.body, beside)


def _functions(node: ast.FunctionDef) -> dict[str, ast.FunctionDef]:
    """The functions that are defined in one."""
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def _parameters(node: ast.FunctionDef) -> list[str]:
    arguments = node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return [item.arg for item in every]


def _statements(body: Sequence[ast.stmt]) -> list[_Statement]:
    """The statements of a forward in their order; what a test decides and a loop goes through is read by all that stands in it."""
    found: list[_Statement] = []

    def add(body: Sequence[ast.stmt], above: frozenset[str], again: int) -> None:
        for node in body:
            own = isinstance(node, ast.FunctionDef)
            parts = [] if own else [getattr(node, part, []) for part in BLOCKS]
            blocks = [part for part in parts if part]
            inner = ast.iter_child_nodes(node)
            heads = [one for one in inner if not isinstance(one, ast.stmt)]
            read, changed = _read_and_changed(heads if blocks else [node])
            read |= above
            if isinstance(node, ast.Expr):  # `x.add_(y)`, `ys.append(y)`
                changed |= read
            last = node.end_lineno or node.lineno
            until = max(again, last) if isinstance(node, ast.For | ast.While) else again
            last = blocks[0][0].lineno - 1 if blocks else last
            if isinstance(node, ast.FunctionDef):
                changed |= {node.name}
            found.append(_Statement(node.lineno, last, read, changed, until))
            for block in blocks:
                add(block, read, until)

    add(body, frozenset(), 0)
    return found


BLOCKS = ("body", "orelse", "finalbody")


def _read_and_changed(
    nodes: Sequence[ast.AST],
) -> tuple[frozenset[str], frozenset[str]]:
    """The names that stand in a statement, and those that it assigns, also in part: `out[:, t] = h`."""
    every = [one for node in nodes for one in ast.walk(node)]
    read = {one.id for one in every if isinstance(one, ast.Name)}
    changed = set[str]()
    for one in every:
        match one:
            case ast.Name(name, ast.Store()):
                changed.add(name)
            case ast.Subscript(value, _, ast.Store()):
                inner = ast.walk(value)
                changed |= {item.id for item in inner if isinstance(item, ast.Name)}
    return frozenset(read), frozenset(changed)


def _names_before(
    statements: Sequence[_Statement], line: int, without: frozenset[str]
) -> set[str]:
    """The names that the statement at a line reads, but for some, and those of which they were computed."""
    at = [one for one in statements if one.first <= line <= one.last]
    if not at:
        return set()
    here = at[-1]
    names = {*(here.reads - without or here.reads)}
    before = [one for one in statements if one.first <= max(here.last, here.again)]
    count = 0
    while len(names) != count:
        count = len(names)
        for one in reversed(before):
            if one.changes & names:
                names |= one.reads
    return names


def _of_kernel(
    words: tuple[str, ...], said: Mapping[str | None, ast.expr]
) -> tuple[str, ...]:
    """Of a weight of a convolution that has groups one channel, as it is most often depthwise, and a size that leaves those of the data."""
    match said.get("padding"):
        case ast.Constant(int(padding)):
            size = 2 * padding + 1
        case None:
            size = 1
        case _:
            size = 3
    channels = "1" if "groups" in said else words[1]
    return (words[0], channels, *[str(size)] * (len(words) - 2))


def _words_of_index(parts: Sequence[ast.expr]) -> tuple[str, ...]:
    """Of an index that most likely names all dims, `cos[None, :, None, :]`, `gamma[None, :, None, None]`, which dims these are of what they \
are combined with; else none."""
    new = [isinstance(part, ast.Constant) and part.value is None for part in parts]
    if any(isinstance(part, ast.Constant) and part.value is ... for part in parts):
        return ()
    whole = new.count(False) > 1 and not new[-1] or all(new[-2:]) or new[0] and new[-1]
    if not (any(new) and whole):
        return ()
    plain = all(
        no or isinstance(part, ast.Slice) for part, no in zip(parts, new, strict=True)
    )
    words = (f"dim {at} of {len(new)}" * plain for at in range(len(new)))
    return tuple(word for word, no in zip(words, new, strict=True) if not no)


def _unpacked(nodes: Iterable[ast.AST]) -> dict[str, list[str]]:
    """The names that sizes are unpacked to, by the tensor that has them."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        match node:
            case ast.Assign(
                [ast.Tuple(targets)],
                ast.Attribute(ast.Name(name), "shape")
                | ast.Call(ast.Attribute(ast.Name(name), "size"), []),
            ) if not any(isinstance(item, ast.Starred) for item in targets):
                words = [
                    item.id if isinstance(item, ast.Name) else "" for item in targets
                ]
                found.setdefault(name, words)
    return found
