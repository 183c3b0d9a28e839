"""Reading files of unknown origin: all reading of users' files goes through here.

A path typed by a user, or found in a directory, may be a pipe, a device or a file without end.
In: a path. Out: the content of a regular file of at most `LARGEST` bytes. Invariant: a pipe, a device or an endless file is an
`OSError` at once, whose words fit behind "cannot be read"; nothing waits, and nothing fills the memory.
"""

import errno
import os
import stat
from os import open as open_descriptor

LARGEST = 10_000_000  # bytes; the largest file of PyTorch's own source has 2
CHUNK = 1 << 16
FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
FLAGS |= getattr(os, "O_NONBLOCK", 0)  # opening a pipe does not wait for a writer
FLAGS |= getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)

# The hint for a configuration file that is not text.
NOT_TEXT = "save it as text in UTF-8, or remove it"

Path = str | os.PathLike[str]


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file; raise OSError for any other kind, or for more than `LARGEST` bytes."""
    descriptor = open_descriptor(path, FLAGS)
    try:
        _check(os.fstat(descriptor), path)
        parts, size = [], 0
        while part := os.read(descriptor, CHUNK):
            parts.append(part)
            size += len(part)
            if size > LARGEST:  # it grew, or its size is reported as 0
                raise _too_large(path)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file, with newlines as line ends; raise OSError as `read_bytes` does, or ValueError if it is not UTF-8."""
    text = read_bytes(path).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check(found: os.stat_result, path: Path) -> None:
    """Raise OSError unless the open file, of this status, is a regular one of at most `LARGEST` bytes; `path` is for the error."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    if found.st_size > LARGEST:
        raise _too_large(path)


def _too_large(path: Path) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {LARGEST // 1_000_000} MB", path)
