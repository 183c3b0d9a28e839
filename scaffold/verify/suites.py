"""Runs test files, each in a process of its own, in an interpreter of the project's choice.

In: the files, the interpreter, how many run at a time, a limit in seconds for each. Out: a `Report` a file, in their order.
Invariant: whatever the tests do, hang or crash, is told of the file that did it; an interrupt ends all processes.
"""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.verify.process import CHILD, child_command, ended_with
from scaffold.verify.reports import Report, Telling

RUNNER = str(CHILD / "testing.py")
LIMIT = 600  # seconds for the tests of a file
PER_PROCESS = 4  # files for one more process: to start it costs as much as they do
KEPT = 8000  # bytes of what a process said last
OPTION = Location("--python")


class Suite(NamedTuple):
    """A test file, and the directory that it is run from."""

    file: Path
    directory: Path


def jobs_for(suites: int) -> int:
    """How many processes that many files are worth."""
    return max(1, min(os.cpu_count() or 1, suites // PER_PROCESS))


def run_suites(
    suites: Sequence[Suite],
    python: str = sys.executable,
    jobs: int = 1,
    limit: float = LIMIT,
    tell: Callable[[int], None] = lambda count: None,
) -> Generator[Report, None, None]:
    """Run the tests; `tell` hears how many there have been so far."""
    waiting = list(reversed(range(len(suites))))
    found: dict[int, Report] = {}
    shown = tests = 0
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        runners = [_Runner(python, limit, selector) for _ in suites[:jobs]]
        for runner in runners:
            stack.callback(runner.stop)
        while shown < len(suites):
            for runner in runners:
                if runner.number is None and waiting:
                    number = waiting.pop()
                    runner.start(number, suites[number])
            for runner in _heard(selector, runners):
                tests += runner.count()
                if runner.telling.ended:
                    number, report = runner.finish()
                    found[number] = report
            tell(tests)
            while shown in found:
                yield found.pop(shown)
                shown += 1


def _heard(
    selector: selectors.BaseSelector, runners: "list[_Runner]"
) -> "list[_Runner]":
    """The runners, after they have read what there is; those out of time are stopped."""
    busy = [runner for runner in runners if runner.number is not None]
    first = min(runner.deadline for runner in busy)
    for key, _ in selector.select(max(0.0, first - time.monotonic())):
        key.data()
    for runner in busy:
        if not runner.telling.ended and time.monotonic() >= runner.deadline:
            runner.give_up()
    return busy


class _Runner:
    """One process that runs files, one after the other; another takes its place where it had to be ended."""

    def __init__(
        self, python: str, limit: float, selector: selectors.BaseSelector
    ) -> None:
        self.python, self.limit, self.selector = python, limit, selector
        self.number: int | None = None  # of the file that runs
        self.telling = Telling()
        self.deadline = 0.0
        self._counted = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._ready = False
        self._torch = ""
        self._line = self._said = b""

    def start(self, number: int, suite: Suite) -> None:
        """Have a file run."""
        if self._process is None:
            self._open()
        process = self._process
        assert process is not None and process.stdin is not None
        self.number, self.telling, self._counted = number, Telling(), 0
        self._said = b""
        self.deadline = time.monotonic() + self.limit
        request = {"file": str(suite.file), "directory": str(suite.directory)}
        with suppress(BrokenPipeError):  # the missing answer says so
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()

    def _open(self) -> None:
        command = child_command(self.python, RUNNER)
        try:
            process = self._stack.enter_context(ended_with(command, subprocess.PIPE))
        except OSError as error:
            message = f"'{self.python}' cannot be started: {error.strerror}"
            raise ScaffoldError(message, OPTION) from None
        for stream, hear in (
            (process.stdout, self._hear),
            (process.stderr, self._note),
        ):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self.selector.register(stream, selectors.EVENT_READ, hear)
        self._process, self._ready, self._line = process, False, b""

    def _hear(self) -> None:
        """Read answers."""
        if self._process is None or self._process.stdout is None:
            return  # it was ended after it had something to say
        data = os.read(self._process.stdout.fileno(), 65536)
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            with suppress(
                ValueError
            ):  # of a process that was killed half a line is left
                self._answer(json.loads(line))
        if not data and not self.telling.ended:
            self._note()
            if not self._ready:
                message = f"'{self.python}' is no Python that can run the tests"
                raise ScaffoldError(message, OPTION, self._last_line())
            self.telling.end(self._process.wait())
            self.stop()

    def _answer(self, answer: dict[str, Any]) -> None:
        if self._ready:
            self.telling.hear(answer)
            return
        self._ready = True
        self._torch = str(answer.get("torch", ""))
        if answer["lacks"]:
            message = f"'{self.python}' cannot import {answer['lacks']}"
            hint = "name the project's interpreter: --python .venv/bin/python"
            raise ScaffoldError(f"{message}: {answer['words']}", OPTION, hint)

    def _note(self) -> None:
        """Read what the process says beside its answers."""
        if self._process is None or self._process.stderr is None:
            return
        with suppress(BlockingIOError):
            while data := os.read(self._process.stderr.fileno(), 65536):
                self._said = (self._said + data)[-KEPT:]
            with suppress(KeyError):  # nobody is there to say more
                self.selector.unregister(self._process.stderr)

    def _last_line(self) -> str | None:
        lines = self._said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else None

    def count(self) -> int:
        """How many tests have ended since it was asked last."""
        before, self._counted = self._counted, len(self.telling.outcomes)
        return self._counted - before

    def give_up(self) -> None:
        """End the process, and with it the file that takes too long."""
        self.telling.late(self.limit)
        self.stop()

    def finish(self) -> tuple[int, Report]:
        """What became of the file; the runner is free for another."""
        self._note()
        number, self.number = self.number, None
        assert number is not None
        report = self.telling.report(self._said.decode(errors="replace"))
        return number, report._replace(torch=self._torch)

    def stop(self) -> None:
        """End the process, if there is one, and whatever it has started."""
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdout, process.stderr):
                with suppress(KeyError):
                    assert stream is not None
                    self.selector.unregister(stream)
        with suppress(BrokenPipeError):  # of a request that nobody read
            self._stack.close()
