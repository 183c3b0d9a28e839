"""Run test files, each in a process of its own that is forked from one with torch loaded.

In: requests on stdin, one JSON object a line: a directory, options of pytest, a file for the report.
Out: the exit status of each on stdout; the report as JUnit XML, and beside it what pytest printed.
Invariant: nothing that a test does is seen by another one's process.
"""

import gc
import json
import os
import runpy
import signal
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

LIMIT = 300  # seconds
SEEDS = str(Path(__file__).resolve().parents[1] / "seeds.py")
OPTIONS = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=.", "--color=no"]


def load_all() -> None:
    """Import once what every child would import: compiling is most of it, then the plugins of pytest."""
    torch.set_num_threads(1)
    runpy.run_path(SEEDS)["seed_this_device_alone"]()  # a project may have `tests`
    compiled = torch.compile(lambda x: 2 * x, fullgraph=True, backend="aot_eager")
    compiled(torch.ones(1, requires_grad=True))
    torch.compiler.reset()
    with TemporaryDirectory() as empty, redirect_stdout(StringIO()):
        pytest.main([*OPTIONS, "--collect-only", f"--junitxml={empty}/x", empty])
    # A run of pytest collects garbage several times: what is here already is none, and need not be looked at.
    gc.collect()
    gc.freeze()


def run_tests(request: dict[str, Any]) -> int:
    """The exit status of pytest in a child process, the negative signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = _run_here(**request)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_here(directory: str, options: list[str], report: str) -> int:
    signal.alarm(LIMIT)
    log = os.open(Path(report).with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(directory)
    sys.path.insert(0, directory)
    status = pytest.main([*OPTIONS, f"--junitxml={report}", *options])
    sys.stdout.flush()
    return int(status)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    load_all()
    for line in sys.stdin:
        print(run_tests(json.loads(line)), flush=True)
