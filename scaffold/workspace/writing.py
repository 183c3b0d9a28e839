"""Carry out a plan: all of its files, or none.

In: a `Plan` without conflicts. Out: the files on disk.
Invariant: each file is whole at every moment, old or new; an error leaves the tree as it was. What the plan was made from
is, while it is carried out, as it was read: no other run's change is lost.
"""

import os
from contextlib import suppress
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.workspace import disk
from scaffold.workspace.changes import Change, Plan
from scaffold.workspace.journal import Journal, Step, begin, commit, draw_up
from scaffold.workspace.locks import NAME, locked

MANY = (
    32  # files from which on one wait for the whole disk is shorter than one for each
)


class ChangedError(ScaffoldError):
    """The disk is not as it was read or planned for: to begin anew may do."""

    def __init__(self, root: Path, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.root = root


def apply(plan: Plan) -> None:
    """Write what the plan says. ScaffoldError if that fails; then nothing was written."""
    if plan.unsettled:
        raise ValueError("a plan must be resolved before it is applied")
    if not plan.writes:
        return
    try:
        with locked(plan.root) as descriptor:
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
    """Raise what `apply` would, as far as that can be known without writing: a root that no journal can be kept in."""
    if plan.writes and not os.access(plan.root, os.W_OK):
        raise ScaffoldError(
            f"cannot write in '{plan.root}': Permission denied; nothing was written"
        )


def _write(plan: Plan, descriptor: int) -> None:
    journal = draw_up(plan)
    pairs = tuple(zip(plan.writes, journal.steps, strict=True))
    try:
        for path, data in plan.reads:
            if disk.read(path) != data:
                raise _changed(plan.root, os.path.relpath(path, plan.root))
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
        _undo(journal, error)
        raise
    with suppress(OSError):  # what is left is tidied up by the next run
        journal.finish()
        disk.unlink(plan.root / NAME)


def _stage(change: Change, step: Step, sync: bool) -> None:
    if step.staged is None or change.after is None:
        return
    mode = None if change.before is None else disk.mode(change.target)
    _put(step.staged, change.after, mode, sync)
    if step.backup is None or change.before is None:
        return
    try:
        disk.link(change.target, step.backup)
    except OSError:  # a file system without second names
        disk.unlink(step.backup)
        _put(step.backup, change.before, mode, sync)


def _put(path: Path, data: bytes, mode: int | None, sync: bool) -> None:
    """Make a new file; with `sync` it is on the disk, not only on its way there, afterwards."""
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
    _check_unchanged(root, change)
    if step.staged is not None:
        disk.replace(step.staged, step.target)
    elif step.backup is not None:
        disk.replace(step.target, step.backup)


def _check_unchanged(root: Path, change: Change) -> None:
    if change.verb != "skip" and disk.read(change.target) != change.before:
        raise _changed(root, change.path)


def _changed(root: Path, path: str) -> ChangedError:
    return ChangedError(
        root, f"'{path}' changed while the run was under way; nothing was written"
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
