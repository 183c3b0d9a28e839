"""The table `[tool.scaffold.testing]`: what the tests of a project share.

In: the table. Out: a `Testing`. Invariant: an unknown key or a value of another kind is a problem at its place.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from scaffold.errors import did_you_mean
from scaffold.spec.config_values import Stated
from scaffold.spec.kinds import ANY_TABLE
from scaffold.spec.names import INSTALLED

FILE = "op_testing.py"
KEYS = ("file",)
_FILE = r"^(?:[^/\0]+/)*(?!test_)[A-Za-z_][A-Za-z0-9_]*(?<!_test)\.py$(?!\n)"
TESTING = ANY_TABLE._replace(
    schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {"file": {"type": "string", "pattern": _FILE}},
    }
)


class Testing(NamedTuple):
    """What a project says of its tests."""

    file: str | None = None  # that tests import; None: op_testing.py beside them


BESIDE = Testing()


def read_testing(stated: Stated) -> Testing:
    """The configuration in the value of the key `testing`."""
    value, problems = stated.value, stated.problems
    for key in value:
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or f"the keys: {', '.join(KEYS)}"
            message = f"unknown key '{key}' in [tool.scaffold.testing]"
            problems.at_key((stated.key, key), message, hint)
    return Testing(_file(stated) if "file" in value else None)


def _file(stated: Stated) -> str | None:
    """A module of the project that pytest does not take for a test."""
    value = stated.value["file"]
    hint = "write it relative to the project, such as 'tests/op_testing.py'"
    if not isinstance(value, str) or not re.search(_FILE, value):
        stated.refuse("'file' must name a module that is no test", hint, "file")
        return None
    inside = Path(os.path.normpath(value))
    if inside.is_absolute() or inside.parts[0] == "..":
        stated.refuse("'file' must name a file of the project", hint, "file")
        return None
    if inside.stem in INSTALLED:
        message = f"'{inside.name}' would hide the installed module"
        stated.refuse(message, "such as 'tests/op_testing.py'", "file")
        return None
    return inside.as_posix()
