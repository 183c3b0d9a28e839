"""What became of the tests of a file, from what the process tells that runs them.

In: answers, as they come. Out: a `Report`.
Invariant: a file passes only if its run came to its end, no test failed, nothing was left unwritten and some test passed.
"""

import re
from collections import Counter
from typing import Any, Literal, NamedTuple

from scaffold.verify.processes import end_in_words

Status = Literal["passed", "failed", "not implemented", "no tests"]
ENDS = {2: "was interrupted", 3: "pytest itself failed", 4: "pytest refused to run"}
COUNTED = ("failed", "passed", "skipped", "xfailed", "xpassed")
SAID = 6  # lines of what a process said before it died
_PROGRESS = ".FEsxX "  # what pytest shows of tests
_UNWRITTEN = re.compile(r"\w+: write (.+)")


class Failed(NamedTuple):
    """A test that failed, and the first line of why."""

    test: str
    words: str


class Report(NamedTuple):
    """What became of the tests of a file."""

    counts: tuple[tuple[str, int], ...] = ()
    failures: tuple[Failed, ...] = ()
    unwritten: tuple[str, ...] = ()  # parts of a skeleton that are left to write
    trouble: str = ""  # why the run did not come to its end
    said: tuple[str, ...] = ()  # by the process, before that
    torch: str = ""  # its version

    @property
    def status(self) -> Status:
        """What it comes to."""
        counts = dict(self.counts)
        if self.trouble or counts.get("failed"):
            return "failed"
        if self.unwritten:
            return "not implemented"
        return "passed" if counts.get("passed") else "no tests"

    @property
    def words(self) -> str:
        """The same in words: `67 passed, 2 skipped`."""
        counted = ", ".join(f"{number} {name}" for name, number in self.counts)
        if self.trouble:
            return f"{self.trouble} ({counted})" if counted else self.trouble
        if self.unwritten and self.status == "not implemented":
            return f"not implemented: write {', '.join(self.unwritten)}"
        if self.status == "no tests":
            return f"no test passed ({counted})" if counted else "no tests"
        return counted


class Telling:
    """Gathers what is told of a run until it has ended."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.ended = False
        self._words: dict[str, str] = {}
        self._unwritten: dict[str, None] = {}
        self._running = ""
        self._broken = ""
        self._trouble = ""
        self._code: int | None = None  # what pytest ended with

    def hear(self, answer: dict[str, Any]) -> None:
        """Take in one answer."""
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
        if (
            self.outcomes.get(test) != "failed"
        ):  # it may fail once more as it is torn down
            self.outcomes[test] = outcome
            self._words[test] = words
        found = _UNWRITTEN.fullmatch(words) if outcome == "xfailed" else None
        if found:
            self._unwritten[found[1]] = None

    def end(self, code: int) -> None:
        """Note how the process ended: its exit code, or a signal as a negative number."""
        self.ended = True
        if self._code is None:
            self._trouble = f"{_death(code)}{self._place()}"
        elif self._broken:
            self._trouble = f"cannot be imported: {self._broken}"
        else:
            self._trouble = ENDS.get(self._code, "")

    def late(self, limit: float) -> None:
        """Note that it took too long."""
        self.ended = True
        self._trouble = f"still running after {limit:g} seconds{self._place()}"

    def _place(self) -> str:
        return f", in {self._running}" if self._running else ""

    def report(self, said: str) -> Report:
        """What is known of the file; `said` is what the process wrote."""
        counted = Counter(self.outcomes.values())
        failures = tuple(
            Failed(test, self._words[test])
            for test, outcome in self.outcomes.items()
            if outcome == "failed"
        )
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
