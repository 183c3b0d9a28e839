"""One run at a time writes below a root.

In: a root. Out: its journal file, open and locked; or a turn among the runs that try again. Invariant: whoever has the
journal is alone, or works on a file system without locks.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.workspace import disk

NAME = ".scaffold-journal.tmp"
WAIT = 10.0  # seconds for another run to end


@contextmanager
def locked(root: Path) -> Iterator[int]:
    """The journal file of a root, open and locked, made if need be; wait for another run."""
    path = root / NAME
    patience = time.monotonic() + WAIT
    while (descriptor := _open_locked(path)) is None:
        if time.monotonic() > patience:
            raise ScaffoldError(f"another run is writing in '{root}'")
        time.sleep(0.02)
    try:
        yield descriptor
    finally:
        with suppress(OSError):
            disk.close(descriptor)


@contextmanager
def in_turn(root: Path) -> Iterator[None]:
    """Wait for the other runs below a root that begin anew, so that they do not come in between each other.

    It is a courtesy: who has waited for long goes on without.
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
    patience = time.monotonic() + WAIT
    while time.monotonic() < patience:
        with suppress(BlockingIOError):
            disk.lock(descriptor)
            return
        time.sleep(0.02)


def _open_locked(path: Path) -> int | None:
    """The open file, or None while another run holds it."""
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
    """Whether the file is still the one; a run that ends takes its file with it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
