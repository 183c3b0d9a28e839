"""The lines of a manifest that an op takes, and what becomes of the text without them or under another name.

In: the text of a manifest that can be read, and an op of it. Out: the text again.
Invariant: what is said of other ops is the same, byte for byte; an op whose table has no header of its own is refused.

An op takes its tables from the comment right above the header to the last value, the comment right below that, and the
blank lines after them. A comment that stands by itself is about the file, and stays.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

_OPS = r"""(?:ops|"ops"|'ops')"""
_DIRECTIVE = "#:"  # of an editor, about the whole file


class _Table(NamedTuple):
    """A table of the text: its header's line, and the line after its last."""

    first: int
    end: int


def without_op(text: str, op: str) -> str | None:
    """The text without the op; None where the op has no lines of its own."""
    lines = text.splitlines(keepends=True)
    gone: set[int] = set()
    for table in _tables_of(lines, op):
        first, end = _extent(lines, table)
        while end < len(lines) and not lines[end].strip():
            end += 1
        if end == len(lines):
            while first > 0 and not lines[first - 1].strip():
                first -= 1
        gone |= set(range(first, end))
    kept = "".join(line for number, line in enumerate(lines) if number not in gone)
    return kept if _says(kept, _ops(text, op)) else None


def renamed_op(text: str, op: str, new: str) -> str | None:
    """The text with another name for the op; None where the name stands in no header."""
    lines = text.splitlines(keepends=True)
    name = rf"""(?:{re.escape(op)}|"{re.escape(op)}"|'{re.escape(op)}')"""
    header = re.compile(rf"(\s*\[+\s*{_OPS}\s*\.\s*){name}(?=\s*[.\]])")
    for table in _tables_of(lines, op):
        line = lines[table.first]
        lines[table.first] = header.sub(rf"\g<1>{new}", line, count=1)
    changed = "".join(lines)
    wanted = {new if name == op else name: raw for name, raw in _ops(text).items()}
    return changed if _says(changed, wanted) else None


def _says(text: str, ops: dict[str, Any]) -> bool:
    """Whether a text lists exactly those ops, in that order."""
    try:
        found = _ops(text)
    except tomllib.TOMLDecodeError:
        return False
    return list(found.items()) == list(ops.items())


def _ops(text: str, leaving_out: str | None = None) -> dict[str, Any]:
    ops: dict[str, Any] = tomllib.loads(text).get("ops", {})
    return {name: raw for name, raw in ops.items() if name != leaving_out}


def _tables_of(lines: list[str], op: str) -> Iterator[_Table]:
    """The tables of an op, its own and those below it, each up to the next header, whosever that is."""
    candidates = [
        (number, keys) for number, line in enumerate(lines) if (keys := _header(line))
    ]
    for position, (number, keys) in enumerate(candidates):
        if keys[:2] != ("ops", op) or not _between_values(lines, number):
            continue
        later = (other for other, _ in candidates[position + 1 :])
        end = next((n for n in later if _between_values(lines, n)), len(lines))
        yield _Table(number, end)


def _header(line: str) -> tuple[str, ...]:
    """The keys of a line that looks like a header; it may still be part of a value."""
    if not line.lstrip().startswith("["):
        return ()
    try:
        found: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    keys = []
    while found:
        found = found[0] if isinstance(found, list) else found
        if not found:
            break
        key, found = next(iter(found.items()))
        keys.append(key)
    return tuple(keys)


def _between_values(lines: list[str], number: int) -> bool:
    """Whether a line begins outside of any value that spans lines."""
    try:
        tomllib.loads("".join(lines[:number]))
    except tomllib.TOMLDecodeError:
        return False
    return True


def _extent(lines: list[str], table: _Table) -> tuple[int, int]:
    """The lines of a table with the comments that belong to it."""
    first = table.first
    while first > 0 and _is_comment(lines[first - 1]):
        first -= 1
    end = table.end
    while end > table.first + 1 and _is_aside(lines, end - 1):
        end -= 1
    below = end
    while below < table.end and _is_comment(lines[below]):
        below += 1
    touches_next = below == table.end and below < len(lines)
    return first, end if touches_next else below


def _is_comment(line: str) -> bool:
    stripped = line.lstrip()
    return stripped.startswith("#") and not stripped.startswith(_DIRECTIVE)


def _is_aside(lines: list[str], number: int) -> bool:
    """Whether a line is blank or a comment, and not within a value."""
    plain = not lines[number].strip() or lines[number].lstrip().startswith("#")
    return plain and _between_values(lines, number)
