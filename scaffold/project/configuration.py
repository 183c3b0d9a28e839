"""The `[tool.scaffold]` that holds in the working directory, and the variables of the environment over it.

In: the working directory and the environment. Out: a `Configuration`.
Invariant: of the environment only the variables of the configuration matter.
"""

import os
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.spec import Configuration, load_configuration


def configuration_here() -> Configuration:
    """What the environment and the nearest pyproject.toml say."""
    return load_configuration(working_directory(), os.environ)


def working_directory() -> Path:
    """The directory that paths on the command line count from."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ScaffoldError("the working directory does not exist any more") from None
