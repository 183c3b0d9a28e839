"""Take the steps of a page as a reader does, in processes that have torch loaded.

In: the text of a page and an empty directory. Out: what each command printed, and the files that it wrote. Invariant: a
command of the tool runs in this process, and whatever would import torch is forked from one that has it; what a shell makes of
the text that is typed is checked by `test_shells.py`.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from scaffold.cli import main
from scaffold.verify import processes
from tests.docs.pages import COPIED, ROOT, Command, File, Session, read_steps

PYTEST = Path(pytest.__file__).parent / "__main__.py"
SESSION = Path(__file__).with_name("session.py")
PYTHON = ("python", "-m", "pytest")


@dataclass
class Played:
    """The directory of a reader who took every step of a page, and what the commands printed."""

    directory: Path
    commands: list[Command] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """The commands with what the page says that they print, as a terminal shows them."""
        return _transcript(self.commands, [item.output for item in self.commands])

    @property
    def seen(self) -> str:
        """The commands with what they did print."""
        return _transcript(self.commands, self.printed)


def play(text: str, directory: Path) -> Played:
    """Take every step of a page, from top to bottom, in the directory."""
    played = Played(directory)
    for name in COPIED.findall(text):
        shutil.copytree(ROOT / "docs" / name, directory / name)
    for step in read_steps(text):
        match step:
            case File():
                path = directory / step.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text)
            case Session():
                answer = _python(directory, str(SESSION), step.text)
                assert not answer, answer
            case Command():
                played.commands.append(step)
                played.printed.append(_run(step.text, directory))
    return played


def with_outputs(text: str, played: Played) -> str:
    """The page with what its commands printed in place of what it says that they print."""
    done = ""
    for command, printed in zip(played.commands, played.printed, strict=True):
        before, found, text = text.partition(f"$ {command.text}\n{command.output}")
        same = _without_times(printed) == _without_times(command.output)
        done += before + (found if same else f"$ {command.text}\n{printed}")
    return done + text


def _run(command: str, directory: Path) -> str:
    """What a terminal shows of a command."""
    words = shlex.split(command.replace("\\\n", ""))
    if not {">>", ">", "|", "&&", ";"}.isdisjoint(words):
        return _shell(command, directory)
    if words[0] == "scaffold":
        return _scaffold(words, directory)
    if tuple(words[:3]) == PYTHON:
        return _python(directory, str(PYTEST), *words[3:])
    return _shell(command, directory)


def _scaffold(words: list[str], directory: Path) -> str:
    screen = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with (
        redirect_stdout(screen),
        redirect_stderr(screen),
        chdir(directory),
        patch.object(sys, "argv", words),
        patch("sys.stdin", io.StringIO()),
        patch.dict(os.environ, COLUMNS="80"),
        suppress(SystemExit),
    ):
        main()
    data = screen.buffer
    assert isinstance(data, io.BytesIO)
    return data.getvalue().decode()


def _python(directory: Path, *arguments: str) -> str:
    """What a script prints, in a process that has torch."""
    variables = {
        name: value for name, value in os.environ.items() if "PYTEST" not in name
    } | {"COLUMNS": "80", "TERM": "dumb"}
    warm: Any = processes  # its `subprocess` is that of `tests/warm.py`
    with chdir(directory):
        process = warm.subprocess.Popen(
            [sys.executable, "-u", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
        )
    with process:
        printed: bytes = process.stdout.read() + process.stderr.read()
    return printed.decode()


def _shell(command: str, directory: Path) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def _transcript(commands: list[Command], outputs: list[str]) -> str:
    shown = zip(commands, outputs, strict=True)
    return "".join(
        f"$ {command.text}\n{_without_times(output)}" for command, output in shown
    )


def _without_times(output: str) -> str:
    """The output with pytest's time taken out, and the numbers of a proof; nothing else varies."""
    output = re.sub(
        r"^proven: \d+ (.*, torch) \S+$", r"proven: _ \1 _", output, flags=re.MULTILINE
    )
    return re.sub(
        r"\bin \d+\.\d\ds( \(\d+:\d\d:\d\d\))?$", "in _s", output, flags=re.MULTILINE
    )
