"""Reading files that somebody else may have put there.

In: a path. Out: the content of a regular file of a size that somebody would write. Invariant: a pipe, a device or a file
without end is an `OSError` at once, with words that fit behind "cannot be read"; nothing waits, nothing fills the memory.
"""

import errno
import os
import stat
from os import open as open_descriptor

LARGEST = 10_000_000  # bytes; the largest file of PyTorch's own source has 2
CHUNK = 1 << 16
FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
FLAGS |= getattr(os, "O_NONBLOCK", 0)  # a pipe is opened though nobody writes
FLAGS |= getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)

# The hint where somebody's configuration cannot be read.
NOT_TEXT = "mend it, or take it away: it is a text file in UTF-8"

Path = str | os.PathLike[str]


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    descriptor = open_descriptor(path, FLAGS)
    try:
        _check(os.fstat(descriptor), path)
        parts, size = [], 0
        while part := os.read(descriptor, CHUNK):
            parts.append(part)
            size += len(part)
            if size > LARGEST:  # it grew, or says nothing of its size
                raise _too_large(path)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file, with plain line ends."""
    text = read_bytes(path).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check(found: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
    if found.st_size > LARGEST:
        raise _too_large(path)


def _too_large(path: Path) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {LARGEST // 1_000_000} MB", path)
