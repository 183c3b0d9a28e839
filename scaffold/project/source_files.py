"""The Python files named by a command's paths: found and read in one place, and a map over all of them.

`scaffold lint`, `verify FILE`, `adopt` and `test-stub` look for hand-written Functions in them.
In: paths typed by a user, a function of a file. Out: files in a stable order, their texts as Python would read them; the
results in the order of the files.
Invariant: an unreadable file is a `ScaffoldError` with its place; hidden directories and environments are not entered. The results
do not depend on the number of processes.
"""

import io
import os
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.files import read_bytes
from scaffold.inspect import function_names, may_matter
from scaffold.project.console import Console
from scaffold.verify.pool import over, processes_for

SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def find_sources(paths: Iterable[str]) -> tuple[str, ...]:
    """Return every Python file at or below the paths, each once, as messages show it; raise for paths that do not exist, all together."""
    found: dict[str, None] = {}
    problems = []
    for path in paths:
        if os.path.isdir(path):
            found.update(dict.fromkeys(_below(path)))
        elif os.path.exists(path):
            found[os.path.normpath(path)] = None
        else:
            message = f"'{path}' does not exist"
            hint = "give the paths of files or directories from here"
            problems.append(ScaffoldError(message, Location("PATH"), hint))
    raise_all(problems)
    return tuple(found)


def _below(directory: str) -> Iterator[str]:
    """Yield the Python files below a directory, sorted; hidden directories, virtual environments and the like are not entered."""
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
    """Return the text of a Python file in the encoding it declares, with newlines for line ends; raise ScaffoldError if it cannot be read."""
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
    """Return whether `lint --fix` can write a file back with nothing else changed: UTF-8 without a byte order mark or lone carriage returns.

    False for a file that cannot be read.
    """
    try:
        data = read_bytes(path)
        data.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return encoding == "utf-8" and b"\r" not in data.replace(b"\r\n", b"")


Result = TypeVar("Result")


class Tree(NamedTuple):
    """The files of a run: all, and the relevant ones, to be parsed.

    `known` are the names of all Functions they define, as a class may inherit from one of another file; `unread` the errors of
    files that cannot be read.
    """

    paths: tuple[str, ...]
    relevant: tuple[str, ...]
    known: frozenset[str]
    unread: tuple[ScaffoldError, ...]
    named: frozenset[str]  # files named by the user, not just found in a directory


def look_through(paths: Sequence[str]) -> Tree:
    """Return all files at or below the paths, and the ones worth parsing: named by the user, or perhaps defining a Function.

    Parsing is slow, so words of the text decide first; a file with a class is looked at again once the names of all Functions are
    known: it may inherit from one.
    """
    found = find_sources(paths)
    named = frozenset(os.path.normpath(path) for path in paths).intersection(found)
    texts, unread = {}, []
    known: set[str] = set()
    for path in found:
        try:
            text = read_source(path)
        except ScaffoldError as error:
            unread.append(error)
            continue
        known |= function_names(text)
        # A class may inherit from a Function of a file read later: its text is kept until all are read.
        if path in named or may_matter(text) or "class " in text:
            texts[path] = text
    names = frozenset(known)
    relevant = tuple(
        path for path, text in texts.items() if path in named or may_matter(text, names)
    )
    return Tree(found, relevant, names, tuple(unread), named)


def each(
    function: Callable[[str], Result], tree: Tree, console: Console
) -> list[Result]:
    """Return the results of a function for each relevant file, in their order; several processes share the work, the console shows it."""
    paths = tree.relevant
    count = processes_for(len(paths))
    results = []
    with console.progress(len(paths)) as update:
        for result in over(function, paths, count):
            results.append(result)
            update(len(results))
    return results
