"""Problems of one op, gathered, with places that are found only when there is one.

In: errors whose place is inside a value of the raw mapping (`within`). Out: errors with the real place.
Invariant: while an op reads well, no file is searched for line numbers.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from scaffold.errors import Location, ScaffoldError, raise_all

KeyPath = tuple[str, ...]  # ("grad", "weight"); items of a list by their number
T = TypeVar("T")

_MARK = "\0"  # no real source holds it: what follows is a key path


class Locate(Protocol):
    """Finds where the value of a key begins, or the key itself."""

    def __call__(self, path: KeyPath, *, key: bool = False) -> Location: ...


def within(path: KeyPath) -> Location:
    """The start of a value whose real place is not known yet."""
    return Location(_MARK + _MARK.join(path))


class Problems:
    """Collects what is wrong with one op."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._found: list[ScaffoldError] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, problem: ScaffoldError | None) -> None:
        """Note a problem whose place may be inside a value."""
        for item in problem.problems if problem else ():
            self._found.append(self._placed(item))

    def place(self, path: KeyPath) -> Location:
        """Where the value of a key begins."""
        return self._locate(path)

    def at(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Note a problem with a whole value."""
        self._found.append(ScaffoldError(message, self._locate(path), hint))

    def at_key(self, path: KeyPath, message: str, hint: str | None = None) -> None:
        """Note a problem with a key."""
        place = self._locate(path, key=True)
        self._found.append(ScaffoldError(message, place, hint))

    def attempt(self, read: Callable[[], T]) -> T | None:
        """What `read` returns, or None where it raises: then its problems are noted."""
        try:
            return read()
        except ScaffoldError as error:
            self.add(error)
            return None

    def raise_found(self) -> None:
        """Raise what was noted, in the order of the places."""
        raise_all(sorted(self._found, key=lambda item: item.location or Location("")))

    def _placed(self, problem: ScaffoldError) -> ScaffoldError:
        place = problem.location
        if place is None or not place.source.startswith(_MARK):
            return problem
        start = self._locate(tuple(place.source[1:].split(_MARK)))
        placed = type(problem)(problem.message, None, problem.hint)
        placed.location = start.shifted(place.line - 1, place.column - 1)
        return placed
