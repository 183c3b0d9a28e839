"""Run generated test files and read what became of each test.

In: a directory with test files. Out: a `Report`. Invariant: every directory is tested by a process of its own.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

RUN = str(Path(__file__).with_name("suite_run.py"))


@dataclass(frozen=True)
class Report:
    """What became of each test: `passed`, `failed`, `error`, `skipped` or `xfailed`."""

    outcomes: dict[str, str]
    output: str

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.outcomes.values())

    def named(self, outcome: str) -> list[str]:
        """The tests that came out so."""
        return [name for name, found in self.outcomes.items() if found == outcome]


# What half of a run of a small op's tests costs; tests of one op of each kind run it too.
WITHOUT_COMPILING = ("-k", "not compile")


class Suites:
    """Runs the tests of a directory, as `pytest` does there; `start` starts a process, as Popen does."""

    def __init__(self, start: Callable[..., Any], reports: Path) -> None:
        self._start, self._reports, self._count = start, reports, 0
        self._environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTEST_", "PYTHONPATH"))
        }
        self._environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def run(self, directory: Path, *options: str) -> Report:
        """The report of all tests below the directory; they leave nothing behind there."""
        self._count += 1
        report = self._reports / f"{self._count}.xml"
        pipe = subprocess.PIPE
        with self._start(
            [sys.executable, "-u", RUN, str(directory), str(report), *options],
            env=self._environment,
            **dict.fromkeys(("stdin", "stdout", "stderr"), pipe),
        ) as process:
            status = process.wait()
        output = report.with_suffix(".log").read_text()
        assert report.exists(), f"pytest ended with {status}{output}"
        return Report(_outcomes(report), output)


def _outcomes(report: Path) -> dict[str, str]:
    outcomes = {}
    for test in ElementTree.parse(report).iter("testcase"):
        outcomes[f"{_module(test)}::{test.get('name')}"] = _outcome(test)
    return outcomes


def _module(test: ElementTree.Element) -> str:
    """Where a test stands, without the class that it is a method of."""
    return re.sub(r"\.Test\w*$", "", test.get("classname") or "")


def _outcome(test: ElementTree.Element) -> str:
    names = {"failure": "failed", "error": "error", "skipped": "skipped"}
    for child in test:
        if child.get("type") == "pytest.xfail":
            return "xfailed"
        if child.tag in names:
            return names[child.tag]
    return "passed"
