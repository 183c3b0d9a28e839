"""Names that are free, for what is made beside what the user wrote.

In: what a value would be called, and the names that are taken. Out: a name that is none of them. Invariant: a name has no number where it
is free without one.
"""

from collections.abc import Collection
from itertools import count


def fresh(stem: str, taken: Collection[str], sign: str = "_") -> str:
    """The stem, with a number if it is taken: `x`, `x_2`, and `x2` where the sign is empty."""
    return stem if stem not in taken else _numbered(stem, taken, sign)


def numbered(stem: str, taken: Collection[str]) -> str:
    """The stem with the first number that makes it free, as a second mask is called by hand: `mask2`."""
    return _numbered(stem, taken, "_" if any(map(str.isdigit, stem)) else "")


def take(taken: set[str], *stems: str, sign: str = "_") -> str:
    """The first of the stems that is free, else the last with a number; it is taken from now on."""
    free = (stem for stem in stems if stem not in taken)
    name = next(free, None) or fresh(stems[-1], taken, sign)
    taken.add(name)
    return name


def _numbered(stem: str, taken: Collection[str], sign: str) -> str:
    numbers = (f"{stem}{sign}{number}" for number in count(2))
    return next(name for name in numbers if name not in taken)
