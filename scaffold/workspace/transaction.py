"""Transactions: write all of a plan's files, or none; each keeps its permissions, as an executable bit.

A run writes many files; an error, or a killed process, must not leave half of them. In: a `Plan`. Out: the files, or an error and
the tree as it was. Invariant: one run at a time writes below a root; each action of a run is in a journal on disk before it is
taken, so the next run can undo the remains of a killed one.

Words: a *step* replaces one file: the new content is *staged* in a temporary file beside it, the old one kept in a *backup*, until
all steps are taken; the *journal* lists the steps; its lock is what makes other runs wait.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from scaffold.errors import ScaffoldError
from scaffold.workspace import disk
from scaffold.workspace.changes import Change, Plan

# --- One run at a time writes below a root.
#
# In: a root. Out: its journal file, open and locked; or a turn among the runs trying again. Invariant: the holder of the
# journal is alone, or works on a file system without locks.


NAME = ".scaffold-journal.tmp"
WAIT = 10.0  # seconds for another run to end


@contextmanager
def locked(root: Path) -> Iterator[int]:
    """Give a context in which this run alone writes below a root; it yields the root's journal file, open and locked.

    It waits for another run, at most `WAIT` seconds; raise ScaffoldError if that is still writing then.
    """
    path = root / NAME
    deadline = time.monotonic() + WAIT
    while (descriptor := _open_locked(path)) is None:
        if time.monotonic() > deadline:
            raise ScaffoldError(f"another run is writing in '{root}'")
        time.sleep(0.02)
    try:
        yield descriptor
    finally:
        with suppress(OSError):
            disk.close(descriptor)


@contextmanager
def in_turn(root: Path) -> Iterator[None]:
    """Give a context for a run another one disturbed: runs that begin again take turns, so they do not disturb each other.

    A courtesy alone: after `WAIT` seconds, or without a directory to lock, the run goes on all the same.
    """
    descriptor: int | None = None
    with suppress(OSError):
        descriptor = disk.open_directory(root)
        _wait(descriptor)
    try:
        yield
    finally:
        if descriptor is not None:
            disk.close(descriptor)


def _wait(descriptor: int) -> None:
    """Lock an open directory as soon as no other run has it locked; give up silently after `WAIT` seconds."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        with suppress(BlockingIOError):
            disk.lock(descriptor)
            return
        time.sleep(0.02)


def _open_locked(path: Path) -> int | None:
    """Return the descriptor of the journal file, locked; None, to try again, if another run holds the lock, or has just removed the file."""
    descriptor = disk.open_lock(path)
    try:
        disk.lock(descriptor)
        if _is_there(descriptor, path):
            return descriptor
    except BlockingIOError:
        pass
    except OSError:
        return descriptor  # a file system without locks: do without, as cargo does
    disk.close(descriptor)
    return None


