"""Annotations of a pull request: the `::error file=...` lines shown by GitHub beside the code.

For `scaffold lint`, `check` and `verify` with `--format github`, run in a job of GitHub Actions: it reads such lines from stdout.
In: a message and its place. Out: one line of text for stdout.
Invariant: whatever path and message hold, the line stays one command.
"""

from typing import Literal

Level = Literal["error", "warning", "notice"]


def annotation(
    level: Level, path: str, line: int, column: int, message: str, title: str = ""
) -> str:
    """Return the workflow command for a message at a line and a column, both from 1: `::error file=ops.py,line=3,col=5::text`."""
    titled = f",title={_property(title)}" if title else ""
    place = f"file={_property(path)},line={line},col={column}"
    return f"::{level} {place}{titled}::{_escaped(message)}"


def _escaped(text: str) -> str:
    """Return a text on one line, with line ends in GitHub's percent codes."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return a value of `file=` or `title=`, in which `:` and `,` would end it."""
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
