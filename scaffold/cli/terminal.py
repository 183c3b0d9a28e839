"""Terminal output: colours, messages wrapped to the width, a progress bar.

Words: a *stream* is stdout or stderr, None if closed; a *style* is a meaning with a colour, a key of STYLES.

In: a text, and its stream. Out: the text to show there.
Invariant: without a terminal a text stays the same, byte for byte, unless FORCE_COLOR asks for colours. Heavy imports are
avoided: help needs colours too.
"""

import os
import re
import sys
from typing import TextIO

STYLES = {
    "heading": "1",
    "place": "1",
    "error": "1;31",
    "hint": "36",
    "note": "33",
    "option": "36",
    "added": "32",
    "changed": "33",
    "removed": "31",
}
# The style of a line's verb, or of a file's state; the other verbs change nothing.
STALE = ("stale", "missing", "orphaned", "interrupted", "conflict-markers", "lost")
VERBS = {
    **dict.fromkeys(("edited", "unproven", "unprovable"), "changed"),
    **dict.fromkeys(STALE, "error"),
    "create": "added",
    "update": "changed",
    "remove": "removed",
    "conflict": "error",
}
WIDE = 24  # the cells of a bar
WORD = re.compile(r"""((?<!\w)(['"`]).*?\2 | [^ ])+""", re.VERBOSE)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; a closed one is None."""
    return bool(stream and stream.isatty())


def has_colours(stream: TextIO | None) -> bool:
    """Return whether to show colours: on a terminal, or by FORCE_COLOR, and never with NO_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    # FORCE_COLOR=0 forces nothing.
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO | None) -> str:
    """Return the text in a style of `STYLES`, if the stream shows colours; else as it is."""
    if not has_colours(stream):
        return text
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m"


def width_of(stream: TextIO | None) -> int:
    """Return the columns of a terminal, by COLUMNS or the stream; 80 if they are unknown."""
    # Of thousands of digits Python makes no number.
    if (said := os.environ.get("COLUMNS", "")[:9]).isdecimal() and int(said):
        return int(said)
    try:
        found = os.get_terminal_size(stream.fileno()).columns if stream else 0
    except (OSError, ValueError):
        return 80
    return found or 80  # 0: the size is unknown


def message(text: str, stream: TextIO | None) -> str:
    """Return a message, lines `place: error` and `hint: advice`, for a stream: wrapped and coloured on a terminal."""
    lines = text.split("\n")
    if is_terminal(stream):
        lines = [wrapped(line, width_of(stream)) for line in lines]
    return "\n".join(_coloured(line, stream) for line in lines)


def _coloured(line: str, stream: TextIO | None) -> str:
    """Return a line with its head, the words before the colon in `hint: advice`, in colour; another head is a place."""
    head, colon, rest = line.partition(": ")
    if not colon:
        return line
    kind = head if head in ("hint", "note", "error") else "place"
    return paint(f"{head}:", kind, stream) + f" {rest}"


def wrapped(line: str, width: int) -> str:
    """Return a line broken at spaces into lines of the width; quoted text stays whole, as it is there to be copied."""
    if len(line) <= width:
        return line
    lines, indent = [""], "      " if line.startswith(("hint: ", "note: ")) else "  "
    for word in _words(line):
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else f"{lines[-1]}{word}"
        # A word longer than the width stands on a line of its own.
        if len(longer) > width and lines[-1].strip():
            lines.append(f"{indent}{word}")
        else:
            lines[-1] = longer
    return "\n".join(lines)


def _words(line: str) -> list[str]:
    """Return the words of a line; text in quotes is one word. A quote without a partner, or after a letter, is an apostrophe."""
    return [word[0] for word in WORD.finditer(line)]


def difference(text: str, stream: TextIO | None) -> str:
    """Return a unified diff, coloured if colours are shown."""
    if not has_colours(stream):
        return text
    styles = {"+": "added", "-": "removed", "@": "hint"}
    lines = text.split("\n")
    return "\n".join(
        paint(line, styles[line[0]], stream) if line[:1] in styles else line
        for line in lines
    )


def verb(word: str, cells: int, stream: TextIO | None) -> str:
    """Return the word for a file's change or state, padded to `cells`, in its colour."""
    padded = f"{word:{cells}}"
    return paint(padded, VERBS[word], stream) if word in VERBS else padded


def bar(done: int, total: int, words: str) -> str:
    """Return a line of progress: `[======      ] 12/48 files`."""
    filled = WIDE * done // total if total else WIDE
    text = f"[{'=' * filled}{' ' * (WIDE - filled)}] {words}"
    # A line as wide as the terminal would wrap, and `\r` no longer reach its begin.
    return text[: width_of(sys.stderr) - 1]
