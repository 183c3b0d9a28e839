"""What a run would do to the disk: each file is created, identical or in conflict.

In: {path: text} and the directory that the paths start from. Out: a `Plan`, nothing written.
Invariant: every change of a plan can be made; whatever could not is an error here.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from unicodedata import normalize

from scaffold.errors import ScaffoldError, raise_all
from scaffold.workspace import disk

Verb = Literal["create", "identical", "update", "skip", "conflict"]


class Change(NamedTuple):
    """One file: as the user knows it, where it really is, what it holds and will hold."""

    path: str
    target: Path
    verb: Verb
    before: bytes | None  # None: there is no file
    after: bytes


class Plan(NamedTuple):
    """The changes of a run, in the order in which they were asked for."""

    root: Path
    changes: tuple[Change, ...]

    @property
    def conflicts(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.verb == "conflict")

    @property
    def writes(self) -> tuple[Change, ...]:
        return tuple(
            change for change in self.changes if change.verb in ("create", "update")
        )


def plan(files: Mapping[str, str], root: Path) -> Plan:
    """Class each file against what the disk holds.

    Paths are relative to `root`, an existing directory that none of them may leave.
    """
    base = Path(os.path.realpath(root))
    if not base.is_dir():
        raise ScaffoldError(f"'{root}' is not a directory")
    folder = _Folder()
    changes: list[Change] = []
    problems: list[ScaffoldError] = []
    for path, text in files.items():
        try:
            changes.append(_change(path, text, base, folder))
        except OSError as error:
            problems.append(ScaffoldError(f"cannot use '{path}': {error.strerror}"))
        except ScaffoldError as error:
            problems.append(error)
    raise_all([*problems, *_clashes(changes)])
    return Plan(base, tuple(changes))


def _change(path: str, text: str, base: Path, folder: "_Folder") -> Change:
    after = _encoded(path, text)
    target = _target(path, base, folder)
    before = _content(path, target)
    if before is not None and _unix(before) == after:
        return Change(path, target, "identical", before, before)
    _check_parent(path, target)
    if before is None:
        return Change(path, target, "create", None, after)
    if not disk.writable(target):
        raise ScaffoldError(
            f"'{path}' is read-only and differs", hint=f"chmod u+w '{path}'"
        )
    return Change(path, target, "conflict", before, _like(before, after))


def _encoded(path: str, text: str) -> bytes:
    try:
        return _unix(text.encode())
    except UnicodeEncodeError as error:
        raise ScaffoldError(
            f"the text of '{path}' cannot be written as UTF-8: {error.reason}"
        ) from None


def _target(path: str, base: Path, folder: "_Folder") -> Path:
    """The real place of a path: below the root, whatever links lead there."""
    if "\0" in path or not _encodable(path):
        raise ScaffoldError(f"{path!r} is not a path")
    name = Path(os.path.normpath(base / path))
    if not name.is_relative_to(base):
        raise ScaffoldError(f"'{path}' is outside '{base}'")
    folder.check_case(path, base, name)
    target = Path(os.path.realpath(name))
    if not target.is_relative_to(base):
        raise ScaffoldError(f"'{path}' is a link that leads outside '{base}'")
    if name.is_symlink() and not name.exists():
        raise ScaffoldError(f"'{path}' is a link that leads nowhere")
    return target


def _encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


class _Folder:
    """What the directories of a run hold; each is listed once."""

    def __init__(self) -> None:
        self._names: dict[Path, dict[str, list[str]]] = {}

    def check_case(self, path: str, base: Path, name: Path) -> None:
        """Refuse a name beside one that some file systems take for the same."""
        directory = base
        for part in name.relative_to(base).parts:
            if not directory.is_dir():
                return
            near = self._listed(directory).get(_folded(part), [part])
            if part not in near:
                raise ScaffoldError(
                    f"'{path}' differs only in case from the existing "
                    f"'{(directory / near[0]).relative_to(base)}'",
                    hint="to some file systems the two are one: rename one of them",
                )
            directory = directory / part

    def _listed(self, directory: Path) -> dict[str, list[str]]:
        if directory not in self._names:
            names: dict[str, list[str]] = {}
            for name in os.listdir(directory):
                names.setdefault(_folded(name), []).append(name)
            self._names[directory] = names
        return self._names[directory]


def _folded(name: str) -> str:
    return normalize("NFC", name).casefold()


def _content(path: str, target: Path) -> bytes | None:
    """What is there, None if nothing is; refuse what is no file."""
    try:
        kind = os.lstat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(kind):
        raise ScaffoldError(f"'{path}' is a directory")
    if not stat.S_ISREG(kind):
        raise ScaffoldError(f"'{path}' is not a regular file")
    return disk.read(target)


def _check_parent(path: str, target: Path) -> None:
    parent = target.parent
    while not parent.exists():
        parent = parent.parent
    if not disk.writable(parent):
        raise ScaffoldError(f"'{path}' cannot be written: '{parent}' is read-only")


def _unix(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")


def _like(before: bytes, after: bytes) -> bytes:
    """The new content with the line endings that most lines of the old one have."""
    if before.count(b"\r\n") * 2 > before.count(b"\n"):
        return after.replace(b"\n", b"\r\n")
    return after


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
        first = seen.setdefault(_folded(str(change.target)), change.path)
        if first != change.path:
            yield ScaffoldError(f"'{first}' and '{change.path}' would be the same file")
