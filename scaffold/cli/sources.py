"""The Python files that a command is pointed at: found and read in one place.

In: paths that a user typed. Out: files in a stable order, and their texts as Python would read them.
Invariant: what cannot be read is a `ScaffoldError` with the place; hidden directories and environments are not entered.
"""

import io
import os
import tokenize
from collections.abc import Iterable, Iterator

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.files import read_bytes

SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def find_sources(paths: Iterable[str]) -> tuple[str, ...]:
    """Every Python file at or below the paths, once, as it is shown."""
    found: dict[str, None] = {}
    problems = []
    for path in paths:
        if os.path.isdir(path):
            found.update(dict.fromkeys(_below(path)))
        elif os.path.exists(path):
            found[os.path.normpath(path)] = None
        else:
            message = f"'{path}' does not exist"
            problems.append(ScaffoldError(message, Location("PATH")))
    raise_all(problems)
    return tuple(found)


def _below(directory: str) -> Iterator[str]:
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(
            name
            for name in directories
            if name not in SKIPPED
            and not name.startswith(".")
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        )
        for name in sorted(names):
            path = os.path.normpath(os.path.join(place, name))
            if name.endswith(".py") and os.path.isfile(path):
                yield path


def read_source(path: str) -> str:
    """The text of a file in the encoding that it declares, with plain line ends."""
    try:
        data = read_bytes(path)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScaffoldError(f"cannot be read: {reason}", Location(path)) from None
    except (SyntaxError, UnicodeDecodeError, LookupError):
        reason = "it is not in the encoding that it declares"
        raise ScaffoldError(f"cannot be read: {reason}", Location(path)) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_plain_utf8(path: str) -> bool:
    """Whether a file can be written again as it is: UTF-8 without a mark, and of whole lines."""
    try:
        data = read_bytes(path)
        data.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return encoding == "utf-8" and b"\r" not in data.replace(b"\r\n", b"")
