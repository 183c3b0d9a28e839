"""What other tools say of generated code.

In: a directory. Out: their findings, empty where there are none.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path


def findings_of_ruff(directory: Path) -> str:
    """With the default rules, as a user without a configuration has them."""
    return _run("ruff", directory, "check", "--isolated", "--no-cache", ".")


def findings_of_mypy(directory: Path, cache: Path, *options: str) -> str:
    """The op of each directory is a module of its own to the tests beside it."""
    options += ("--config-file=", "--no-namespace-packages", f"--cache-dir={cache}")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # what is known of torch is read once
        return _run("mypy", directory, *options, ".")


def findings_of_black(directory: Path) -> str:
    """With the line length that the formatter has by default."""
    return _run("black", directory, "--check", f"--config={os.devnull}", ".")


def _run(tool: str, directory: Path, *arguments: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", tool, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout + found.stderr if found.returncode else ""
