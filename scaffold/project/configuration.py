"""The `[tool.scaffold]` that holds in the working directory.

In: the working directory. Out: a `Configuration`.
Invariant: the environment says nothing of it: a variable that did once is refused, not ignored.
"""

import os
from pathlib import Path

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.spec import Configuration, load_configuration
from scaffold.spec.config_keys import KEYS


def configuration_here() -> Configuration:
    """Return what the nearest pyproject.toml says."""
    raise_all([problem for key in KEYS for problem in _stated_outside(key)])
    return load_configuration(working_directory())


def _stated_outside(key: str) -> list[ScaffoldError]:
    """Refuse the environment variable that stated a key."""
    name = f"SCAFFOLD_{key.upper().replace('-', '_')}"
    if not os.environ.get(name):
        return []
    message = "variables of the environment state no keys any more"
    hint = f"unset it, and say '{key}' in [tool.scaffold] or by an option"
    return [ScaffoldError(message, Location(name), hint)]


def working_directory() -> Path:
    """The directory that paths on the command line count from."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ScaffoldError("the working directory does not exist any more") from None
