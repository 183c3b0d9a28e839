"""Where three versions of a sequence agree, and where they do not: diff3, over difflib.

In: the common ancestor and its two descendants, as sequences of lines or of anything that can be compared and hashed.
Out: `Hunk`s, from the start to the end, which cover all three.
Invariant: what is agreed on stands in all three, in their order; between two agreements each of the three has its hunk,
which may be empty.

The algorithm is that of Khanna, Kunal and Pierce, "A Formal Investigation of Diff3" (2007): what both descendants have in
common with the ancestor is stable, the rest lies in between.
"""

from collections.abc import Hashable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import NamedTuple


class Hunk(NamedTuple):
    """A part of each of the three; where it is `stable` the three are equal."""

    stable: bool
    base: slice
    mine: slice
    new: slice


class _Start(NamedTuple):
    """An index into each of the three."""

    base: int
    mine: int
    new: int


def diff3(
    base: Sequence[Hashable], mine: Sequence[Hashable], new: Sequence[Hashable]
) -> Iterator[Hunk]:
    """The parts of three versions in turn: what they disagree on, then what they agree on; none is empty in all."""
    at = _Start(0, 0, 0)
    for start, size in _agreements(base, mine, new):
        end = _Start(*(index + size for index in start))
        if start != at:
            yield Hunk(False, *map(slice, at, start))
        if size:
            yield Hunk(True, *map(slice, start, end))
        at = end


def _agreements(
    base: Sequence[Hashable], mine: Sequence[Hashable], new: Sequence[Hashable]
) -> Iterator[tuple[_Start, int]]:
    """Where the runs begin that stand in all three, and how long they are; last the ends, with a size of 0."""
    ours, theirs = iter(_matches(base, mine)), iter(_matches(base, new))
    one, other = next(ours), next(theirs)
    while True:
        start = max(one.a, other.a)
        end = min(one.a + one.size, other.a + other.size)
        if start < end:
            of_mine, of_new = one.b + start - one.a, other.b + start - other.a
            yield _Start(start, of_mine, of_new), end - start
        if one.size == 0 or other.size == 0:
            break
        if one.a + one.size <= other.a + other.size:
            one = next(ours)
        else:
            other = next(theirs)
    yield _Start(len(base), len(mine), len(new)), 0


def _matches(base: Sequence[Hashable], other: Sequence[Hashable]) -> list[Match]:
    # autojunk: difflib would ignore lines that are frequent, such as blank ones and brackets.
    return SequenceMatcher(None, base, other, autojunk=False).get_matching_blocks()
