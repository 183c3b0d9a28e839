"""Where a path leads: the file that is meant, below the root, with what it holds.

In: a path as the user knows it, and the root. Out: the real path, or its content.
Invariant: no path leads out of the root, through whatever links, and none is mistaken for another by any file system.
"""

import os
import shlex
import stat
from pathlib import Path
from unicodedata import normalize

from scaffold.errors import ScaffoldError
from scaffold.workspace import disk


def find_target(path: str, base: Path, folder: "Folder", *, follow: bool) -> Path:
    """The real place of a path: below the root, whatever links lead there.

    A link as the last part is followed to the file that it stands for, or else it is what is meant.
    """
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
        hint = f"rm {shlex.quote(os.path.relpath(name))}"
        raise ScaffoldError(f"'{path}' is a link that leads nowhere", hint=hint)
    if name.is_symlink() and not follow:
        return Path(os.path.realpath(name.parent), name.name)
    return target


def _encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


class Folder:
    """What the directories of a run hold; each is listed once."""

    def __init__(self) -> None:
        self._names: dict[Path, dict[str, list[str]]] = {}

    def check_case(self, path: str, base: Path, name: Path) -> None:
        """Refuse a name beside one that some file systems take for the same."""
        directory = base
        for part in name.relative_to(base).parts:
            if not directory.is_dir():
                return
            near = self._listed(directory).get(folded(part), [part])
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
                names.setdefault(folded(name), []).append(name)
            self._names[directory] = names
        return self._names[directory]


def folded(name: str) -> str:
    return normalize("NFC", name).casefold()


def read_file(path: str, target: Path) -> bytes | None:
    """What is there, None if nothing is; refuse what is no file."""
    try:
        kind = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(kind):
        raise ScaffoldError(f"'{path}' is a directory")
    if not stat.S_ISREG(kind):
        raise ScaffoldError(f"'{path}' is not a regular file")
    return disk.read(target)


def check_parent(path: str, target: Path) -> None:
    parent = target.parent
    while not parent.exists():
        parent = parent.parent
    if not disk.writable(parent):
        raise ScaffoldError(f"'{path}' cannot be written: '{parent}' is read-only")
