"""Processes of `scaffold.verify` that need not import torch: they are forked from one that has it.

In: the command of a process, as `scaffold.verify.process` starts it. Out: a process like one that Popen starts.
Invariant: what runs in it is the same program with the same arguments, environment, directory and streams, in a session of
its own; only what it would import first is there already. Another interpreter, or another PYTHONPATH, is started as ever.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from scaffold.verify import process as of_verify
from tests import warm_server

STARTED_ANEW = of_verify.ended_with


class Forked:
    """What of a Popen is asked of a process that another one has forked."""

    def __init__(self, server: "Server", pid: int, streams: list[int]) -> None:
        self.server, self.pid = server, pid
        self.stdin = os.fdopen(streams[0], "wb", buffering=0)
        self.stdout = os.fdopen(streams[1], "rb")
        self.stderr = os.fdopen(streams[2], "rb") if len(streams) > 2 else None
        self.returncode: int | None = None

    def wait(self) -> int:
        """Its exit code; of one that was killed, the negative signal."""
        if self.returncode is None:
            self.returncode = self.server.ask({"wait": self.pid})
        return self.returncode

    def close(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


class Server:
    """The process that forks, started when the first is asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._connection: socket.socket | None = None
        self._owner = os.getpid()
        self._steering = steering(os.environ)

    def can_start(self, command: list[str]) -> bool:
        """Whether it would be the same program: a fork of this process has no server."""
        same = steering(os.environ) == self._steering and os.getpid() == self._owner
        return same and command[:2] == [sys.executable, "-u"]

    def start(self, command: list[str], stderr: int) -> Forked:
        """Start a process; `stderr` is a pipe, or goes nowhere."""
        ours, theirs = [], []
        for number in range(3 if stderr == subprocess.PIPE else 2):
            reading, writing = os.pipe()
            ours.append(writing if number == 0 else reading)
            theirs.append(reading if number == 0 else writing)
        variables = dict(os.environ | of_verify.ONE_THREAD)
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
            env=os.environ | of_verify.ONE_THREAD,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._stack.callback(process.wait)
        self._stack.callback(ours.close)  # with which the server ends
        return ours


def steering(environment: Any) -> dict[str, str]:
    """The variables that an interpreter heeds at its start."""
    named = {key: environment[key] for key in environment if key.startswith("PYTHON")}
    return named | {"HOME": environment.get("HOME", "")}


@contextmanager
def running_server() -> Iterator[Callable[[list[str], int], Any]]:
    """What takes the place of `ended_with`: processes forked from one that has torch loaded."""
    with ExitStack() as stack:
        server = Server(stack)

        @contextmanager
        def ended_with(command: list[str], stderr: int) -> Iterator[Forked]:
            process = server.start(command, stderr)
            try:
                yield process
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                process.close()

        def either(command: list[str], stderr: int) -> Any:
            start = ended_with if server.can_start(command) else STARTED_ANEW
            return start(command, stderr)

        yield either
