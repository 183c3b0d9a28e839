"""The process that runs a test file on mutants of the op that it tests.

In: on stdin, one JSON object a line: first the test file, the op's file and a limit in seconds, then texts of the op.
Out: on stdout, a line for each: whether the tests passed, and if not, the first that failed.
Invariant: every run is a process of its own, forked from this one, which has torch loaded and has run nothing; it finds
the text in place of the op's file, which stays as it is.
"""

import json
import linecache
import os
import signal
import sys
from importlib.machinery import SourceFileLoader
from typing import Any

from scaffold.verify.child.testing import alone, compile_once

ENDS = {1: "failed", 2: "interrupted", 3: "internal error", 4: "usage", 5: "no tests"}
OPTIONS = ("-x", "-q", "--assert=plain", "-p", "no:cacheprovider")
SHOWN = 4000  # bytes of an answer: it must fit into a pipe that nobody reads yet


class FirstFailure:
    """A plugin that keeps the name of the first test that fails."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid.rpartition("/")[2]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = "importing the tests"


def main() -> None:
    """Answer until nobody asks."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    request = json.loads(sys.stdin.readline())
    _load(request)
    _reply(answers, _run(request, None))
    for line in sys.stdin:
        _reply(answers, _run(request, json.loads(line)["text"]))


def _load(request: dict[str, Any]) -> None:
    """Import once what every run would import; compiling is most of it."""
    import pytest  # noqa: F401
    import torch

    torch.set_num_threads(1)
    with open(request["test"], encoding="utf-8-sig") as file:
        text = file.read()
    compile_once(text)


def _reply(answers: Any, answer: dict[str, str]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _run(request: dict[str, Any], text: str | None) -> dict[str, str]:
    """What became of the tests in a child process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            signal.alarm(int(request["limit"]))
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(_run_here(request, text))
        finally:
            os._exit(0)
    os.close(writing)
    said = b"".join(iter(lambda: os.read(reading, 65536), b""))
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(said) if said else {"status": "failed", "by": _death(code)}


def _death(code: int) -> str:
    if code == -signal.SIGALRM:
        return "out of time"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else "exit"


def _run_here(request: dict[str, Any], text: str | None) -> bytes:
    import pytest

    if text is not None:
        _substitute(request["op"], text)
    sys.path.insert(0, os.getcwd())  # as `python -m pytest` does
    plugin = FirstFailure()
    code = int(pytest.main([*OPTIONS, *alone(), request["test"]], plugins=[plugin]))
    status = "passed" if code == 0 else "failed"
    by = "" if code == 0 else plugin.name or ENDS.get(code, f"pytest ended with {code}")
    return json.dumps({"status": status, "by": by}).encode()[:SHOWN]


def _substitute(path: str, text: str) -> None:
    """Let every import of the file read this text."""
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        place = loader.get_filename(name)
        if os.path.realpath(place) != path:
            return original(loader, name)
        linecache.cache[place] = (len(text), None, text.splitlines(True), place)
        return loader.source_to_code(text.encode(), place)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()
