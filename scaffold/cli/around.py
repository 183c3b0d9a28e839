"""What a new project finds there: a project that holds its directory, a [tool.scaffold] that says something else.

In: the directory or the text of its pyproject.toml, and the keys that options name. Out: text, notes or an error.
Invariant: a key that is there is never changed, and the rest of the file stays as it is, comments too.
"""

import os
import posixpath
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.spec.config import find_sources
from scaffold.spec.toml import Places, toml_text

_HEADER = re.compile(
    r"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*scaffold[ \t]*\].*\n?", re.MULTILINE
)


def check_above(directory: Path, *, own: bool) -> tuple[str, ...]:
    """A note where a project above holds the directory too; an error unless it has a pyproject.toml of its `own`."""
    found = None
    with suppress(ScaffoldError):  # a file above that is broken holds nothing
        found = find_sources(directory.parent)
    if found is None or not found.project or found.places is None:
        return ()
    shown = Path(os.path.relpath(Path(found.root, "pyproject.toml"))).as_posix()
    here = Path(os.path.relpath(directory, found.root)).as_posix()
    if own:
        return (f"'{here}' is no part of the project of '{shown}' any more",)
    place = found.places(("tool", "scaffold"), key=True)
    raise ScaffoldError(
        f"'{here}' is part of this project already; nothing was written",
        replace(place, source=shown),
        "use it from there; or write a pyproject.toml there first, for a project of its own",
    )


def with_keys(text: str, given: Mapping[str, str], path: str) -> str:
    """The text with the keys in its [tool.scaffold]; one that has another value there is an error."""
    table: dict[str, Any] = tomllib.loads(text)["tool"]["scaffold"]
    places = Places(text, path, ("tool", "scaffold"))
    problems = [
        _difference(key, value, table[key], places((key,)))
        for key, value in given.items()
        if key in table and not _same(value, table[key])
    ]
    raise_all(problems)
    new = {key: value for key, value in given.items() if key not in table}
    if not new:
        return text
    lines = "".join(f"{key} = {toml_text(value)}\n" for key, value in new.items())
    changed = _HEADER.sub(lambda header: _ended(header[0]) + lines, text, count=1)
    if not _says(changed, table | new):
        message = f"'{next(iter(new))}' cannot be added: the table has no header [tool.scaffold]"
        raise ScaffoldError(message, places(()), f"write: {lines.splitlines()[0]}")
    return changed


def _difference(key: str, given: str, there: Any, place: Location) -> ScaffoldError:
    message = f"'{key}' is {there!r} here, and --{key} says {given!r}"
    hint = "edit it: scaffold init changes no key that is there"
    return ScaffoldError(message, place, hint)


def _same(one: str, other: Any) -> bool:
    """Whether two values of a key are one directory, or one package."""
    return isinstance(other, str) and posixpath.normpath(one) == posixpath.normpath(
        other
    )


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n"


def _says(text: str, table: Mapping[str, Any]) -> bool:
    try:
        found = tomllib.loads(text)["tool"]["scaffold"]
    except tomllib.TOMLDecodeError:
        return False
    return bool(found == table)
