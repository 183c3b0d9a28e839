"""Run the tests of a directory, in a process that is forked from one with torch and pytest loaded (`tests/warm_server.py`).

In, as arguments: the directory, a file for the report, options of pytest. Out: the report as JUnit XML, beside it what
pytest printed. Invariant: nothing that a test does is seen by another run.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

LIMIT = 300  # seconds
OPTIONS = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=.", "--color=no"]


def run(directory: str, report: str, *options: str) -> int:
    """The exit status of pytest."""
    signal.alarm(LIMIT)
    log = os.open(Path(report).with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(directory)
    sys.path[0] = directory
    return int(pytest.main([*OPTIONS, f"--junitxml={report}", *options]))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(run(*sys.argv[1:]))
