"""One run at a time writes below a root.

In: a root. Out: its journal file, open and locked. Invariant: whoever has it is alone, or works on a file system without
locks.
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
