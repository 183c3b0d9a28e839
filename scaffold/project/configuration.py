"""The `[tool.scaffold]` configuration of the working directory, overridden by environment variables.

Every command begins here. `spec.config` reads the pyproject.toml; here it is told where to begin.
In: the working directory and the environment. Out: a `Configuration`; paths in it are relative to its `root`, the directory
of the pyproject.toml, or "." without one.
Invariant: only the configuration's own variables are read from the environment.
"""

import os
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.spec import Configuration, load_configuration


def configuration_here() -> Configuration:
    """Return the configuration of the nearest pyproject.toml and the environment."""
    return load_configuration(working_directory(), os.environ)


def working_directory() -> Path:
    """Return the working directory, the base of paths on the command line; raise if it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ScaffoldError("the working directory does not exist any more") from None
