"""Run generated test files and read what became of each test.

In: a directory with test files. Out: a `Report`. Invariant: every directory is tested by a process of its own.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.executed import suite_server


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
    """Runs the tests of a directory, as `pytest` does there."""

    def __init__(self, server: "subprocess.Popen[str]", reports: Path) -> None:
        self._server, self._reports, self._count = server, reports, 0

    def run(self, directory: Path, *options: str) -> Report:
        """The report of all tests below the directory; they leave nothing behind there."""
        self._count += 1
        report = self._reports / f"{self._count}.xml"
        request = {
            "directory": str(directory),
            "options": list(options),
            "report": str(report),
        }
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        status = self._server.stdout.readline()
        output = report.with_suffix(".log").read_text()
        assert report.exists(), f"pytest ended with {status}{output}"
        return Report(_outcomes(report), output)


@contextmanager
def running_suites(reports: Path) -> Iterator[Suites]:
    """A server of test runs, which ends with the context."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTEST_", "PYTHONPATH"))
    }
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-P", suite_server.__file__]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        yield Suites(server, reports)


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
