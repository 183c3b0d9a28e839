"""Edits of a manifest, preserving its form and its comments.

`scaffold remove`, `rename` and `new-op` of an existing name change the user's own file. In: the text of a valid manifest, and one of
its ops. Out: the text with the op replaced, renamed or removed.
Invariant: the text of other ops stays the same, byte for byte; an edit with any other effect is refused.

Words: *outer* statements are those outside inline tables; lines to remove are *gone*, statements that stay are *kept*; *wanted* is the
table as it has to read after the edit.

An op takes its tables from the comment right above the header to the last value, the comment right below, and the
blank lines after them. A separate comment is about the file, and stays. An op may also be written without a
table of its own: as dotted keys, or as an inline table on its own line.
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
    """A text to write in place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str = ""


def without(text: str, op: str, place: Location) -> str:
    """Return the manifest without an op and its comments; raise ScaffoldError, at `place`, if its form does not allow it."""
    left = {name: raw for name, raw in _ops(text).items() if name != op}
    return _checked(_edited(text, _removals(text, op)), left, op, place)


def renamed(text: str, op: str, new: str, place: Location) -> str:
    """Return the manifest with an op called `new`, its table as it was; raise ScaffoldError, at `place`, if its form does not allow it."""
    wanted = {new if name == op else name: raw for name, raw in _ops(text).items()}
    edits = []
    for statement in statements(text):
        # Of the written key the part with the op's name: the second of `[ops.swish]`, the first of `swish.inputs` below `[ops]`.
        number = 1 - len(statement.table)
        if statement.path[:2] == (OPS, op) and 0 <= number < len(statement.parts):
            part = statement.parts[number]
            edits.append(_Edit(part.start, part.end, toml_key(new)))
    return _checked(_edited(text, edits), wanted, op, place)


def replaced(text: str, op: str, keys: Mapping[str, Any], place: Location) -> str:
    """Return the manifest with these keys for an op, unchanged values as they are written; raise ScaffoldError if its form does not allow it.

    `wanted` are the keys as TOML would read them again.
    """
    wanted: dict[str, Any] = tomllib.loads(op_table(op, keys))[OPS][op]
    ops = _ops(text)
    changed = _edited(text, _replacements(text, op, ops[op], wanted))
    return _checked(changed, {**ops, op: wanted}, op, place)


def _edited(text: str, edits: Iterable[_Edit]) -> str:
    """Return the text with edits applied; they must not overlap. Of several at one offset the first comes first in the result."""
    parts, done = [], 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*parts, text[done:]])


def _checked(text: str, wanted: dict[str, Any], op: str, place: Location) -> str:
    """Return an edited text if it reads as exactly the `wanted` ops, in their order; raise ScaffoldError, about `op`, otherwise.

    So an edit of a form of TOML not thought of here can never spoil a file.
    """
    try:
        if list(_ops(text).items()) == list(wanted.items()):
            return text
    except tomllib.TOMLDecodeError:
        pass
    message = f"op '{op}' cannot be changed in this form of a table"
    raise ScaffoldError(message, place, f"write it as [{OPS}.{toml_key(op)}]")


def _ops(text: str) -> dict[str, Any]:
    """Return the tables below `[ops]` by name."""
    ops: dict[str, Any] = tomllib.loads(text).get(OPS, {})
    return ops


class _Lines:
    """The lines of a text, to go from offsets of statements to whole lines and back; numbers of lines count from 0."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def of(self, offset: int) -> int:
        """Return the number of the line at an offset."""
        return bisect_right(self.starts, offset) - 1

    def after(self, statement: Statement) -> int:
        """Return the number of the line below a statement."""
        return self.of(statement.end - 1) + 1

    def cut(self, number: int) -> _Edit:
        """Return an edit to remove a line with its line end."""
        return _Edit(self.starts[number], min(self.starts[number + 1], len(self.text)))

    def is_blank(self, number: int) -> bool:
        return not self.lines[number].strip()

    def is_comment(self, number: int) -> bool:
        """Return whether a line is a comment on an op; one beginning with `#:` is an editor's directive, about the file."""
        line = self.lines[number].lstrip()
        return line.startswith("#") and not line.startswith(_DIRECTIVE)


