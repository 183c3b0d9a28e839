"""Ruff as the formatter of a project.

In: {path: text} and the project's root. Out: the same texts as `ruff format` writes them. Invariant: no file is touched; ruff
reads its configuration where it would for a file of that path.
"""

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scaffold.errors import ScaffoldError

AT_ONCE = 4  # a thread waits for its process


def format_with_ruff(
    files: Mapping[str, str], line_length: int, root: Path
) -> dict[str, str]:
    """The texts, formatted; paths count from the root."""
    command = [_executable(), "format", "--line-length", str(line_length)]

    def formatted(path: str) -> str:
        return _formatted([*command, "--stdin-filename", path], files[path], root)

    with ThreadPoolExecutor(min(AT_ONCE, max(1, len(files)))) as pool:
        return dict(zip(files, pool.map(formatted, files), strict=True))


def _executable() -> str:
    """The ruff of our own environment, else the one that the shell would find."""
    beside = Path(sys.executable).with_name("ruff")
    return str(beside) if beside.is_file() else "ruff"


def _formatted(command: list[str], text: str, root: Path) -> str:
    try:
        done = subprocess.run(
            [*command, "-"],
            cwd=root,
            input=text,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    except OSError as error:
        raise ScaffoldError(
            f"cannot run ruff, the formatter of the project: {error.strerror}",
            hint="install it: pip install ruff; or say: formatter = 'black'",
        ) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ScaffoldError(f"ruff does not format '{command[-1]}': {reason}")
    return done.stdout
