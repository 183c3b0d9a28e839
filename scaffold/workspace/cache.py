"""A cache between runs, which may be deleted at any time: its entries, which pairs of texts differ in formatting alone, which records are whole.

In: pairs of texts, records of files. Out: whether they say the same, whether the text unpacks. Invariant: what is remembered was
found so by this version, of these very bytes; without a place to remember it, it is found again.

Every run asks it of every file: to parse two texts takes ten milliseconds, to unpack one a third of what a file takes.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from scaffold.files import read_text
from scaffold.workspace import disk
from scaffold.workspace.records import Kept
from scaffold.workspace.statements import normal_form


def store(path: Path, data: bytes) -> None:
    """Write an entry if that is possible."""
    staged = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = disk.create(staged)
        try:
            disk.write(descriptor, data)
        finally:
            disk.close(descriptor)
        disk.replace(staged, path)


ENOUGH = 50_000  # answers; beyond them the file starts again with those of the last run


class Known:
    """What a file remembers, and what was found in this run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: set[str] | None = None  # read when it is first needed
        self._met: set[str] = set()

    def same(self, one: str, other: str) -> bool:
        """Whether two texts differ in their formatting at most."""
        name = _name(f"{len(one)} {one}{other}")
        if name not in self._read() and normal_form(one) != normal_form(other):
            return False
        self._met.add(name)
        return True

    def whole(self, kept: Kept) -> bool:
        """Whether the text of a record unpacks to the one that it means."""
        name = _name(f"{kept.text} {kept.base}")
        if name not in self._read() and kept.written is None:
            return False
        self._met.add(name)
        return True

    def keep(self) -> None:
        """Remember what this run found, if it found something new."""
        known = self._read() if self._met else self._met
        if not self._met <= known:
            both = known | self._met
            names = both if len(both) <= ENOUGH else self._met
            store(self._path, "\n".join(sorted(names)).encode())

    def _read(self) -> set[str]:
        if self._known is None:
            try:
                self._known = set(read_text(self._path, "ascii").split())
            except (OSError, ValueError):
                self._known = set()
        return self._known


def _name(asked: str) -> str:
    return hashlib.sha256(asked.encode(errors="backslashreplace")).hexdigest()[:32]
