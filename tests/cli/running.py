"""Run `scaffold` as a user does: in this process, which is fast, or in one of its own.

In: a directory and arguments. Out: an `Outcome`: exit code, both outputs, and which files are there that were not.
"""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

import typer

from scaffold.cli import app, main

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-P", "-m", "scaffold")  # as the installed command: no cwd
QUICK = ("--inputs", "x", "--no-test", "--no-module")  # the least that is written


@dataclass(frozen=True)
class Outcome:
    """What a run said and did."""

    code: int
    out: str
    err: str  # without the line of a proof, whose numbers are those of this PyTorch
    proven: str = ""

    @property
    def messages(self) -> list[str]:
        """The lines of `err` without the excerpts of the user's text."""
        return EXCERPT.sub("", self.err).splitlines()


PROVEN = re.compile(r"^proven: .*\n", re.MULTILINE)
EXCERPT = re.compile(r"^(?: *\d+| {5}) \| .*\n", re.MULTILINE)  # a place, carets below


def _outcome(code: int, out: str, err: str) -> Outcome:
    return Outcome(code, out, PROVEN.sub("", err), "".join(PROVEN.findall(err)))


# A run makes its command of what is declared once; hundreds of runs in this process would do it each time.
_ONCE = (
    patch.object(app, "application", cache(app.application)),
    patch.object(typer.main, "get_command", cache(typer.main.get_command)),
)


def scaffold(directory: Path, *arguments: str) -> Outcome:
    """Run the command in this process; nobody is there to be asked."""
    typed = patch.object(sys, "argv", ["scaffold", *arguments])
    with _captured() as (out, err), chdir(directory), typed, _ONCE[0], _ONCE[1]:
        code = _exit_code()
    return _outcome(code, _text(out), _text(err))


def new_op(directory: Path, *arguments: str, name: str = "foo") -> Outcome:
    """Run `scaffold new-op foo` in this process."""
    return scaffold(directory, "new-op", name, *arguments)


def _exit_code() -> int:
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


@contextmanager
def _captured() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors, write_through=True)
        for errors in ("strict", "backslashreplace")  # as Python opens them
    )
    with redirect_stdout(out), redirect_stderr(err), patch("sys.stdin", io.StringIO()):
        yield out, err


def _text(stream: io.TextIOWrapper) -> str:
    data = stream.buffer
    assert isinstance(data, io.BytesIO)
    return data.getvalue().decode(errors="surrogateescape")


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process that finds the package."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def run(
    directory: Path, *arguments: str, stdin: str | None = None, **changes: str
) -> Outcome:
    """Run the command in a process of its own, off a terminal."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=directory,
        env=environment(**changes),
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )
    return _outcome(done.returncode, done.stdout, done.stderr)


def listing(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path, with what it holds."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
