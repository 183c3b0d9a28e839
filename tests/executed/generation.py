"""Generate ops as a user does, and import what came out.

In: a directory and the arguments of `scaffold new-op`. Out: its files there; a module.
"""

import importlib.util
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from scaffold.cli.app import application

NOTHING: Mapping[str, str] = {}


def run_new_op(
    directory: Path, *arguments: str, environment: Mapping[str, str] = NOTHING
) -> Result:
    """What `scaffold new-op` says and returns when it runs in the directory."""
    with chdir(directory):
        return CliRunner(env=environment).invoke(
            application("new-op"), ["new-op", *arguments]
        )


def new_op(
    directory: Path, *arguments: str, environment: Mapping[str, str] = NOTHING
) -> Result:
    """Generate an op in the directory."""
    result = run_new_op(directory, *arguments, environment=environment)
    assert result.exit_code == 0, f"{arguments}: {result.output}{result.exception}"
    return result


def load(path: Path) -> Any:
    """The module in a file; it may import what lies beside it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
