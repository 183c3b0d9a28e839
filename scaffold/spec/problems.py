"""The problems of one op, with places computed on demand.

In: errors with a place inside a value of the raw mapping (`within`). Out: the same, in the order of their places.
Invariant: without a problem, no file is searched for line numbers.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from scaffold.errors import Location, ScaffoldError, raise_all

KeyPath = tuple[str, ...]  # ("grad", "weight"); items of a list by their number
Value = TypeVar("Value")
_KEY = r"\b([a-z-]+) = \[?'([^'\]]*)'\]?"


class Locate(Protocol):
    """A function that returns the place of a key's value, or of the key itself."""

    def __call__(self, path: KeyPath, *, key: bool = False) -> Location: ...


class Sought(Location):
    """A place computed on demand, as for an error message."""

    __slots__ = ("_find", "_shifts")
    _find: Callable[[], Location]
    _shifts: tuple[tuple[int, int], ...]

    def __init__(
        self, find: Callable[[], Location], shifts: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """Remember how to find a place, and the lines and columns to go on from there."""
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
    """A collector of one op's problems."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._found: list[ScaffoldError] = []

    def __len__(self) -> int:
        return len(self._found)

    @property
    def found(self) -> tuple[ScaffoldError, ...]:
        """Return the problems reported so far."""
        return tuple(self._found)

    def add(self, problem: ScaffoldError | None) -> None:
        """Report a problem; its place may be inside a value."""
        for item in problem.problems if problem else ():
            self._found.append(_plain(item))

    def within(self, path: KeyPath) -> Location:
        """Return the place of a key's value, computed only if an error needs it."""
        return Sought(partial(self._locate, path))

    def at(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Report a problem with a whole value."""
        self._add(message, self._locate(path), hint)

    def at_key(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Report a problem with a key."""
        self._add(message, self._locate(path, key=True), hint)

    def _add(self, message: str, place: Location, hint: str | None) -> None:
        """Report a problem; in a hint for an option, write keys as options."""
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
    """Replace a problem's place by an ordinary `Location`, for comparison with others."""
    place = problem.location
    if place is not None and type(place) is not Location:
        problem.location = Location(place.source, place.line, place.column)
    return problem
