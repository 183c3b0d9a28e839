"""Settings of other tools in a pyproject.toml that affect generated code.

So generated files fit the project: the line length of black, one import a line if isort wants it, imports in tests that pytest
can find. In: the data of the file, parsed. Out: a `Surroundings`, which `config` joins with our own keys. Invariant: nothing
here is an error; another tool's table is checked by that tool.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from scaffold.spec.problems import KeyPath

SHORTEST = 40  # the shortest line that fits a signature
LINE_LENGTH = 88


class Surroundings(NamedTuple):
    """The settings of other tools; fields with the name of one in `Configuration` are copied there."""

    installed: bool = False  # the project is built and installed before its tests
    pythonpath: tuple[str, ...] = ()  # directories pytest adds to the path
    prepends: bool = True  # pytest also adds the directory of a test
    line_length: int = LINE_LENGTH
    # The key that sets it, for `scaffold config`.
    line_length_key: KeyPath | None = None
    single_line_imports: bool = False


def read_surroundings(data: Mapping[str, Any], root: str) -> Surroundings:
    """Read the settings of other tools in a file's data: its line length, where pytest finds modules; `root` is its directory."""
    tool = table_of(data, "tool")
    pytest = table_of(tool, "pytest")  # pytest 9; older versions use ini_options
    pytest |= table_of(pytest, "ini_options")
    # relative to the file, in the directory `root`
    paths = _words(pytest.get("pythonpath"))
    length, key = _line_length(tool)
    return Surroundings(
        installed="build-system" in data,
        pythonpath=tuple(os.path.normpath(os.path.join(root, path)) for path in paths),
        # Unless `--import-mode=importlib` is among pytest's options.
        prepends="importlib" not in " ".join(_words(pytest.get("addopts"))),
        line_length=length,
        line_length_key=key,
        single_line_imports=_single_line_imports(tool),
    )


def table_of(data: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a copy of the table at a path of keys; an empty one if there is none, or another value stands there."""
    found: Any = data
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return dict(found) if isinstance(found, dict) else {}


def _words(value: Any) -> tuple[str, ...]:
    """Return the words of a pytest setting, a list or one string."""
    words = value.split() if isinstance(value, str) else value
    return tuple(map(str, words)) if isinstance(words, list) else ()


def _line_length(tool: Mapping[str, Any]) -> tuple[int, KeyPath | None]:
    """Return the line length set for black, else for ruff, and its key; a default and None if neither sets a usable one."""
    for name in ("black", "ruff"):
        length = table_of(tool, name).get("line-length")
        # Not True, which is an int to `isinstance`.
        if type(length) is int and length >= SHORTEST:
            return length, ("tool", name, "line-length")
    return LINE_LENGTH, None


def _single_line_imports(tool: Mapping[str, Any]) -> bool:
    """Return whether ruff or isort forces one name per import."""
    # Older versions of ruff have the table without `lint`.
    lint = table_of(tool, "ruff", "lint", "isort") or table_of(tool, "ruff", "isort")
    isort = table_of(tool, "isort")
    stated = (lint.get("force-single-line"), isort.get("force_single_line"))
    return any(value is True for value in stated)
