"""Fork processes from this one, which has torch loaded.

In: over a socket, whose descriptor is the argument, the command, the environment, the directory and the streams of a
process, or which one to wait for. Out: its number, or its exit code. Invariant: it ends with the process that asks.
"""

import gc
import json
import os
import runpy
import socket
import sys
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
COMPILING = {"suite", "testing", "suite_run"}  # what runs tests of ops, which compile
SIZE = 1 << 20  # bytes of a request, most of which are the environment


def serve(connection: socket.socket) -> None:
    while True:
        data, streams, _, _ = socket.recv_fds(connection, SIZE, 3)
        if not data:
            return
        request = json.loads(data)
        if "wait" in request:
            status = os.waitpid(request["wait"], 0)[1]
            answer = os.waitstatus_to_exitcode(status)
        else:
            if COMPILING.intersection(Path(word).stem for word in request["argv"][:2]):
                _ready_to_compile()
            answer = _forked(connection, request, streams)
        connection.send(b"%d" % answer)


@cache
def _ready_to_compile() -> None:
    """Import what every run of tests imports, once: the compiler of torch takes longer than the tests of a small op."""
    import pytest
    import torch

    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    with (
        TemporaryDirectory() as empty,
        redirect_stdout(StringIO()),
        patch.dict(os.environ, plain),
    ):
        options = ["-c", os.devnull, "--rootdir=.", f"--junitxml={empty}/x"]
        pytest.main(["-p", "no:cacheprovider", "--collect-only", *options, empty])

    double = torch.compile(lambda x: 2 * x, fullgraph=True, backend="aot_eager")
    double(torch.ones(1, requires_grad=True))
    torch.compiler.reset()
    gc.freeze()


def _forked(
    connection: socket.socket, request: dict[str, Any], streams: list[int]
) -> int:
    """The number of a process that is the leader of its session: who asks may end all of it at once."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(writing)
        connection.close()
        _become(request, streams)
    for stream in (writing, *streams):
        os.close(stream)
    os.read(reading, 1)  # nothing, once the child has closed its end
    os.close(reading)
    return child


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Be the process that is asked for."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    code = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop.code)
    except BaseException:  # noqa: BLE001 (as the interpreter does)
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


def _exit_code(said: str | int | None) -> int:
    """As the interpreter takes it."""
    if isinstance(said, str):
        print(said, file=sys.stderr)
        return 1
    return said or 0


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    import torch

    import scaffold.verify.child.checking
    import scaffold.verify.child.original
    import scaffold.verify.child.rule_runs  # noqa: F401

    torch.set_num_threads(1)
    runpy.run_path(str(ROOT / "tests/seeds.py"))["seed_this_device_alone"]()
    gc.freeze()  # no garbage: the processes need not look at it
    serve(socket.socket(fileno=int(sys.argv[1])))
