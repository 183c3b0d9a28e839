"""What a reader of the documents has: the commands on PATH, and an empty directory."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `scaffold` and `python`, those of this environment."""
    directory = tmp_path_factory.mktemp("bin")
    python = shlex.quote(sys.executable)
    path = shlex.quote(str(ROOT))
    write_script(directory / "python", f'exec {python} "$@"')
    write_script(
        directory / "scaffold",
        f'PYTHONPATH={path} exec {python} -m scaffold "$@"',
    )
    return directory


@pytest.fixture(scope="session")
def environment(commands: Path) -> dict[str, str]:
    """The variables of a terminal of 80 columns, without those that steer Python or pytest."""
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHON", "VIRTUAL_ENV"))
        and name not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS")
    }
    path = os.environ.get("PATH", os.defpath)
    return known | {"PATH": f"{commands}{os.pathsep}{path}", "TERM": "xterm"}


def write_script(path: Path, body: str) -> None:
    """Write a shell script that can be run."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
