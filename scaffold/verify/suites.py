"""Test suites: run test files in separate processes of a chosen interpreter, and report outcomes.

`scaffold verify` runs the generated tests of a project with it. In: the files, the interpreter, the number run at a time, a limit in
seconds for each. Out: a `Report` a file, in their order.
Words: a *skeleton* is a generated op with parts for the user to write, each raising NotImplementedError; its tests fail as expected
(xfailed) with the reason `write ...`, and such parts are *unwritten*.
Invariant: a hang or crash is reported for its file; an interrupt ends all processes. A file passes only if its run came to its end, no
test failed, nothing was left unwritten and some test passed.
"""

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.verify.processes import CHILD, ChildProcess, end_in_words, work_through

Status = Literal["passed", "failed", "not implemented", "no tests"]
ENDS = {2: "was interrupted", 3: "pytest itself failed", 4: "pytest refused to run"}
COUNTED = ("failed", "passed", "skipped", "xfailed", "xpassed")
SAID = 6  # last lines of a process before it died
_PROGRESS = ".FEsxX "  # pytest's progress characters
_UNWRITTEN = re.compile(r"\w+: write (.+)")


class Failed(NamedTuple):
    """A failed test, and the first line of the reason."""

    test: str
    words: str


class Report(NamedTuple):
    """The outcome of the tests of a file."""

    counts: tuple[tuple[str, int], ...] = ()
    failures: tuple[Failed, ...] = ()
    unwritten: tuple[str, ...] = ()  # parts of a skeleton left to write
    trouble: str = ""  # why the run did not reach its end
    said: tuple[str, ...] = ()  # the last output of the process, if in trouble
    torch: str = ""  # its version

    @property
    def status(self) -> Status:
        """Return the overall status: "failed" comes before "not implemented", and that before "passed"."""
        counts = dict(self.counts)
        if self.trouble or counts.get("failed"):
            return "failed"
        if self.unwritten:
            return "not implemented"
        return "passed" if counts.get("passed") else "no tests"

    @property
    def words(self) -> str:
        """Return the outcome in words: `67 passed, 2 skipped`, or what went wrong."""
        counted = ", ".join(f"{number} {name}" for name, number in self.counts)
        if self.trouble:
            return f"{self.trouble} ({counted})" if counted else self.trouble
        if self.status == "not implemented":
            return f"not implemented: write {', '.join(self.unwritten)}"
        if self.status == "no tests":
            return f"no test passed ({counted})" if counted else "no tests"
        return counted


class Telling:
    """A collector of the answers about the run of one file; at its end it makes the `Report`."""

    def __init__(self) -> None:
        """Begin without outcomes: of no test, no running test and no trouble."""
        self.outcomes: dict[str, str] = {}
        self.ended = False
        self._words: dict[str, str] = {}  # the reason, by test
        self._unwritten: dict[str, None] = {}  # parts of a skeleton; a set in order
        self._running = ""  # the test that runs now
        self._broken = ""  # the error of an import
        self._trouble = ""  # why the run did not reach its end
        self._code: int | None = None  # pytest's exit code

    def hear(self, answer: dict[str, Any]) -> None:
        """Record one answer of the testing process about the run of a file.

        `began` and `test`: a test started, or has an outcome; `broken`: an import failed; `finished`: pytest's exit code; `ended`: that
        of the process around it, the last answer.
        """
        match answer:
            case {"began": str(test)}:
                self._running = test
            case {"test": str(test), "outcome": str(outcome), "words": str(words)}:
                self._tested(test, outcome, words)
            case {"broken": str(words)}:
                self._broken = self._broken or words
            case {"finished": int(code)}:
                self._code, self._running = code, ""
            case {"ended": int(code)}:
                self.end(code)

    def _tested(self, test: str, outcome: str, words: str) -> None:
        """Record the outcome of a test; `write ...` as the reason of an expected failure is a part of a skeleton left to write."""
        # A failed test may fail once more, while it is torn down: the first reason stays.
        if self.outcomes.get(test) != "failed":
            self.outcomes[test] = outcome
            self._words[test] = words
        found = _UNWRITTEN.fullmatch(words) if outcome == "xfailed" else None
        if found:
            self._unwritten[found[1]] = None

    def end(self, code: int) -> None:
        """Record the end of the run of a file: its exit code, or a signal as a negative number.

        Without an exit code from pytest before, the process died: the running test is named.
        """
        self.ended = True
        # pytest never told its exit code.
        if self._code is None:
            self._trouble = f"{_death(code)}{self._place()}"
        # Before ENDS: pytest's code for a broken import says only that it was interrupted.
        elif self._broken:
            self._trouble = f"cannot be imported: {self._broken}"
        else:
            self._trouble = ENDS.get(self._code, "")

    def late(self, limit: float) -> None:
        """Record the run of a file as too long, with the test it was in."""
        self.ended = True
        self._trouble = f"still running after {limit:g} seconds{self._place()}"

    def _place(self) -> str:
        return f", in {self._running}" if self._running else ""

    def report(self, said: str) -> Report:
        """Return the report on the file.

        If the run did not reach its end, the last lines of `said`, the output of the process, are in it, without pytest's progress dots.
        """
        counted = Counter(self.outcomes.values())
        failures = tuple(
            Failed(test, self._words[test])
            for test, outcome in self.outcomes.items()
            if outcome == "failed"
        )
        # The words on a broken import say it all.
        shown = bool(self._trouble) and not self._broken
        lines = [line.rstrip() for line in said.splitlines() if line.strip(_PROGRESS)]
        return Report(
            tuple((name, counted[name]) for name in COUNTED if counted[name]),
            failures,
            tuple(self._unwritten),
            self._trouble,
            tuple(lines[-SAID:]) if shown else (),
        )


