"""Excerpts of the user's text: the line of an error, and carets below the place.

So a user sees the wrong word itself, as compilers show it:

    --forward, line 1, column 5: unknown name 'sigmod'
        1 | x * sigmod(x)
          |     ^^^^^^

In: an error whose place is in a file or in the value of an option. Out: two lines to print below its message.
Invariant: an error about a text as a whole (line 1, column 1, where the text does not begin with what the error quotes) has none,
and neither has a place that cannot be read.
"""

import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from scaffold.errors import ScaffoldError
from scaffold.files import read_text

# The words after the command of this run, for the text of an option.
ARGUMENTS: ContextVar[Sequence[str]] = ContextVar("ARGUMENTS", default=())
QUOTED = re.compile(r"'([^']+)'")
LONG = 120  # characters: of a longer line, a part is shown
BEFORE = 60  # characters of such a part before the place


def excerpt(error: ScaffoldError) -> tuple[str, str, str] | None:
    """Return the line of an error's place behind its number, the margin and spaces below, and carets; None if the line is unclear.

    It is unclear if an option is given twice, and the place may be in either value. `name` is what the message quotes.
    """
    place = error.location
    if place is None:
        return None
    name = quoted[1] if (quoted := QUOTED.search(error.message)) else ""
    column = place.column - 1
    lines = [
        rows[place.line - 1]
        for text in _texts(place.source)
        # An option given twice has two texts, and the place may be in only one of them.
        if len(rows := text.split("\n")) >= place.line
        and column <= len(rows[place.line - 1])
    ]
    # A line that is all name is in the message already.
    named = {line for line in lines if line != name and _begins(line, column, name)}
    # The place of an error about a text as a whole: nothing is to be marked there, unless the quoted name begins it.
    whole = (place.line, place.column) == (1, 1)
    found = named or (set() if whole else {*lines})
    if len(found) != 1 or not (line := found.pop()).strip():
        return None
    column, count = _marked(line, column, name)
    line, column = _part(line, column)
    shown = "".join(letter if letter.isprintable() else " " for letter in line)
    return f"{place.line:5} | {shown}", f"{'':5} | {' ' * column}", "^" * count


def _texts(source: str) -> Iterator[str]:
    """Yield the text an error's place counts in: that of a file, or each value given for an option on this command line."""
    # A place is in a file, or in the value of an option, `--forward`.
    if not source.startswith("-"):
        try:
            yield read_text(source)
        except (OSError, ValueError):
            return
    words = ARGUMENTS.get()
    for at, word in enumerate(words):
        if word == source and at + 1 < len(words):
            yield words[at + 1]
        elif word.startswith(f"{source}="):
            yield word.removeprefix(f"{source}=")


def _begins(line: str, column: int, name: str) -> bool:
    """Return whether a name stands at a column as a whole word; False for an empty one."""
    after = line[column + len(name) :][:1]
    return bool(name) and line.startswith(name, column) and not after.isidentifier()


def _marked(line: str, column: int, name: str) -> tuple[int, int]:
    """Return the column of the carets and their number: under all of the name quoted in the message, else one."""
    if _begins(line, column, name):
        return column, len(name)
    if name and column == 0 and line.count(name) == 1:  # Jinja tells the line alone
        return line.index(name), len(name)
    return column or len(line) - len(line.lstrip()), 1


def _part(line: str, column: int) -> tuple[str, int]:
    """Return a line of at most about `LONG` characters, cut around a column with dots for the rest, and the column in it."""
    if len(line) <= LONG:
        return line, column
    start = max(0, column - BEFORE)
    before, after = "... " * (start > 0), " ..." * (start + LONG < len(line))
    return f"{before}{line[start : start + LONG]}{after}", column - start + len(before)
