"""What a plan would change, as a unified diff.

In: a `Plan`. Out: text that `git apply` and `patch` take.
Invariant: line endings are no difference; a file that is not text is named, not shown.
"""

from collections.abc import Iterable, Iterator
from difflib import unified_diff

from scaffold.workspace.changes import Change, Plan

SHOWN = ("create", "update", "remove", "conflict")


def diff(plan: Plan) -> str:
    """The differences of all that would be, or was, written, and of every conflict."""
    return "".join(diff_change(change) for change in plan.changes)


def diff_change(change: Change) -> str:
    """The difference that a change makes; none where the file stays as it is."""
    return diff_file(change) if change.verb in SHOWN else ""


def diff_file(change: Change) -> str:
    """The difference of one file."""
    try:
        before, after = _lines(change.before or b""), _lines(change.after or b"")
    except UnicodeDecodeError:
        return f"Binary files a/{change.path} and b/{change.path} differ\n"
    tab = "\t" if " " in change.path else ""  # ends a name with a space in it
    old = "/dev/null" if change.before is None else f"a/{change.path}{tab}"
    new = "/dev/null" if change.after is None else f"b/{change.path}{tab}"
    return "".join(_terminated(unified_diff(before, after, old, new)))


def _lines(data: bytes) -> list[str]:
    """The lines with their ends; only a newline ends one, as in git."""
    lines = data.decode().replace("\r\n", "\n").split("\n")
    last = [lines[-1]] if lines[-1] else []
    return [f"{line}\n" for line in lines[:-1]] + last


def _terminated(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
