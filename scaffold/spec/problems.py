"""Problems of one op, gathered, with places that are found only when there is one.

In: errors whose place is inside a value of the raw mapping (`within`). Out: the same, in the order of their places.
Invariant: while an op reads well, no file is searched for line numbers.
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
    """Finds where the value of a key begins, or the key itself."""

    def __call__(self, path: KeyPath, *, key: bool = False) -> Location: ...


class Sought(Location):
    """A place that is searched for when someone asks: for the error message, or never."""

    __slots__ = ("_find", "_shifts")
    _find: Callable[[], Location]
    _shifts: tuple[tuple[int, int], ...]

    def __init__(
        self, find: Callable[[], Location], shifts: tuple[tuple[int, int], ...] = ()
    ) -> None:
        object.__setattr__(self, "_find", find)
        object.__setattr__(self, "_shifts", shifts)

    def found(self) -> Location:
        """The place, as an ordinary `Location`."""
        place = self._find()
        for line, column in self._shifts:
            place = place.shifted(line, column)
        return place

    def shifted(self, line: int, column: int) -> Location:
        return Sought(self._find, (*self._shifts, (line, column)))

    def __getattr__(self, name: str) -> object:
        return getattr(self.found(), name)  # the fields of a Location are not set here

    def __reduce__(self) -> tuple[type[Location], tuple[str, int, int]]:
        place = self.found()
        return Location, (place.source, place.line, place.column)

    def __eq__(self, other: object) -> bool:
        return self.found() == (other.found() if isinstance(other, Sought) else other)

    def __hash__(self) -> int:
        return hash(self.found())


class Problems:
    """Collects what is wrong with one op."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._found: list[ScaffoldError] = []

    def __len__(self) -> int:
        return len(self._found)

    @property
    def found(self) -> tuple[ScaffoldError, ...]:
        """What was noted so far."""
        return tuple(self._found)

    def add(self, problem: ScaffoldError | None) -> None:
        """Note a problem whose place may be inside a value."""
        for item in problem.problems if problem else ():
            self._found.append(_plain(item))

    def within(self, path: KeyPath) -> Location:
        """Where the value of a key begins; nothing is searched until an error needs it."""
        return Sought(partial(self._locate, path))

    def at(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Note a problem with a whole value."""
        self._add(message, self._locate(path), hint)

    def at_key(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Note a problem with a key."""
        self._add(message, self._locate(path, key=True), hint)

    def _add(self, message: str, place: Location, hint: str | None) -> None:
        """A hint writes a key as a file has it; where the place is an option, so is the key."""
        if hint and place.source.startswith("--"):
            hint = re.sub(_KEY, r"--\1 '\2'", hint)
        self.add(ScaffoldError(message, place, hint))

    def attempt(self, read: Callable[[], Value]) -> Value | None:
        """What `read` returns, or None where it raises: then its problems are noted."""
        try:
            return read()
        except ScaffoldError as error:
            self.add(error)
            return None

    def raise_found(self) -> None:
        """Raise what was noted, in the order of the places."""
        raise_all(sorted(self._found, key=lambda item: item.location or Location("")))


def _plain(problem: ScaffoldError) -> ScaffoldError:
    """The problem with an ordinary `Location`, which can be compared with others."""
    place = problem.location
    if place is not None and type(place) is not Location:
        problem.location = Location(place.source, place.line, place.column)
    return problem