def _is_there(descriptor: int, path: Path) -> bool:
    """Return whether the path still leads to the open file: the run we waited for may have removed it when it ended."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


# --- The journal of a run: on disk before the run acts, so its actions can be undone.


_DONE = b"done"
_TEMPORARY = re.compile(r"\.scaffold-[0-9a-f]+-\d+\.(new|old)\.tmp")


class Step(NamedTuple):
    """The replacement of one file: `staged` takes the place of `target`, with its content kept in `backup`."""

    target: Path
    staged: Path | None  # None: the file is removed, `target` is renamed to `backup`
    backup: Path | None  # None: there is no file yet
    after: str | None  # fingerprint of the new content

    def can_be_undone(self) -> bool:
        """Return whether this step was taken, and its backup still holds the former content: only then may it be undone.

        It was if its staged file is gone, moved to the target. A target with other content than planned was changed by somebody
        since, and is left alone.
        """
        # The backup was never made, or undoing has moved it away again.
        if self.backup is not None and not os.path.lexists(self.backup):
            return False
        # A removal was taken if the target is gone.
        if self.staged is None:
            return not os.path.lexists(self.target)
        return not self.staged.exists() and disk.digest(self.target) == self.after

    def undo(self) -> None:
        """Restore the target as it was."""
        # There was no file before.
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
    """The steps of a run, the directories it makes, outermost first, and those it may empty, innermost first."""

    root: Path
    steps: tuple[Step, ...]
    made: tuple[Path, ...]
    emptied: tuple[Path, ...]

    def undo(self) -> None:
        """Undo each step taken, and remove temporary files and new directories. If interrupted, it can be repeated, by a later run too."""
        for step in self.steps:
            if step.can_be_undone():
                step.undo()
        self._clean(tuple(reversed(self.made)))

    def finish(self) -> None:
        """Remove the temporary files and emptied directories of a run whose steps are all taken. If interrupted, it can be repeated."""
        self._clean(self.emptied)

    def _clean(self, directories: tuple[Path, ...]) -> None:
        """Remove the temporary files, and then any of the directories left empty."""
        for step in self.steps:
            step.clean()
        for directory in directories:
            if directory.is_dir() and not os.listdir(directory):
                disk.rmdir(directory)


def draw_up(plan: Plan) -> Journal:
    """Return the journal of a plan: a step for each file, directories to make and to empty; nothing is written yet."""
    run = os.urandom(4).hex()  # for names no other run uses
    steps = [_planned(change, run, n) for n, change in enumerate(plan.writes)]
    made, emptied = set[Path](), set[Path]()
    # `goes`: a file is removed, and its directory may be left empty.
    for directory, goes in {(s.target.parent, s.staged is None) for s in steps}:
        if goes:
            emptied.update(_below(plan.root, directory))
        else:
            made.update(_missing(directory))
    # Sorted, a parent stands before its children: it has to be made before them, and can be removed only when it is empty.
    outermost_first, innermost_first = sorted(made), sorted(emptied, reverse=True)
    return Journal(
        plan.root, tuple(steps), tuple(outermost_first), tuple(innermost_first)
    )


def _planned(change: Change, run: str, number: int) -> Step:
    """Return the step for a change; `run` and `number` make its temporary files' names unique."""
    beside = change.target.parent
    staged = beside / f".scaffold-{run}-{number}.new.tmp"
    backup = beside / f".scaffold-{run}-{number}.old.tmp"
    return Step(
        change.target,
        None if change.after is None else staged,
        None if change.before is None else backup,
        None if change.after is None else disk.fingerprint(change.after),
    )


def _below(root: Path, directory: Path) -> list[Path]:
    """Return the directory and its parents up to the root, without the root: after a removal they may be empty."""
    return [
        one
        for one in (directory, *directory.parents)
        if one != root and one.is_relative_to(root)
    ]


def _missing(directory: Path) -> list[Path]:
    """Return the directories to make before a file can be written to `directory`; [] if it is there."""
    return [one for one in (directory, *directory.parents) if not one.exists()]


def begin(descriptor: int, journal: Journal) -> None:
    """Write the journal into its open file and wait until it is on the disk: only then may a step be taken."""
    disk.write(descriptor, _encode(journal) + b"\n")
    disk.sync(descriptor)


def commit(descriptor: int) -> None:
    """Mark the journal as done: from here on nothing is undone."""
    disk.write(descriptor, _DONE)


