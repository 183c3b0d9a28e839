"""What a run is about to do, on disk before it does it, so that it can be undone.

In: the changes of a plan. Out: a file `.scaffold-journal.tmp` in the root, there for as
long as the run lasts and locked by it; `recover` puts right what a killed run left.
Invariant: whatever a journal does not tell of has not been touched.
"""

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from scaffold.errors import ScaffoldError
from scaffold.workspace import disk
from scaffold.workspace.changes import Change, Plan
from scaffold.workspace.locks import NAME, locked

_DONE = b"done"
_TEMPORARY = re.compile(r"\.scaffold-[0-9a-f]+-\d+\.(new|old)\.tmp")


class Step(NamedTuple):
    """One file: `staged` takes the place of `target`, whose content `backup` keeps."""

    target: Path
    staged: Path | None  # None: the file goes, `target` is renamed to `backup`
    backup: Path | None  # None: there is no file yet
    after: str | None  # fingerprint of the new content

    def can_be_undone(self) -> bool:
        """Whether the target is as the run wants it, by our doing, and what it was is still there."""
        if self.backup is not None and not os.path.lexists(self.backup):
            return False
        if self.staged is None:
            return not os.path.lexists(self.target)
        return not self.staged.exists() and disk.digest(self.target) == self.after

    def undo(self) -> None:
        """Put the target back as it was."""
        if self.backup is None:
            disk.unlink(self.target)
        else:
            disk.replace(self.backup, self.target)

    def clean(self) -> None:
        """Remove the temporary files."""
        for path in (self.staged, self.backup):
            if path is not None:
                disk.unlink(path)


class Journal(NamedTuple):
    """The steps of a run, the directories that it makes, outermost first, and those that it may empty, innermost first."""

    root: Path
    steps: tuple[Step, ...]
    made: tuple[Path, ...]
    emptied: tuple[Path, ...]

    def undo(self) -> None:
        """Put everything back as it was; can be repeated, and taken up by a later run."""
        for step in self.steps:
            if step.can_be_undone():
                step.undo()
        self._clean(tuple(reversed(self.made)))

    def finish(self) -> None:
        """Tidy up after all of it is done; can be repeated as well."""
        self._clean(self.emptied)

    def _clean(self, directories: tuple[Path, ...]) -> None:
        """Remove the temporary files, and those of the directories that are empty then."""
        for step in self.steps:
            step.clean()
        for directory in directories:
            if directory.is_dir() and not os.listdir(directory):
                disk.rmdir(directory)


def draw_up(plan: Plan) -> Journal:
    """The journal of a plan; nothing is written."""
    run = os.urandom(4).hex()
    steps = [_planned(change, run, n) for n, change in enumerate(plan.writes)]
    made: dict[Path, None] = {}
    emptied: dict[Path, None] = {}
    for directory, goes in {(s.target.parent, s.staged is None) for s in steps}:
        if goes:
            emptied |= dict.fromkeys(_below(plan.root, directory))
        else:
            made |= dict.fromkeys(_missing(directory))
    outermost_first = sorted(made, key=_depth)
    innermost_first = sorted(emptied, key=_depth, reverse=True)
    return Journal(
        plan.root, tuple(steps), tuple(outermost_first), tuple(innermost_first)
    )


def _planned(change: Change, run: str, number: int) -> Step:
    beside = change.target.parent
    staged = beside / f".scaffold-{run}-{number}.new.tmp"
    backup = beside / f".scaffold-{run}-{number}.old.tmp"
    return Step(
        change.target,
        None if change.after is None else staged,
        None if change.before is None else backup,
        None if change.after is None else disk.fingerprint(change.after),
    )


def _depth(directory: Path) -> tuple[int, Path]:
    return len(directory.parts), directory


def _below(root: Path, directory: Path) -> list[Path]:
    """The directory and those above it, as far as the root."""
    return [
        one
        for one in (directory, *directory.parents)
        if one != root and one.is_relative_to(root)
    ]


def _missing(directory: Path) -> list[Path]:
    """The directories that are not there yet, outermost first."""
    missing: list[Path] = []
    while not directory.exists():
        missing.insert(0, directory)
        directory = directory.parent
    return missing


def begin(descriptor: int, journal: Journal) -> None:
    """Write down what will be done, before any of it."""
    disk.write(descriptor, _encode(journal) + b"\n")
    disk.sync(descriptor)


