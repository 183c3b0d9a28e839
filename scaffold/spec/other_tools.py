"""What the tables of other tools in a pyproject.toml say that matters to generated code.

In: the data of the file. Out: a `Surroundings`. Invariant: nothing here is an error; another tool's table is its owner's
affair.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from scaffold.spec.problems import KeyPath

SHORTEST = 40  # a line that still holds a signature
LINE_LENGTH = 88


class Surroundings(NamedTuple):
    """What other tools are configured with."""

    installed: bool = False  # the project is built and installed before it is tested
    pythonpath: tuple[str, ...] = ()  # directories that pytest adds to the path
    prepends: bool = True  # pytest also adds the directory of a test
    line_length: int = LINE_LENGTH
    line_length_key: KeyPath | None = None  # where that is said
    single_line_imports: bool = False


def read_surroundings(data: Mapping[str, Any], root: str) -> Surroundings:
    """What the file says; `root` is its directory."""
    tool = table_of(data, "tool")
    pytest = table_of(tool, "pytest")  # of pytest 9; before, its ini_options
    pytest |= table_of(pytest, "ini_options")
    paths = _words(pytest.get("pythonpath"))
    length, key = _line_length(tool)
    return Surroundings(
        installed="build-system" in data,
        pythonpath=tuple(os.path.normpath(os.path.join(root, path)) for path in paths),
        prepends="importlib" not in " ".join(_words(pytest.get("addopts"))),
        line_length=length,
        line_length_key=key,
        single_line_imports=_single_line_imports(tool),
    )


def table_of(data: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The table of that path; an empty one where there is none."""
    found: Any = data
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return dict(found) if isinstance(found, dict) else {}


def _words(value: Any) -> tuple[str, ...]:
    """A setting of pytest that is a list, or words in one string."""
    words = value.split() if isinstance(value, str) else value
    return tuple(map(str, words)) if isinstance(words, list) else ()


def _line_length(tool: Mapping[str, Any]) -> tuple[int, KeyPath | None]:
    """The line length that black or ruff is configured with, and where it stands."""
    for name in ("black", "ruff"):
        length = table_of(tool, name).get("line-length")
        if type(length) is int and length >= SHORTEST:
            return length, ("tool", name, "line-length")
    return LINE_LENGTH, None


def _single_line_imports(tool: Mapping[str, Any]) -> bool:
    """Whether ruff or isort is told to write one name an import."""
    lint = table_of(tool, "ruff", "lint", "isort") or table_of(tool, "ruff", "isort")
    isort = table_of(tool, "isort")
    stated = (lint.get("force-single-line"), isort.get("force_single_line"))
    return any(value is True for value in stated)
