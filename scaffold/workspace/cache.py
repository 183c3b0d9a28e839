"""A cache between runs of what was found about files: equal but for formatting, a record undamaged; it may be deleted at any time.

In: pairs of texts, records of files. Out: whether the texts differ only in formatting, whether the record unpacks. Invariant: a
cached answer was found by this version, for these very bytes; without a place to store it, it is found again.

Words: `_known` are the answers stored by earlier runs, `_met` those of this run; each is a "yes" to a question, by its digest (`_name`).

Every run asks for every file: parsing two texts takes ten milliseconds, unpacking one a third of a file's time.
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
    """Write a file of a cache under another name, then rename it, so no other run reads half of it; ignore an OSError."""
    staged = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = disk.create(staged)
        try:
            disk.write(descriptor, data)
        finally:
            disk.close(descriptor)
        disk.replace(staged, path)


ENOUGH = 50_000  # answers; a larger file is replaced by the last run's


class Known:
    """The texts found equal, and the records found intact: by earlier runs, as stored in a file, and by this run. Other answers are not stored."""

    def __init__(self, path: Path) -> None:
        """Begin with the answers stored in the file at `path`, which need not exist."""
        self._path = path
        self._known: set[str] | None = None  # read when it is first needed
        self._met: set[str] = set()

    def same(self, one: str, other: str) -> bool:
        """Return whether two texts differ at most in formatting, from the cache if it is known."""
        # The length tells where the first text ends: "ab" + "c" is another pair than "a" + "bc".
        name = _name(f"{len(one)} {one}{other}")
        if name not in self._read() and normal_form(one) != normal_form(other):
            return False
        self._met.add(name)
        return True

    def whole(self, kept: Kept) -> bool:
        """Return whether the packed text of a record is intact: it unpacks to a text with the recorded digest."""
        name = _name(f"{kept.text} {kept.base}")
        if name not in self._read() and kept.written is None:
            return False
        self._met.add(name)
        return True

    def keep(self) -> None:
        """Store this run's answers beside those of earlier ones, if any of them is new; instead of them if there are too many."""
        # A run without answers has nothing to store, and need not read the file: then both sets are empty.
        known = self._read() if self._met else self._met
        if not self._met <= known:
            both = known | self._met
            names = both if len(both) <= ENOUGH else self._met
            store(self._path, "\n".join(sorted(names)).encode())

    def _read(self) -> set[str]:
        """Return the stored answers; none if there is no readable file."""
        if self._known is None:
            try:
                self._known = set(read_text(self._path, "ascii").split())
            except (OSError, ValueError):
                self._known = set()
        return self._known


def _name(asked: str) -> str:
    """Return the digest of a question, `asked`; the file of the cache lists those of all questions answered "yes"."""
    return hashlib.sha256(asked.encode(errors="backslashreplace")).hexdigest()[:32]
