"""Runs test files, each in a process of its own, in an interpreter of the project's choice.

In: the files, the interpreter, how many run at a time, a limit in seconds for each. Out: a `Report` a file, in their order.
Invariant: whatever the tests do, hang or crash, is told of the file that did it; an interrupt ends all processes.
"""

import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.verify.processes import CHILD, ChildProcess, work_through
from scaffold.verify.reports import Report, Telling

RUNNER = str(CHILD / "testing.py")
LIMIT = 600  # seconds for the tests of a file
OPTION = Location("--python")


class Suite(NamedTuple):
    """A test file, and the directory that it is run from."""

    file: Path
    directory: Path


def run_suites(
    suites: Sequence[Suite],
    python: str = sys.executable,
    jobs: int = 1,
    limit: float = LIMIT,
    tell: Callable[[int], None] = lambda count: None,
) -> Generator[Report, None, None]:
    """Run the tests; `tell` hears how many there have been so far."""
    ended = 0

    def count(more: int) -> None:
        nonlocal ended
        ended += more
        tell(ended)

    return work_through(suites, lambda: _Runner(python, limit, count), jobs)


class _Runner:
    """A process that runs one file after the other; another takes its place where it had to be ended."""

    def __init__(self, python: str, limit: float, count: Callable[[int], None]) -> None:
        self.python, self.limit, self.count = python, limit, count
        self.process: ChildProcess | None = None
        self.result: Report | None = None
        self.deadline = 0.0
        self._telling = Telling()
        self._torch: str | None = None  # its version, once the process can run tests

    def ask(self, suite: Suite) -> None:
        """Have a file run."""
        if self.process is None:
            self._open()
        assert self.process is not None
        self._telling, self.result = Telling(), None
        self.deadline = time.monotonic() + self.limit
        request = {"file": str(suite.file), "directory": str(suite.directory)}
        self.process.ask(request)

    def _open(self) -> None:
        self._torch = None
        try:
            self.process = ChildProcess(self.python, RUNNER)
        except OSError as error:
            message = f"'{self.python}' cannot be started: {error.strerror}"
            hint = "name an interpreter that has PyTorch: --python .venv/bin/python"
            raise ScaffoldError(message, OPTION, hint) from None

    def hear(self) -> None:
        """Take in what the process has said; end it if the file takes too long."""
        process, telling = self.process, self._telling
        assert process is not None
        before = len(telling.outcomes)
        for answer in process.hear():
            if self._torch is None:
                self._torch = self._begun(answer)
            else:
                telling.hear(answer)
        self.count(len(telling.outcomes) - before)
        if not telling.ended and process.code is not None:
            self._died(process, process.code)
        elif not telling.ended and time.monotonic() >= self.deadline:
            telling.late(self.limit)
            self.close()
        if telling.ended:
            report = telling.report(process.said)
            self.result = report._replace(torch=self._torch or "")

    def _begun(self, answer: Mapping[str, Any]) -> str:
        """The version of torch; an error where the interpreter lacks something."""
        if answer.get("lacks"):
            message = f"'{self.python}' cannot import {answer['lacks']}"
            hint = "name the project's interpreter: --python .venv/bin/python"
            raise ScaffoldError(f"{message}: {answer['words']}", OPTION, hint)
        return str(answer.get("torch", ""))

    def _died(self, process: ChildProcess, code: int) -> None:
        if self._torch is None:
            message = f"'{self.python}' is no Python that can run the tests"
            lines = process.said.splitlines()
            raise ScaffoldError(message, OPTION, lines[-1] if lines else None)
        self._telling.end(code)
        self.close()

    def close(self) -> None:
        """End the process, if there is one, and whatever it has started."""
        process, self.process = self.process, None
        if process is not None:
            process.close()
