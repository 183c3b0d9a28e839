"""A three-way merge of texts: the edits of a file and those of its generator, both kept.

In: the text as last written, the file as it is, the text as it would be written now. Out: a `Merged`.
Invariant: where one side alone says something else, it is heard; what both say otherwise stands between markers. Of the
same statement in two spellings the file's is kept, so that a formatter neither conflicts nor gets lost.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from scaffold.workspace.diff3 import diff3
from scaffold.workspace.imports import merge_imports
from scaffold.workspace.normal_form import unix
from scaffold.workspace.statements import Statement, cut, split

YOURS, BASE, OURS = "yours", "base", "scaffold"
_MARKER = re.compile(r"^(<{7}|\|{7}|>{7})( .*)?$", re.MULTILINE)
Side = tuple[Statement, ...]


class Merged(NamedTuple):
    """A merged text and the number of its places that are left for the user to settle."""

    text: str
    conflicts: int


class _Sides(NamedTuple):
    """The same part of the three texts."""

    base: Side
    mine: Side
    new: Side


def has_markers(text: str) -> bool:
    """Whether a merge, ours or another's, left a place to settle; `=======` alone says nothing."""
    return _MARKER.search(unix(text)) is not None


def merge(base: str, mine: str, new: str) -> Merged:
    """Bring what is new since `base` into `mine`; the lines of the result end in a newline."""
    if new in (base, mine):
        return Merged(mine, 0)
    if mine == base:
        return Merged(new, 0)
    texts = [_ended(unix(text)) for text in (base, mine, new)]
    sides = [cut(text) for text in texts]
    if None in sides:
        return _merged(_Sides(*map(_lines, texts)))
    merged = _merged(_with_imports(_Sides(*(side or () for side in sides))))
    if not merged.conflicts and cut(merged.text) is None:
        return _opposed(*map(split, texts))
    return merged


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _lines(text: str) -> Side:
    """The statements of what is no Python: its lines."""
    return tuple(Statement(line, line.rstrip()) for line in split(text))


def _with_imports(sides: _Sides) -> _Sides:
    """The sides with the runs of imports merged, where each has the same number of them."""
    runs = [[i for i, item in enumerate(side) if item.imports] for side in sides]
    if len({len(places) for places in runs}) > 1:
        return sides
    lists = [list(side) for side in sides]
    for places in zip(*runs, strict=True):
        base, mine, new = (side[i] for side, i in zip(lists, places, strict=True))
        if mine.text == base.text or new.form in (base.form, mine.form):
            continue
        text = merge_imports(base, mine, new)
        if text is not None:
            for side, place in zip(lists, places, strict=True):
                side[place] = Statement(text, mine.form)
    return _Sides(*map(tuple, lists))


def _merged(sides: _Sides) -> Merged:
    parts: list[str] = []
    conflicts = 0
    for hunk in diff3(*map(_forms, sides)):
        part = _Sides(sides.base[hunk.base], sides.mine[hunk.mine], sides.new[hunk.new])
        if hunk.stable:
            parts += map(_spelling, *part)
            continue
        text, count = _decide(part)
        parts.append(text)
        conflicts += count
    return Merged("".join(parts), conflicts)


def _spelling(base: Statement, mine: Statement, new: Statement) -> str:
    """The text of what all three say: the file's, unless it is as it was written."""
    return new.text if mine.text == base.text else mine.text


def _decide(gap: _Sides) -> Merged:
    """The text for a place where the sides differ."""
    base, mine, new = map(_forms, gap)
    if mine == base:
        return Merged(_text(gap.new), 0)
    if new in (base, mine):
        return Merged(_text(gap.mine), 0)
    return _merged_lines(*(split(_text(side)) for side in gap))


def _forms(side: Side) -> list[str]:
    return [statement.form for statement in side]


def _text(side: Side) -> str:
    return "".join(statement.text for statement in side)


def _merged_lines(base: list[str], mine: list[str], new: list[str]) -> Merged:
    """What becomes of statements that both sides changed: their lines, merged."""
    parts: list[str] = []
    conflicts = 0
    for hunk in diff3(base, mine, new):
        old, here, then = base[hunk.base], mine[hunk.mine], new[hunk.new]
        if here == old:
            parts += then
        elif then in (old, here):
            parts += here
        else:
            parts.append(_marked(old, here, then))
            conflicts += 1
    return Merged("".join(parts), conflicts)


def _marked(base: Sequence[str], mine: Sequence[str], new: Sequence[str]) -> str:
    """A place for the user to settle: the three texts between markers."""
    first, second, third = ("".join(side) for side in (mine, base, new))
    return (
        f"<<<<<<< {YOURS}\n{first}||||||| {BASE}\n{second}"
        f"=======\n{third}>>>>>>> {OURS}\n"
    )


def _opposed(base: list[str], mine: list[str], new: list[str]) -> Merged:
    """All that lies between the lines that the three texts start and end with, as one conflict."""
    sides = (base, mine, new)
    head = _common(*sides)
    tail = _common(*(side[head:][::-1] for side in sides))
    middle = (side[head : len(side) - tail] for side in sides)
    end = mine[len(mine) - tail :]
    return Merged("".join([*mine[:head], _marked(*middle), *end]), 1)


def _common(*sides: Sequence[str]) -> int:
    """How many lines all sides start with."""
    count = 0
    for lines in zip(*sides, strict=False):
        if len(set(lines)) > 1:
            break
        count += 1
    return count
