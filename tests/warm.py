"""Processes of `scaffold.verify` that need not import torch: they are forked from one that has it.

In: the command of a process, as `scaffold.verify.processes` starts it. Out: a process like one that Popen starts.
Invariant: what runs in it is the same program with the same arguments, environment, directory and streams, in a session of
its own; only what it would import first is there already. Another interpreter, or one that other variables steer, is
started as ever.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any, Self

from scaffold.verify.processes import ONE_THREAD
from tests import warm_server

STREAMS = 3


class Forked:
    """What of a Popen is asked of a process that another one has forked."""

    def __init__(self, server: "Server", pid: int, streams: list[int]) -> None:
        self.server, self.pid = server, pid
        self.stdin = os.fdopen(streams[0], "wb", buffering=0)
        self.stdout, self.stderr = (os.fdopen(item, "rb") for item in streams[1:])
        self.returncode: int | None = None

    def wait(self) -> int:
        """Its exit code; of one that was killed, the negative signal."""
        if self.returncode is None:
            self.returncode = self.server.ask({"wait": self.pid})
        return self.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            with suppress(BrokenPipeError):
                stream.close()
        self.wait()


class Server:
    """The process that forks, started when the first is asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._connection: socket.socket | None = None
        self._owner = os.getpid()
        self._steering = _steering(os.environ)

    def start(self, command: list[str], **options: Any) -> Any:
        """Start a process, as Popen does: it does so where that would be another program, and in forks of this process."""
        same = _steering(os.environ) == self._steering and os.getpid() == self._owner
        if not same or command[:2] != [sys.executable, "-u"]:
            return subprocess.Popen(command, **options)
        pipes = [os.pipe() for _ in range(STREAMS)]
        theirs = [pipe[number > 0] for number, pipe in enumerate(pipes)]
        ours = [pipe[number == 0] for number, pipe in enumerate(pipes)]
        variables = dict(options["env"])
        request = {"argv": command[2:], "env": variables, "cwd": os.getcwd()}
        pid = self.ask(request, theirs)
        for stream in theirs:
            os.close(stream)
        return Forked(self, pid, ours)

    def ask(self, request: dict[str, Any], streams: list[int] | None = None) -> int:
        if self._connection is None:
            self._connection = self._open()
        data = json.dumps(request).encode()
        socket.send_fds(self._connection, [data], streams or [])
        return int(self._connection.recv(64))

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, warm_server.SIZE)
        process = subprocess.Popen(
            [sys.executable, "-u", warm_server.__file__, str(theirs.fileno())],
            env=os.environ | ONE_THREAD,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._stack.callback(process.wait)
        self._stack.callback(ours.close)  # with which the server ends
        return ours


def _steering(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an interpreter heeds at its start."""
    named = {key: environment[key] for key in environment if key.startswith("PYTHON")}
    return named | {"HOME": environment.get("HOME", "")}


@contextmanager
def running_server() -> Iterator[SimpleNamespace]:
    """What takes the place of `subprocess` where the processes of `scaffold.verify` are started."""
    with ExitStack() as stack:
        start = Server(stack).start
        yield SimpleNamespace(Popen=start, PIPE=subprocess.PIPE)
