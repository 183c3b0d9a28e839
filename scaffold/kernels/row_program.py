"""Row programs: the computation of a fused kernel for each row of its inputs, in no particular language.

In: `lowering` makes one. Out: a printer writes it. Invariant: a line reads names that stand before it; what leaves a row is a result,
and what is summed over all rows is one too. A program without a width is elementwise: it has no rows, and each of its values is one
number of a tensor.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scaffold.formula.names import fresh

Kind = Literal["real", "int", "bool"]
Fold = Literal["sum", "max", "min"]
ONE = "1"


class Space(NamedTuple):
    """The dims of a value: rows or none, and the columns of a last dim of some size."""

    rows: bool = False
    width: str = ""  # the name of the size; ONE of a dim of size 1; "" without a dim

    @property
    def has_columns(self) -> bool:
        """Return whether it has a number for each column."""
        return self.width not in ("", ONE)

    @property
    def is_row(self) -> bool:
        """Return whether it has a number for each column of each row."""
        return self.rows and self.has_columns


NUMBER = Space()


@dataclass(frozen=True, slots=True)
class Name:
    """A value named by a load or a line."""

    text: str
    space: Space
    kind: Kind = "real"


@dataclass(frozen=True, slots=True)
class Number:
    """A number common to all rows: a Python expression over numbers, attributes and the size of a row."""

    text: str
    space: Space = NUMBER
    kind: Kind = "real"


@dataclass(frozen=True, slots=True)
class Word:
    """An argument to select a function: `approximate='tanh'`."""

    value: object


@dataclass(frozen=True, slots=True)
class Apply:
    """A primitive of the rule table, element by element, with its arguments by parameter."""

    primitive: str
    args: "tuple[tuple[str, Value | Word], ...]"
    space: Space
    kind: Kind = "real"


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction of a row. An extremum with `nan` is NaN where a number of the row is."""

    fold: Fold
    value: "Value"
    space: Space
    kind: Kind = "real"
    nan: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """The number of the column."""

    space: Space
    kind: Kind = "int"


@dataclass(frozen=True, slots=True)
class Gather:
    """The number at one column of an input, NaN outside of the row."""

    load: str
    index: "Value"
    inside: "Value"  # whether there is such a column
    space: Space
    kind: Kind = "real"


Value = Name | Number | Apply | Reduce | Column | Gather


class Part(NamedTuple):
    """Columns of a longer row: the part `at` of `of` equal stretches, or, interleaved, each `of`-th column from `at` on."""

    at: int
    of: int
    interleaved: bool = False


class Repeat(NamedTuple):
    """How the rows of an input with fewer leading dims are matched to the op's rows, numbered over all leading dims.

    Row `r` reads row `r // times` of the input, modulo `every` if the numbers begin again; sizes of dims are multiplied. Over leading dims B, T:
    `x[B, 1, D]` has times T; `x[T, D]` has every T, again. With `within` it is `r // times * within + r % within`: of `c[B, 1, T, D]` over B, H, T
    times is H * T, and within is T.
    """

    every: tuple[str, ...]  # sizes, to be multiplied
    times: tuple[str, ...] = ()
    again: bool = True  # else `r // times` is always below `every`
    within: tuple[str, ...] = ()


class Load(NamedTuple):
    """A read of an input, and its name."""

    name: str
    source: str
    space: Space
    kind: Kind
    part: Part | None = None
    repeat: Repeat | None = None
    single: bool = False  # one number for all rows
    saved: Value | None = None  # how the forward computed it


class Line(NamedTuple):
    """A named value."""

    name: str
    value: Value


class Result(NamedTuple):
    """A result of a program: for each row or number, or summed over all rows. Several pieces lie in one row."""

    name: str
    pieces: tuple[tuple[Part | None, Value], ...]
    space: Space  # of each piece
    summed: bool = False
    source: str = ""  # the input that it is the gradient of
    repeat: Repeat | None = None  # of that input
    saved: bool = False  # for the backward alone, in the kernel's precision


class RowProgram(NamedTuple):
    """A kernel: its reads, its lines in order, its results."""

    loads: tuple[Load, ...]
    lines: tuple[Line, ...]
    results: tuple[Result, ...]
    width: str = ""  # what the number of columns is called
    constants: tuple[tuple[str, str], ...] = ()  # numbers, and what they are
    kept: str = ""  # the line of the test in a result `where(test, loss, 0.0)`
    factored: str = ""  # the gradient as `grad_output * ...`, for the docstring

    def values(self) -> Iterator[Value]:
        """Yield all expressions of the lines and results, each followed by those inside it."""
        whole = [line.value for line in self.lines]
        whole += (value for item in self.results for _, value in item.pieces)
        return (item for value in whole for item in parts(value))


def inner(value: Value) -> tuple[Value, ...]:
    """Return the values a value is computed from, one level down: `a * b` -> `a`, `b`; none of a name or number."""
    match value:
        case Apply(_, args):
            return tuple(item for _, item in args if not isinstance(item, Word))
        case Reduce(_, item):
            return (item,)
        case Gather(_, index, inside):
            return (index, inside)
    return ()


def parts(value: Value) -> Iterator[Value]:
    """Yield a value and, before its siblings, all values inside it; names are not followed to their lines."""
    yield value
    for item in inner(value):
        yield from parts(item)


def names_in(value: Value) -> set[str]:
    """Return the names of lines and loads in a value's own expression."""
    every = [*parts(value)]
    names = {item.text for item in every if isinstance(item, Name)}
    return names | {item.load for item in every if isinstance(item, Gather)}


def pruned(program: RowProgram) -> RowProgram:
    """Return a program without the loads and lines no result depends on."""
    pieces = (value for item in program.results for _, value in item.pieces)
    read = set[str]().union(*map(names_in, pieces))
    # From the end: a line is needed only by results and by later lines.
    for line in reversed(program.lines):
        if line.name in read:
            read |= names_in(line.value)
    loads = tuple(load for load in program.loads if load.name in read)
    lines = tuple(line for line in program.lines if line.name in read)
    return program._replace(loads=loads, lines=lines)


def free_name(
    word: str, value: Value, taken: Collection[str], line: Callable[[str], Value | None]
) -> str:
    """Return a free name for a value: the word, or, if it is taken, the word with the last input read by the value: `scores_teacher`.

    `line`: the value of the line with a name, or None for a load, to follow names down to inputs. If both names are taken, a number is added.
    """

    def source(item: Value) -> str:
        """Return the name of the last input a value reads; "" if it reads none."""
        if isinstance(item, Gather):
            return item.load
        if isinstance(item, Name):
            known = line(item.text)
            return item.text if known is None else source(known)
        return next(filter(None, map(source, reversed(inner(item)))), "")

    stem = f"{word}_{source(value)}" if word in taken else word
    # A value that reads no input adds nothing to the word.
    return fresh(stem.rstrip("_"), taken)