def recover(root: Path) -> tuple[str, ...]:
    """Undo the steps of a killed run, or remove the temporary files of one killed after its last step; return the files restored.

    Call it before planning; `()` if there is nothing to do. Raise ScaffoldError if another run is under way, or the journal is unreadable.
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
    """Return temporary files of killed runs in these directories no journal lists; with a journal (), as `recover` removes them."""
    if (root / NAME).exists():
        return ()
    found = []
    for directory in sorted(directories):
        with suppress(OSError):
            names = sorted(os.listdir(root / directory))
            found += [f"{directory}/{n}" for n in names if _TEMPORARY.fullmatch(n)]
    return tuple(os.path.normpath(path) for path in found)


def interrupted(root: Path) -> tuple[str, ...]:
    """Return the files of a killed run the next run will restore, for `scaffold check`; nothing is written.

    Of a run killed after its last step they are its remaining temporary files; () without such a run.
    """
    path = Path(os.path.realpath(root)) / NAME
    if not path.exists():
        return ()
    try:
        if disk.held(path):
            return ()  # it is under way
        # `or b""`: it may have been removed since; that reads as a journal without steps.
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
    """Undo or finish the run of the journal in `data`, and remove the journal; return the restored files, below the root."""
    journal, mark = _read(path, data)
    # Asked before undoing, after which no step can be undone.
    undone = [step.target for step in journal.steps if step.can_be_undone()]
    if mark == _DONE:
        undone = []
        journal.finish()
    else:
        journal.undo()
    disk.unlink(path)
    return tuple(str(target.relative_to(path.parent)) for target in undone)


def _read(path: Path, data: bytes) -> tuple[Journal, bytes]:
    """Return the journal in the bytes of its file, `path`, and the text after it: `_DONE` if its run took all steps.

    A journal without its final newline was cut off while being written, before any step: it counts as empty.
    """
    body, newline, mark = data.partition(b"\n")
    root = path.parent
    return (_decode(body, root) if newline else Journal(root, (), (), ())), mark


def _encode(journal: Journal) -> bytes:
    """Return a journal as one line of JSON; all paths are relative to the root, or to the target's directory."""
    root = journal.root
    return json.dumps(
        {
            "steps": [
                {
                    "target": str(step.target.relative_to(root)),
                    # Temporary files lie beside their target, so a name is enough.
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
    """Return the journal of a line of JSON; raise ScaffoldError if scaffold cannot have written it."""
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
    """Return a step of a journal read from disk; raise for a path outside the root, or a temporary file not named like ours: it is forged."""
    target = root / entry["target"]
    staged, backup = entry["staged"], entry["backup"]
    # A file to be removed may itself be a link.
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
    """Return the path; raise ScaffoldError if it leads out of the root or through a link: a forged journal must not touch other files."""
    real = Path(os.path.realpath(path))
    if real != path or not path.is_relative_to(root):
        raise _foreign(root)
    return path


def _foreign(root: Path) -> ScaffoldError:
    """Return the error for a journal file with unknown content."""
    return ScaffoldError(
        f"'{root / NAME}' is not a journal of scaffold",
        hint="look at it, then remove it",
    )


# --- Carry out a plan: all of its files, or none.
#
# In: a `Plan` without conflicts. Out: the files on disk.
# Invariant: each file is whole at every moment, old or new; an error leaves the tree as it was. The sources of the plan are
# still as they were read while it is carried out: no other run's change is lost.


# From this number of files on, one wait for the whole disk is shorter than one wait each.
MANY = 32


class ChangedError(ScaffoldError):
    """The error of files that changed between reading and writing, by another run or the user; a caller may read and plan again."""

    def __init__(self, root: Path, message: str, hint: str | None = None) -> None:
        """Make the error; `root` is the directory in which a run has to wait its turn before it tries again."""
        super().__init__(message, hint=hint)
        self.root = root


def apply(plan: Plan) -> None:
    """Write the files of a plan, all or none; raise ScaffoldError on failure, ValueError for an undecided conflict."""
    if plan.unsettled:
        raise ValueError("a plan must be resolved before it is applied")
    if not plan.writes:
        return
    try:
        with locked(plan.root) as descriptor:
            # A journal with text in it is that of a killed run: a run that ends removes its own.
            if disk.read_all(descriptor):
                raise ChangedError(
                    plan.root,
                    f"an earlier run in '{plan.root}' was interrupted",
                    hint="run the command again: it puts that right first",
                )
            _write(plan, descriptor)
    except OSError as error:
        raise ScaffoldError(
            f"cannot write in '{plan.root}': {error.strerror}; nothing was written"
        ) from error


def rehearse(plan: Plan) -> None:
    """Raise the error of `apply` for a root we may not write to, where the journal goes: in a look, or before a long proof."""
    if plan.writes and not os.access(plan.root, os.W_OK):
        raise ScaffoldError(
            f"cannot write in '{plan.root}': Permission denied; nothing was written"
        )


def _write(plan: Plan, descriptor: int) -> None:
    """Carry out a plan: check for changes since it was made, write the journal, stage all files, then replace them one by one.

    On any error, Ctrl-C included, undo all of it and raise the error again.
    """
    journal = draw_up(plan)
    pairs = tuple(zip(plan.writes, journal.steps, strict=True))
    try:
        for path, data in plan.reads:
            if disk.read(path) != data:
                raise _changed(plan.root, os.path.relpath(path, plan.root))
        # Of all files, not only those to write: one that counts as identical must still be so.
        for change in plan.changes:
            _check_unchanged(plan.root, change)
        begin(descriptor, journal)
        for directory in journal.made:
            disk.mkdir(directory)
        for change, step in pairs:
            _stage(change, step, sync=len(pairs) < MANY)
        if len(pairs) >= MANY:
            disk.sync_all()
        for change, step in pairs:
            _replace(plan.root, change, step)
        commit(descriptor)
    except BaseException as error:
        # If it failed before `begin`, there is nothing to undo, and the empty journal is removed.
        _undo(journal, error)
        raise
    with suppress(OSError):  # the next run tidies up any remains
        journal.finish()
        disk.unlink(plan.root / NAME)


def _stage(change: Change, step: Step, sync: bool) -> None:
    """Write a change's new content to its staged file, with the target's permissions, and keep the old content under its backup's name.

    So the step itself is one renaming. With `sync`, wait until the new content is on the disk. A removal stages nothing, and needs no
    copy: `_replace` moves the target itself to its backup.
    """
    if step.staged is None or change.after is None:  # a removal
        return
    mode = None if change.before is None else disk.mode(change.target)
    _put(step.staged, change.after, mode, sync)
    if step.backup is None or change.before is None:  # a new file
        return
    try:
        disk.link(change.target, step.backup)
    except OSError:  # a file system without hard links
        # `link` may report a failure though it made the name, and `_put` only makes new files: it would
        # fail then.
        disk.unlink(step.backup)
        _put(step.backup, change.before, mode, sync)


def _put(path: Path, data: bytes, mode: int | None, sync: bool) -> None:
    """Create a file with these permissions (None: the umask's); with `sync`, wait until it is on the disk."""
    descriptor = disk.create(path)
    try:
        disk.write(descriptor, data)
        if mode is not None:
            disk.chmod(descriptor, mode)
        if sync:
            disk.sync(descriptor)
    finally:
        disk.close(descriptor)


def _replace(root: Path, change: Change, step: Step) -> None:
    """Take a step: put the staged file in the target's place, or, to remove the target, move it to its backup; raise if it has changed."""
    _check_unchanged(root, change)
    if step.staged is not None:
        disk.replace(step.staged, step.target)
    elif step.backup is not None:
        disk.replace(step.target, step.backup)


def _check_unchanged(root: Path, change: Change) -> None:
    """Raise ChangedError unless the file has the content it had when the plan was made."""
    if change.verb != "skip" and disk.read(change.target) != change.before:
        raise _changed(root, change.path)


def _changed(root: Path, path: str) -> ChangedError:
    """Return the error for a file changed since it was read."""
    return ChangedError(
        root, f"'{path}' changed while the run was under way; nothing was written"
    )


def _undo(journal: Journal, cause: BaseException) -> None:
    """Undo a run the error `cause` ended, and remove its journal; raise ScaffoldError, naming both errors, if undoing fails too."""
    try:
        journal.undo()
        disk.unlink(journal.root / NAME)
    except OSError as error:
        raise ScaffoldError(
            f"{cause}; and putting things back failed: {error}",
            hint="the next run in this directory tries again",
        ) from cause