def _death(code: int) -> str:
    words = end_in_words(code)
    return f"{words} before its tests did" if code >= 0 else words


RUNNER = str(CHILD / "testing.py")
LIMIT = 600  # seconds for the tests of a file
OPTION = Location("--python")


class Suite(NamedTuple):
    """A test file, and the directory to run it from."""

    file: Path
    directory: Path


def run_suites(
    suites: Sequence[Suite],
    python: str = sys.executable,
    jobs: int = 1,
    limit: float = LIMIT,
    tell: Callable[[int], None] = lambda count: None,
) -> Generator[Report, None, None]:
    """Run test files, `jobs` at a time, and yield a report for each, in order; call `tell` with the number of tests ended so far."""
    ended = 0

    def count(more: int) -> None:
        """Add to the number of ended tests, and tell it."""
        nonlocal ended
        ended += more
        tell(ended)

    return work_through(suites, lambda: _Runner(python, limit, count), jobs)


class _Runner:
    """A worker (as `processes.work_through` wants it) to run one file after the other; its process is replaced if it had to be ended."""

    def __init__(self, python: str, limit: float, count: Callable[[int], None]) -> None:
        """Take an interpreter, the seconds for a file, and a function to call with the number of tests that ended."""
        self.python, self.limit, self.count = python, limit, count
        self.process: ChildProcess | None = None
        self.result: Report | None = None
        self.deadline = 0.0
        self._telling = Telling()
        self._torch: str | None = None  # its version, once the process is ready

    def ask(self, suite: Suite) -> None:
        """Start the run of a file, and a process if there is none; `result` is set later, by `hear`."""
        if self.process is None:
            self._open()
        assert self.process is not None
        self._telling, self.result = Telling(), None
        self.deadline = time.monotonic() + self.limit
        request = {"file": str(suite.file), "directory": str(suite.directory)}
        self.process.ask(request)

    def _open(self) -> None:
        """Start a process of the interpreter; raise ScaffoldError if it cannot be started."""
        self._torch = None
        try:
            self.process = ChildProcess(self.python, RUNNER)
        except OSError as error:
            message = f"'{self.python}' cannot be started: {error.strerror}"
            hint = "name an interpreter that has PyTorch: --python .venv/bin/python"
            raise ScaffoldError(message, OPTION, hint) from None

    def hear(self) -> None:
        """Read the answers of the process, and set `result` at the end of the file; after the deadline, end the process."""
        process, telling = self.process, self._telling
        assert process is not None
        before = len(telling.outcomes)
        for answer in process.hear():
            if self._torch is None:
                self._torch = self._begun(answer)  # before any test
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
        """Return the version of torch from the first answer; raise ScaffoldError if the interpreter lacks a module."""
        if answer.get("lacks"):
            message = f"'{self.python}' cannot import {answer['lacks']}"
            hint = "name the project's interpreter: --python .venv/bin/python"
            raise ScaffoldError(f"{message}: {answer['words']}", OPTION, hint)
        return str(answer.get("torch", ""))

    def _died(self, process: ChildProcess, code: int) -> None:
        """Record the end of the process; raise ScaffoldError if it never answered, as it is no Python interpreter then."""
        if self._torch is None:
            message = f"'{self.python}' is not a Python interpreter"
            lines = process.said.splitlines()
            raise ScaffoldError(message, OPTION, lines[-1] if lines else None)
        self._telling.end(code)
        self.close()

    def close(self) -> None:
        """End the process, if there is one, and all it has started."""
        process, self.process = self.process, None
        if process is not None:
            process.close()
