"""The testing process: run test files, and report the outcome of every test.

`suites.py` and `recordings.py` start it. In: on stdin, one JSON object a line: a test file, the directory to run it from, and the file of
a `watch` to start before the tests, if any.
Out: on stdout, one JSON object a line: first whether the interpreter has the needed modules; then for each file the number of tests, each
as it begins and ends, and how the run ended.
Invariant: every file runs in its own process, forked from this one, which has loaded torch and nothing of the user's. This file stands
alone and keeps to old syntax: the interpreter is the project's, and may not have the package.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

OPTIONS = ("-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:faulthandler")
SHOWN = 400  # characters of a message
NEEDED = ("pytest", "torch")


class Tell:
    """A writer of answers, each in one piece: two processes share the pipe."""

    def __init__(self, descriptor: int) -> None:
        self.answers = os.fdopen(descriptor, "w", encoding="utf-8")

    def __call__(self, **answer: Any) -> None:
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()


class Reporter:
    """A pytest plugin to report every test as it begins and ends; `Telling` in `verify/suites.py` collects the answers."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell

    def pytest_collection_finish(self, session: Any) -> None:
        self.tell(tests=len(session.items))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.tell(began=_name(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        # Setup and teardown of a test are reported, too: told only if something is wrong with them.
        if report.when == "call" or not report.passed:
            outcome, words = _outcome(report)
            self.tell(test=_name(report.nodeid), outcome=outcome, words=words[:SHOWN])

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.tell(broken=_reason(report.longreprtext)[:SHOWN])


def _name(nodeid: str) -> str:
    """Return the name of a test from its id, without the file: `a.py::T::test_x[1]` -> `T::test_x[1]`."""
    return nodeid.partition("::")[2] or nodeid


def _outcome(report: Any) -> tuple[str, str]:
    """Return the outcome of a test, "xfailed" for an expected failure, and the reason; "" if it passed or was skipped."""
    if hasattr(report, "wasxfail"):
        # pytest calls a test that failed as expected "skipped".
        words = report.wasxfail.removeprefix("reason: ")
        return ("xfailed" if report.skipped else "xpassed"), words
    if report.failed:
        return "failed", _reason(report.longreprtext)
    return report.outcome, ""


def _reason(text: str) -> str:
    """Return the first line of an error in pytest's report, marked there with an E."""
    marked = [line[1:].strip() for line in text.splitlines() if line[:2] == "E "]
    lines = [line for line in marked or text.splitlines() if line]
    return lines[0] if lines else ""


def main() -> None:
    """Run the test file of each request on stdin, and report on it; end with stdin."""
    tell = Tell(os.dup(1))
    os.dup2(2, 1)  # what the user's code prints goes to stderr
    sys.dont_write_bytecode = True
    tell(**_lacking())
    for line in sys.stdin:
        request = json.loads(line)
        _prepare(request["file"])
        tell(ended=_run(request, tell))


def _lacking() -> dict[str, str]:
    """Return the first needed module that cannot be imported, as "lacks", and the error; else "" and the version of torch."""
    for name in NEEDED:
        try:
            __import__(name)
        except Exception as error:  # noqa: BLE001 (whatever the installation does)
            return {"lacks": name, "words": f"{type(error).__name__}: {error}"}
    sys.modules["torch"].set_num_threads(1)
    return {"lacks": "", "torch": str(sys.modules["torch"].__version__)}


def _prepare(file: str) -> None:
    """Do once, before runs are forked, the setup for torch.compile, if the file needs it."""
    # It was done for an earlier file.
    if "torch._dynamo" in sys.modules:
        return
    # It only saves time: an unreadable file or a broken compiler is for the run itself to report.
    with suppress(Exception), open(file, encoding="utf-8-sig") as opened:
        _compile_once(opened.read())


def _compile_once(text: str) -> None:
    """Compile a function once if a test file uses torch.compile.

    Importing the compiler takes seconds, and each forked run would do it.
    """
    # OpTests is the class of generated tests, with one of torch.compile.
    if "torch.compile" in text or "OpTests" in text:
        torch = sys.modules["torch"]
        double = torch.compile(lambda x: 2 * x, fullgraph=True, backend="aot_eager")
        double(torch.ones(1, requires_grad=True))
        torch.compiler.reset()


def _run(request: dict[str, str], tell: Tell) -> int:
    """Run a file in a new process; return its exit code, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        try:
            with open(os.devnull, encoding="utf-8") as nothing:
                os.dup2(nothing.fileno(), 0)  # the requests are not for the tests
            os.chdir(request["directory"])
            sys.path.insert(0, request["directory"])  # as `python -m pytest` does
            if request.get("watch"):  # `recording.py`: its function is called so, too
                runpy.run_path(request["watch"])["watch"](tell)
            import pytest

            options = (*OPTIONS, *_alone(), request["file"])
            code = pytest.main([*options], plugins=[Reporter(tell)])
            tell(finished=int(code))
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _alone() -> tuple[str, ...]:
    """Return the option to run without pytest-xdist: reports come from one process."""
    loads = "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ
    return ("-n0",) if loads and find_spec("xdist") else ()


if __name__ == "__main__":
    main()