def commit(descriptor: int) -> None:
    """Write down that all of it is done: from here on nothing is undone."""
    disk.write(descriptor, _DONE)


def recover(root: Path) -> tuple[str, ...]:
    """Undo what a killed run left half done, tidy up after one; the files put back.

    Call it before planning. A run that is still under way is a ScaffoldError.
    """
    base = Path(os.path.realpath(root))
    path = base / NAME
    if not path.exists():
        return ()
    try:
        with locked(base) as descriptor:
            return _recover(path, disk.read_all(descriptor))
    except OSError as error:
        raise ScaffoldError(f"cannot recover from '{path}': {error}") from error


def strays(root: Path, directories: Iterable[str]) -> tuple[str, ...]:
    """Temporary files of runs in directories below a root, where there is no journal that tells of them."""
    if (root / NAME).exists():
        return ()
    found = []
    for directory in sorted(directories):
        with suppress(OSError):
            names = sorted(os.listdir(root / directory))
            found += [f"{directory}/{n}" for n in names if _TEMPORARY.fullmatch(n)]
    return tuple(os.path.normpath(path) for path in found)


def interrupted(root: Path) -> tuple[str, ...]:
    """The files of a run that was killed and that the next one puts right; nothing is written.

    Of one that was all done they are the temporary files that are left.
    """
    path = Path(os.path.realpath(root)) / NAME
    if not path.exists():
        return ()
    try:
        if disk.held(path):
            return ()  # it is under way
        journal, mark = _read(path, disk.read(path) or b"")
    except OSError as error:
        raise ScaffoldError(f"cannot read '{path}': {error.strerror}") from error
    if mark == _DONE:
        temporary = (
            one for step in journal.steps for one in (step.staged, step.backup)
        )
        left = (one for one in temporary if one is not None and os.path.lexists(one))
        return tuple(str(one.relative_to(path.parent)) for one in left)
    return tuple(str(step.target.relative_to(path.parent)) for step in journal.steps)


def _recover(path: Path, data: bytes) -> tuple[str, ...]:
    journal, mark = _read(path, data)
    undone = [step.target for step in journal.steps if step.can_be_undone()]
    if mark == _DONE:
        undone = []
        journal.finish()
    else:
        journal.undo()
    disk.unlink(path)
    return tuple(str(target.relative_to(path.parent)) for target in undone)


def _read(path: Path, data: bytes) -> tuple[Journal, bytes]:
    """The journal and the mark after it; one that is cut short tells of nothing done."""
    body, newline, mark = data.partition(b"\n")
    root = path.parent
    return (_decode(body, root) if newline else Journal(root, (), (), ())), mark


def _encode(journal: Journal) -> bytes:
    root = journal.root
    return json.dumps(
        {
            "steps": [
                {
                    "target": str(step.target.relative_to(root)),
                    "staged": step.staged.name if step.staged else None,
                    "backup": step.backup.name if step.backup else None,
                    "after": step.after,
                }
                for step in journal.steps
            ],
            "made": [str(path.relative_to(root)) for path in journal.made],
            "emptied": [str(path.relative_to(root)) for path in journal.emptied],
        }
    ).encode()


def _decode(data: bytes, root: Path) -> Journal:
    try:
        raw = json.loads(data)
        steps = tuple(_step(entry, root) for entry in raw["steps"])
        made, emptied = (
            tuple(_inside(root / name, root) for name in raw[key])
            for key in ("made", "emptied")
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _foreign(root) from None
    return Journal(root, steps, made, emptied)


def _step(entry: dict[str, str], root: Path) -> Step:
    target = root / entry["target"]
    staged, backup = entry["staged"], entry["backup"]
    _inside(target.parent if staged is None else target, root)
    for name in (staged, backup):
        if name is not None and not _TEMPORARY.fullmatch(name):
            raise _foreign(root)
    return Step(
        target,
        target.with_name(staged) if staged else None,
        target.with_name(backup) if backup else None,
        entry["after"],
    )


def _inside(path: Path, root: Path) -> Path:
    """The path, unless a journal of unknown origin points somewhere else."""
    real = Path(os.path.realpath(path))
    if real != path or not path.is_relative_to(root):
        raise _foreign(root)
    return path


def _foreign(root: Path) -> ScaffoldError:
    return ScaffoldError(
        f"'{root / NAME}' is no journal of ours", hint="look at it and remove it"
    )
