"""Free names for values added to the user's.

In: preferred names, and the names taken. Out: a name not taken. Invariant: a name gets a number only if it is taken
without one.
"""

from collections.abc import Collection
from itertools import count


def fresh(stem: str, taken: Collection[str], sign: str = "_") -> str:
    """Return the stem, with a number if it is taken: `x`, `x_2`, or `x2` for an empty sign."""
    return stem if stem not in taken else _numbered(stem, taken, sign)


def numbered(stem: str, taken: Collection[str]) -> str:
    """Return the stem with the first free number, in the style of names written by hand: `mask2`."""
    return _numbered(stem, taken, "_" if any(map(str.isdigit, stem)) else "")


def take(taken: set[str], *stems: str, sign: str = "_") -> str:
    """Return the first free stem, else the last with a number, and mark it as taken."""
    free = (stem for stem in stems if stem not in taken)
    name = next(free, None) or fresh(stems[-1], taken, sign)
    taken.add(name)
    return name


def _numbered(stem: str, taken: Collection[str], sign: str) -> str:
    numbers = (f"{stem}{sign}{number}" for number in count(2))
    return next(name for name in numbers if name not in taken)
