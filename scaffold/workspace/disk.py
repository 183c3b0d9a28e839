"""Every call changing the disk, one function each, and the reads beside them.

`transaction` writes by them. In: paths and bytes. Out: `OSError`s as the system raises them.
Invariant: the rest of the package touches the disk through this module alone, so that a test
can let any single step fail.
"""

import fcntl
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from scaffold.files import read_bytes


def read(path: Path) -> bytes | None:
    """Return the content of a file, None if there is none."""
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None


def digest(path: Path) -> str | None:
    """Return the fingerprint of a file's content, None if there is no file."""
    data = read(path)
    return None if data is None else fingerprint(data)


def fingerprint(data: bytes) -> str:
    """Return the digest by which a content is recognized."""
    return hashlib.sha256(data).hexdigest()


def mode(path: Path) -> int:
    """Return the permission bits of a file."""
    return stat.S_IMODE(os.stat(path).st_mode)


def writable(path: Path) -> bool:
    """Return whether we may write a file; one without write permission for anybody is left alone, even by root.

    True for one that is gone: another run removed it while we planned, and nothing forbids to write it.
    """
    try:
        for_anybody = bool(os.stat(path).st_mode & 0o222)
    except FileNotFoundError:
        return True
    # `os.access` says False of a file that went in between, too.
    return for_anybody and (os.access(path, os.W_OK) or not path.exists())


def names(directory: Path) -> list[str]:
    """Return the names in a directory, [] if it is gone: another run may remove one while we plan."""
    with suppress(FileNotFoundError):
        return os.listdir(directory)
    return []


def create(path: Path) -> int:
    """Open a new, empty file with the umask's mode; return its descriptor."""
    # O_EXCL: it fails if there is a file of the name, which must not be overwritten.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def open_lock(path: Path) -> int:
    """Open a file, creating it if missing; its content stays. Return its descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def open_directory(path: Path) -> int:
    """Open a directory; return its descriptor."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def read_all(descriptor: int) -> bytes:
    """Return the content of an open file, from its start."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def lock(descriptor: int) -> None:
    """Lock the file until the descriptor is closed; raise BlockingIOError if another process holds it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def held(path: Path) -> bool:
    """Return whether a process holds the lock of a file, so its run is under way; False on a file system without locks."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # A shared lock, so that two processes that ask at once do not take each other for a run.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(descriptor)
    return False


def write(descriptor: int, data: bytes) -> None:
    """Write all of the data to an open file: one call of the system may write a part."""
    while data:
        data = data[os.write(descriptor, data) :]


def chmod(descriptor: int, permissions: int) -> None:
    os.fchmod(descriptor, permissions)


def sync(descriptor: int) -> None:
    os.fsync(descriptor)


def sync_all() -> None:
    """Flush all pending writes to the disk: one wait, however many files there are."""
    os.sync()


def close(descriptor: int) -> None:
    os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Give `target` the content of `source` in one step; `source` is gone afterwards."""
    os.replace(source, target)


def link(source: Path, target: Path) -> None:
    """Give a file a second name."""
    os.link(source, target, follow_symlinks=False)


def unlink(path: Path) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def mkdir(path: Path) -> None:
    os.mkdir(path)


def rmdir(path: Path) -> None:
    os.rmdir(path)
