"""Edits of a manifest that keep its form and its comments.

In: the text of a manifest that can be read, and an op of it. Out: the text with the op replaced, renamed or gone.
Invariant: what is said of other ops is the same, byte for byte; an edit that would say anything else is refused.

An op takes its tables from the comment right above the header to the last value, the comment right below that, and the
blank lines after them. A comment that stands by itself is about the file, and stays. An op may also be written without a
table of its own: as dotted keys, or as a value between braces in a line of its own.
"""

import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.problems import KeyPath
from scaffold.spec.toml import (
    Statement,
    op_table,
    statements,
    toml_key,
    written_value,
)

OPS = "ops"
_DIRECTIVE = "#:"  # of an editor, about the whole file
_NOTHING = object()


class _Edit(NamedTuple):
    """A text that takes the place of what lies between two offsets."""

    start: int
    end: int
    text: str = ""


def without(text: str, op: str, place: Location) -> str:
    """The text without the op, and without the comments that belong to it."""
    left = {name: raw for name, raw in _ops(text).items() if name != op}
    return _checked(_edited(text, _removals(text, op)), left, op, place)


def renamed(text: str, op: str, new: str, place: Location) -> str:
    """The text with another name for the op, in the same place."""
    wanted = {new if name == op else name: raw for name, raw in _ops(text).items()}
    edits = []
    for statement in statements(text):
        number = 1 - len(statement.table)
        if statement.path[:2] == (OPS, op) and 0 <= number < len(statement.parts):
            part = statement.parts[number]
            edits.append(_Edit(part.start, part.end, toml_key(new)))
    return _checked(_edited(text, edits), wanted, op, place)


def replaced(text: str, op: str, keys: Mapping[str, Any], place: Location) -> str:
    """The text in which the op has those keys; what it said before and says still stays as it is written."""
    said: dict[str, Any] = tomllib.loads(op_table(op, keys))[OPS][op]
    ops = _ops(text)
    changed = _edited(text, _replacements(text, op, ops[op], said))
    return _checked(changed, {**ops, op: said}, op, place)


def _edited(text: str, edits: Iterable[_Edit]) -> str:
    """The text with edits that do not overlap; those of one place stand there in their order."""
    parts, done = [], 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*parts, text[done:]])


def _checked(text: str, wanted: dict[str, Any], op: str, place: Location) -> str:
    """The text, if it lists exactly those ops, in that order."""
    try:
        if list(_ops(text).items()) == list(wanted.items()):
            return text
    except tomllib.TOMLDecodeError:
        pass
    message = f"op '{op}' cannot be changed in this form of a table"
    raise ScaffoldError(message, place, f"write it as [{OPS}.{toml_key(op)}]")


def _ops(text: str) -> dict[str, Any]:
    ops: dict[str, Any] = tomllib.loads(text).get(OPS, {})
    return ops


class _Lines:
    """The lines of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def of(self, offset: int) -> int:
        """The number of the line that an offset is in."""
        return bisect_right(self.starts, offset) - 1

    def after(self, statement: Statement) -> int:
        """The number of the line below a statement."""
        return self.of(statement.end - 1) + 1

    def cut(self, number: int) -> _Edit:
        """A line gone, its end with it."""
        return _Edit(self.starts[number], min(self.starts[number + 1], len(self.text)))

    def is_blank(self, number: int) -> bool:
        return not self.lines[number].strip()

    def is_comment(self, number: int) -> bool:
        line = self.lines[number].lstrip()
        return line.startswith("#") and not line.startswith(_DIRECTIVE)


def _removals(text: str, op: str) -> Iterator[_Edit]:
    """The lines that an op takes, gone."""
    lines = _Lines(text)
    outer = [item for item in statements(text) if not item.inline]
    gone: set[int] = set()
    for number, item in enumerate(outer):
        if item.path[:2] != (OPS, op) or item.table[:2] == (OPS, op):
            continue
        if item.value is not None:
            gone |= {*range(_above(lines, lines.of(item.start)), lines.after(item))}
            continue
        body = [other for other in outer[number + 1 :] if other.table == item.path]
        later = outer[number + 1 + len(body) :]
        following = lines.of(later[0].start) if later else len(lines.lines)
        gone |= {*_table(lines, item, [item, *body][-1], following)}
    end = len(lines.lines)
    if end - 1 in gone:  # nothing follows: the blank lines above go too
        while end > 0 and (end - 1 in gone or lines.is_blank(end - 1)):
            end -= 1
            gone.add(end)
    yield from map(lines.cut, sorted(gone))


def _above(lines: _Lines, first: int) -> int:
    """The line where the comment begins that stands right above another."""
    while first > 0 and lines.is_comment(first - 1):
        first -= 1
    return first


def _table(lines: _Lines, header: Statement, last: Statement, following: int) -> range:
    """The lines of a table, with the comments that belong to it and the blank lines after them."""
    end = below = lines.after(last)
    while below < following and lines.is_comment(below):
        below += 1
    if below < following or following == len(lines.lines):
        end = below  # or else the comment is about what follows
    while end < len(lines.lines) and lines.is_blank(end):
        end += 1
    return range(_above(lines, lines.of(header.start)), end)


def _replacements(
    text: str, op: str, before: Mapping[str, Any], said: Mapping[str, Any]
) -> Iterator[_Edit]:
    """What changes where the op says it: other values, keys that go, keys that come."""
    lines = _Lines(text)
    outer = [i for i in statements(text) if i.path[:2] == (OPS, op) and not i.inline]
    stays: list[Statement] = []
    covered: list[KeyPath] = []
    for item in outer:
        path = item.path[2:]
        value = _at(said, path)
        if value is _NOTHING or item.value is None and not isinstance(value, Mapping):
            yield from map(lines.cut, range(lines.of(item.start), lines.after(item)))
            continue
        stays.append(item)
        if item.value is not None:
            covered.append(path)
            if value != _at(before, path):
                yield _Edit(item.value, item.end, written_value(value))
    for path, value in _leaves(said):
        if not any(path[: len(known)] == known for known in covered):
            yield from _addition(lines, stays, (OPS, op, *path), value)


def _addition(
    lines: _Lines, places: list[Statement], path: KeyPath, value: Any
) -> Iterator[_Edit]:
    """A key that comes, below the last line of the innermost table that it belongs to."""
    fitting = [
        (len(table), number, item)
        for number, item in enumerate(places)
        for table in (item.path if item.value is None else item.table,)
        if path[: len(table)] == table
    ]
    if fitting:
        depth, _, item = max(fitting)
        end = lines.starts[lines.after(item)] - 1
        key = ".".join(map(toml_key, path[depth:]))
        yield _Edit(end, end, f"\n{key} = {written_value(value)}")


def _at(table: Mapping[str, Any], path: KeyPath) -> Any:
    """The value of a path of keys, or _NOTHING."""
    found: Any = table
    for key in path:
        found = found.get(key, _NOTHING) if isinstance(found, Mapping) else _NOTHING
    return found


def _leaves(table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            for path, leaf in _leaves(value):
                yield (key, *path), leaf
        else:
            yield (key,), value
