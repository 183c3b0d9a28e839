"""What a run would do to the disk: each file is created, identical, updated, removed, kept or in conflict.

In: {path: text} and the directory that the paths start from. Out: a `Plan`, nothing written.
Invariant: every change of a plan can be made; whatever could not is an error here.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from scaffold.errors import ScaffoldError, raise_all
from scaffold.workspace import disk
from scaffold.workspace.encoding import encode, like, merge_into, unix
from scaffold.workspace.targets import (
    Folder,
    check_parent,
    find_target,
    folded,
    read_file,
)

Verb = Literal["create", "identical", "update", "remove", "skip", "conflict"]


class Change(NamedTuple):
    """One file: as the user knows it, where it really is, what it holds and will hold."""

    path: str
    target: Path
    verb: Verb
    before: bytes | None  # None: there is no file
    after: bytes | None  # None: there will be none
    base: str | None = None  # the text as it was last written, where that is known
    conflicts: int = 0  # places that a merge left for the user to settle


class Plan(NamedTuple):
    """The changes of a run, in the order in which they were asked for."""

    root: Path
    changes: tuple[Change, ...]
    reads: tuple[tuple[Path, bytes | None], ...] = ()  # what the texts were made from

    @property
    def conflicts(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.verb == "conflict")

    @property
    def unsettled(self) -> tuple[Change, ...]:
        """The conflicts that nobody has decided on; others are written, with markers."""
        return tuple(change for change in self.conflicts if not change.conflicts)

    @property
    def writes(self) -> tuple[Change, ...]:
        return tuple(
            change
            for change in self.changes
            if change.verb in ("create", "update", "remove") or change.conflicts
        )


class _Known(NamedTuple):
    """What the caller knows about the files that are there."""

    ours: Collection[str]
    bases: Mapping[str, str]
    kept: Collection[str]


def plan(
    files: Mapping[str, str | None],
    root: Path,
    *,
    ours: Collection[str] = (),
    bases: Mapping[str, str] | None = None,
    kept: Collection[str] = (),
    reads: Mapping[str, bytes | None] | None = None,
) -> Plan:
    """Class each file against what the disk holds; one without a text shall go.

    Paths are relative to `root`, an existing directory that none of them may leave. The files of `ours` are known to be
    as we wrote them, if in another formatting, and need no question; those that are `kept` stay as they are. `bases` are
    the texts as last written, which a merge starts from. `reads` are the files that the texts were made from, as they
    were read: where one of them has changed, `apply` writes nothing.
    """
    base = Path(os.path.realpath(root))
    if not base.is_dir():
        raise ScaffoldError(f"'{root}' is not a directory")
    folder = Folder()
    known = _Known(ours, bases or {}, kept)
    changes: list[Change] = []
    problems: list[ScaffoldError] = []
    for path, text in files.items():
        try:
            target = find_target(path, base, folder, follow=text is not None)
            changes.append(_change(path, text, target, known))
        except OSError as error:
            problems.append(ScaffoldError(f"cannot use '{path}': {error.strerror}"))
        except ScaffoldError as error:
            problems.append(error)
    raise_all([*problems, *_clashes(changes)])
    read = ((base / path, data) for path, data in (reads or {}).items())
    return Plan(base, tuple(changes), tuple(read))


def _change(path: str, text: str | None, target: Path, known: _Known) -> Change:
    base = known.bases.get(path)
    if path in known.kept:
        return Change(path, target, "skip", None, None, base)
    after = None if text is None else encode(path, text)
    before = read_file(path, target)
    if before == after or before is not None and unix(before) == after:
        return Change(path, target, "identical", before, before, base)
    check_parent(path, target)
    if before is None:
        return Change(path, target, "create", None, after, base)
    _check_writable(path, target, after)
    ours = path in known.ours
    if after is None:
        return Change(
            path, target, "remove" if ours else "conflict", before, None, base
        )
    if not ours:
        return Change(path, target, "conflict", before, like(before, after), base)
    return Change(path, target, "update", before, _updated(before, base, after), base)


def _updated(before: bytes, base: str | None, after: bytes) -> bytes:
    """The new content of a file of ours, in the formatting that its team gave it."""
    if base is None or unix(before) == base.encode():
        return like(before, after)
    try:
        merged, conflicts = merge_into(before, base, after)
    except UnicodeDecodeError:
        return like(before, after)
    return like(before, after) if conflicts else merged


def _check_writable(path: str, target: Path, after: bytes | None) -> None:
    if not disk.writable(target):
        what = "would be removed" if after is None else "differs"
        raise ScaffoldError(
            f"'{path}' is read-only and {what}", hint=f"chmod u+w '{path}'"
        )


def _clashes(changes: list[Change]) -> Iterator[ScaffoldError]:
    """Two files of the run that are one file, or would be on some file systems."""
    seen: dict[str, str] = {}
    files = {change.target: change.path for change in changes}
    for change in changes:
        for parent in change.target.parents:
            if parent in files:
                yield ScaffoldError(
                    f"'{files[parent]}' would be a file and the directory "
                    f"of '{change.path}'"
                )
        first = seen.setdefault(folded(str(change.target)), change.path)
        if first != change.path:
            yield ScaffoldError(f"'{first}' and '{change.path}' would be the same file")
