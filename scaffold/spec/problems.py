"""The problems of one op, with places computed on demand.

Every reader of an op's keys reports here instead of raising, so that the user sees all mistakes at once. In: errors with a
place inside a value of the raw mapping (`within`). Out: the same, in the order of their places. Invariant: without a problem,
no file is searched for line numbers.

Words: a *path* leads to a value of the op's table, `("grad", "weight")`; `locate(path)` finds its place, a line and a column of
a TOML file or an option (`--grad`); it is slow, so it is called only for an error.
"""

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol, TypeVar

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all

KeyPath = tuple[str, ...]  # ("grad", "weight"); items of a list by their number
Value = TypeVar("Value")
# A key and its value in a hint, `style = 'combined'`: `--style 'combined'` as an option.
_KEY = r"\b([a-z-]+) = \[?'([^'\]]*)'\]?"


class Locate(Protocol):
    """A function that returns the place of a key's value, or of the key itself."""

    def __call__(self, path: KeyPath, *, key: bool = False) -> Location: ...


class Sought(Location):
    """A place computed on demand: parsers get one for every text, and only an error message looks at it.

    It behaves as the `Location` that `_find` returns, moved on by each of the `_shifts`, (lines, columns).
    """

    __slots__ = ("_find", "_shifts")
    _find: Callable[[], Location]
    _shifts: tuple[tuple[int, int], ...]

    def __init__(
        self, find: Callable[[], Location], shifts: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """Remember how to find a place, and the lines and columns to go on from there. `Location` is frozen: so `object.__setattr__`."""
        object.__setattr__(self, "_find", find)
        object.__setattr__(self, "_shifts", shifts)

    def found(self) -> Location:
        """Return the place as an ordinary `Location`."""
        place = self._find()
        for line, column in self._shifts:
            place = place.shifted(line, column)
        return place

    def shifted(self, line: int, column: int) -> Location:
        return Sought(self._find, (*self._shifts, (line, column)))

    def __getattr__(self, name: str) -> object:
        return getattr(self.found(), name)  # only `Location` has the fields

    def __reduce__(self) -> tuple[type[Location], tuple[str, int, int]]:
        """Pickle as an ordinary `Location`, for other processes."""
        place = self.found()
        return Location, (place.source, place.line, place.column)

    def __eq__(self, other: object) -> bool:
        return self.found() == (other.found() if isinstance(other, Sought) else other)

    def __hash__(self) -> int:
        return hash(self.found())


def always_at(source: str) -> Locate:
    """Return a `Locate` with one place for every key."""

    def locate(path: KeyPath, *, key: bool = False) -> Location:
        return Location(source)

    return locate


class Problems:
    """A collector of one op's problems: readers report to it and go on, `raise_found` raises all of them."""

    def __init__(self, locate: Locate) -> None:
        """Begin without problems; `locate` finds the place of a key of the op."""
        self._locate = locate
        self._found: list[ScaffoldError] = []

    def __len__(self) -> int:
        return len(self._found)

    @property
    def found(self) -> tuple[ScaffoldError, ...]:
        """Return the problems reported so far."""
        return tuple(self._found)

    def add(self, problem: ScaffoldError | None) -> None:
        """Report a problem, or each of several joined in one error; None reports nothing."""
        for item in problem.problems if problem else ():
            self._found.append(_plain(item))

    def within(self, path: KeyPath) -> Location:
        """Return the place of a key's value, computed only if an error needs it."""
        return Sought(partial(self._locate, path))

    def at(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Report a problem with a whole value, at the value."""
        self._add(message, self._locate(path), hint)

    def at_key(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Report a problem with a key, at the key itself: it is unknown, say."""
        self._add(message, self._locate(path, key=True), hint)

    def unknown_key(self, path: KeyPath, table: str, known: Collection[str]) -> None:
        """Report a key of a table that is none of the `known` ones; the hint is the most similar one, or all of them."""
        hint = did_you_mean(path[-1], known) or f"the keys: {', '.join(known)}"
        self.at_key(path, f"unknown key '{path[-1]}' in {table}", hint)

    def _add(self, message: str, place: Location, hint: str | None) -> None:
        """Report a problem at a place; if that is an option, a key in the hint is written as one: `style = 'x'` -> `--style 'x'`."""
        if hint and place.source.startswith("--"):
            hint = re.sub(_KEY, r"--\1 '\2'", hint)
        self.add(ScaffoldError(message, place, hint))

    def attempt(self, read: Callable[[], Value]) -> Value | None:
        """Return the result of `read`; if it raises, report its problems and return None."""
        try:
            return read()
        except ScaffoldError as error:
            self.add(error)
            return None

    def raise_found(self) -> None:
        """Raise the reported problems, if any, in the order of their places."""
        raise_all(sorted(self._found, key=lambda item: item.location or Location("")))


def _plain(problem: ScaffoldError) -> ScaffoldError:
    """Replace a problem's place, found on demand, by an ordinary `Location`: it can be sorted with others. Return the same problem."""
    place = problem.location
    if place is not None and type(place) is not Location:
        problem.location = Location(place.source, place.line, place.column)
    return problem
