"""Carry out a plan: all of its files, or none.

In: a `Plan` without conflicts. Out: the files on disk.
Invariant: each file is whole at every moment, old or new; an error leaves the tree as it was.
"""

from contextlib import suppress
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.workspace import disk
from scaffold.workspace.changes import Change, Plan
from scaffold.workspace.journal import (
    NAME,
    Journal,
    Step,
    begin,
    commit,
    draw_up,
    locked,
)


def apply(plan: Plan) -> None:
    """Write what the plan says. ScaffoldError if that fails; then nothing was written."""
    if plan.conflicts:
        raise ValueError("a plan must be resolved before it is applied")
    if not plan.writes:
        return
    try:
        with locked(plan.root) as descriptor:
            if disk.read_all(descriptor):
                raise ScaffoldError(
                    f"an earlier run in '{plan.root}' was interrupted",
                    hint="run the command again: it puts that right first",
                )
            _write(plan, descriptor)
    except OSError as error:
        raise ScaffoldError(
            f"cannot write in '{plan.root}': {error.strerror}; nothing was written"
        ) from error


def _write(plan: Plan, descriptor: int) -> None:
    journal = draw_up(plan)
    try:
        begin(descriptor, journal)
        for directory in journal.directories:
            disk.mkdir(directory)
        for change, step in zip(plan.writes, journal.steps, strict=True):
            _stage(change, step)
        for change, step in zip(plan.writes, journal.steps, strict=True):
            _replace(change, step)
        commit(descriptor)
    except BaseException as error:
        _undo(journal, error)
        raise
    with suppress(OSError):  # what is left is tidied up by the next run
        journal.clean()
        disk.unlink(plan.root / NAME)


def _stage(change: Change, step: Step) -> None:
    _check_unchanged(change)
    mode = None if change.before is None else disk.mode(change.target)
    _put(step.staged, change.after, mode)
    if step.backup is not None and change.before is not None:
        _put(step.backup, change.before, mode)


def _put(path: Path, data: bytes, mode: int | None) -> None:
    """Make a new file; it is on the disk, not only on its way there, afterwards."""
    descriptor = disk.create(path)
    try:
        disk.write(descriptor, data)
        if mode is not None:
            disk.chmod(descriptor, mode)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)


def _replace(change: Change, step: Step) -> None:
    _check_unchanged(change)
    disk.replace(step.staged, step.target)


def _check_unchanged(change: Change) -> None:
    if disk.read(change.target) != change.before:
        raise ScaffoldError(
            f"'{change.path}' changed while the run was under way; nothing was written"
        )


def _undo(journal: Journal, cause: BaseException) -> None:
    try:
        journal.undo()
        disk.unlink(journal.root / NAME)
    except OSError as error:
        raise ScaffoldError(
            f"{cause}; and putting things back failed: {error}",
            hint="the next run in this directory tries again",
        ) from cause