def _removals(text: str, op: str) -> Iterator[_Edit]:
    """Yield the edits to remove an op's lines, whatever its form: tables, dotted keys or an inline table.

    Each header of the op goes with the assignments below it (`body`) and its comments; `following` is the line of the next
    statement. An assignment outside a table of the op, `ops.swish.inputs = ...`, goes alone.
    """
    lines = _Lines(text)
    # What stands inside an inline table goes with it.
    outer = [item for item in statements(text) if not item.inline]
    gone: set[int] = set()
    for number, item in enumerate(outer):
        # Of another op; or inside a table of this one, with whose header it goes.
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
    if end - 1 in gone:  # the op was last: remove the blank lines above too
        while end > 0 and (end - 1 in gone or lines.is_blank(end - 1)):
            end -= 1
            gone.add(end)
    yield from map(lines.cut, sorted(gone))


def _above(lines: _Lines, first: int) -> int:
    """Return the number of the first line of the comment right above the line `first`; that line's own without a comment."""
    while first > 0 and lines.is_comment(first - 1):
        first -= 1
    return first


def _table(lines: _Lines, header: Statement, last: Statement, following: int) -> range:
    """Return the line numbers of a table from the comment above its header to the blank lines below `last`, its last statement.

    A comment right below belongs to the table, unless it touches the next statement, at the line `following`: then it is about that.
    """
    end = below = lines.after(last)
    while below < following and lines.is_comment(below):
        below += 1
    if below < following or following == len(lines.lines):
        end = below  # otherwise the comment is about the next table
    while end < len(lines.lines) and lines.is_blank(end):
        end += 1
    return range(_above(lines, lines.of(header.start)), end)


def _replacements(
    text: str, op: str, before: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Iterator[_Edit]:
    """Yield the edits that turn an op's values, `before`, into the `wanted` ones: changed values, removed keys, new keys at the end."""
    lines = _Lines(text)
    # A path begins with `ops` and the op's name, (OPS, op); the rest is the key.
    outer = [i for i in statements(text) if i.path[:2] == (OPS, op) and not i.inline]
    kept: list[Statement] = []
    written: list[KeyPath] = []  # of kept values: no key at or below one is new
    for item in outer:
        path = item.path[2:]
        value = _at(wanted, path)
        # Cut a key that is gone, and the header of a table that is none any more.
        if value is _NOTHING or item.value is None and not isinstance(value, Mapping):
            yield from map(lines.cut, range(lines.of(item.start), lines.after(item)))
            continue
        kept.append(item)
        if item.value is not None:
            written.append(path)
            # An equal value stays as it is written, with its comments.
            if value != _at(before, path):
                yield _Edit(item.value, item.end, written_value(value))
    for path, value in _leaves(wanted):
        if not any(path[: len(known)] == known for known in written):
            yield from _addition(lines, kept, (OPS, op, *path), value)


def _addition(
    lines: _Lines, places: list[Statement], path: KeyPath, value: Any
) -> Iterator[_Edit]:
    """Yield the edit to add a key with its value below the last line of the innermost table able to hold it; nothing without one.

    `places` are the op's statements that stay. `grad.x` goes into `[ops.f.grad]` as `x = ...` if that is there, else into `[ops.f]`
    as `grad.x = ...`: of all tables of `places` the deepest that is around the path.
    """
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
    """Return the value of a table at a path of keys; `_NOTHING` if there is none: no value of TOML is that object."""
    found: Any = table
    for key in path:
        found = found.get(key, _NOTHING) if isinstance(found, Mapping) else _NOTHING
    return found


def _leaves(table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the path and value of each key assigned: `{"grad": {"x": "1"}}` -> `("grad", "x"), "1"`; an empty table is a value."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            for path, leaf in _leaves(value):
                yield (key, *path), leaf
        else:
            yield (key,), value
