"""What a run is about to do, on disk before it does it, so that it can be undone.

In: the changes of a plan. Out: a file `.scaffold-journal.tmp` in the root, there for as
long as the run lasts and locked by it; `recover` puts right what a killed run left.
Invariant: whatever a journal does not tell of has not been touched.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from scaffold.errors import ScaffoldError
from scaffold.workspace import disk
from scaffold.workspace.changes import Plan

NAME = ".scaffold-journal.tmp"
_DONE = b"done"
_TEMPORARY = re.compile(r"\.scaffold-[0-9a-f]+-\d+\.(new|old)\.tmp")


class Step(NamedTuple):
    """One file: `staged` takes the place of `target`, whose content `backup` keeps."""

    target: Path
    staged: Path
    backup: Path | None  # None: there is no file yet
    after: str  # fingerprint of the new content

    def done(self) -> bool:
        """Whether the target holds the new content, by our doing."""
        return not self.staged.exists() and disk.digest(self.target) == self.after


class Journal(NamedTuple):
    """The steps of a run, and the directories that it makes, outermost first."""

    root: Path
    steps: tuple[Step, ...]
    directories: tuple[Path, ...]

    def undo(self) -> None:
        """Put everything back as it was; can be repeated, and taken up by a later run."""
        for step in self.steps:
            if step.done():
                self._undo(step)
        self.clean()
        for directory in reversed(self.directories):
            if directory.is_dir() and not os.listdir(directory):
                disk.rmdir(directory)

    def _undo(self, step: Step) -> None:
        if step.backup is None:
            disk.unlink(step.target)
        elif step.backup.exists():
            disk.replace(step.backup, step.target)

    def clean(self) -> None:
        """Remove the temporary files."""
        for step in self.steps:
            disk.unlink(step.staged)
            if step.backup is not None:
                disk.unlink(step.backup)


def draw_up(plan: Plan) -> Journal:
    """The journal of a plan; nothing is written."""
    run = os.urandom(4).hex()
    steps: list[Step] = []
    directories: list[Path] = []
    for number, change in enumerate(plan.writes):
        beside = change.target.parent
        backup = beside / f".scaffold-{run}-{number}.old.tmp"
        steps.append(
            Step(
                change.target,
                beside / f".scaffold-{run}-{number}.new.tmp",
                None if change.before is None else backup,
                disk.fingerprint(change.after),
            )
        )
        directories += [new for new in _missing(beside) if new not in directories]
    return Journal(plan.root, tuple(steps), tuple(directories))


def _missing(directory: Path) -> list[Path]:
    """The directories that are not there yet, outermost first."""
    missing: list[Path] = []
    while not directory.exists():
        missing.insert(0, directory)
        directory = directory.parent
    return missing


@contextmanager
def locked(root: Path) -> Iterator[int]:
    """The journal file of a root, open and locked, made if need be."""
    path = root / NAME
    descriptor = disk.open_lock(path)
    try:
        _lock(descriptor, path)
        yield descriptor
    finally:
        with suppress(OSError):
            disk.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    busy = ScaffoldError(f"another run is writing in '{path.parent}'")
    try:
        disk.lock(descriptor)
    except BlockingIOError:
        raise busy from None
    except OSError:
        return  # a file system without locks: do without, as cargo does
    if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise busy  # it ended between our opening and our locking, and took the file


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


def _recover(path: Path, data: bytes) -> tuple[str, ...]:
    body, newline, mark = data.partition(b"\n")
    journal = _decode(body, path.parent) if newline else Journal(path.parent, (), ())
    undone = [step.target for step in journal.steps if step.done()]
    if mark == _DONE:
        undone = []
        journal.clean()
    else:
        journal.undo()
    disk.unlink(path)
    return tuple(str(target.relative_to(path.parent)) for target in undone)


def _encode(journal: Journal) -> bytes:
    root = journal.root
    return json.dumps(
        {
            "steps": [
                {
                    "target": str(step.target.relative_to(root)),
                    "staged": step.staged.name,
                    "backup": step.backup.name if step.backup else None,
                    "after": step.after,
                }
                for step in journal.steps
            ],
            "directories": [str(new.relative_to(root)) for new in journal.directories],
        }
    ).encode()


def _decode(data: bytes, root: Path) -> Journal:
    try:
        raw = json.loads(data)
        steps = tuple(_step(entry, root) for entry in raw["steps"])
        directories = tuple(_inside(root / name, root) for name in raw["directories"])
    except (ValueError, KeyError, TypeError):
        raise _foreign(root) from None
    return Journal(root, steps, directories)


def _step(entry: dict[str, str], root: Path) -> Step:
    target = _inside(root / entry["target"], root)
    staged, backup = entry["staged"], entry["backup"]
    for name in (staged, backup):
        if name is not None and not _TEMPORARY.fullmatch(name):
            raise _foreign(root)
    return Step(
        target,
        target.with_name(staged),
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
