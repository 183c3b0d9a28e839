"""References to the user's files: `'@file.py:function'`.

In: the text of a reference and a way to read files. Out: the function as text, its imports included.
Invariant: a file is read, never run.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Text, function_in

ReadFile = Callable[[str], str]
REFERENCE = re.compile(r"\s*@(?P<path>[^\n]+?\.py)(?::(?P<function>[\w.]+))?\s*")


class Reference(NamedTuple):
    """What a reference names; `name` is None for a file that is one body without a function."""

    name: str | None
    text: Text
    parameters: tuple[str, ...]
    imports: tuple[tuple[str, str | None, str | None], ...]
    source: str


def read_reference(
    value: str,
    role: str,
    place: Location,
    read: ReadFile,
    imported: frozenset[str] = frozenset(),
) -> Reference:
    """Read the function that a reference names; what the op has `imported` needs nothing of the file."""
    match = REFERENCE.fullmatch(value)
    if match is None:
        hint = "write '@file.py' or '@file.py:function'"
        raise ScaffoldError(f"'{value.strip()}' names no file", place, hint)
    path = match["path"]
    try:
        source = read(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ScaffoldError(f"cannot read '{path}': {reason}", place) from None
    source = source.removeprefix("\ufeff")
    found = function_in(source, path, match["function"], role, imported)
    name = found.text.origin.function if found.text.origin else None
    return Reference(name, found.text, found.parameters, found.imports, found.source)
