"""Entries of a cache: files that nobody misses.

In: a path and bytes. Out: nothing. Invariant: the file is whole or not there, and a failure is no error.
"""

import os
from contextlib import suppress
from pathlib import Path

from scaffold.workspace import disk


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
