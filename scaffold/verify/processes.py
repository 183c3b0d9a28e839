"""Child processes: send requests and receive answers in lines, each a JSON object.

All work that needs torch, or runs the user's code, is done by such processes: proofs, test runs, benchmarks, rule checks.
In: an interpreter and a module to run; requests. Out: the answers, other output of the process, and how it ended.
Words: *answers* are JSON lines for us; everything else the process prints is `said`, shown if it dies. A `Worker` (a prover, a runner of
test files) drives one process at a time, and `work_through` shares requests among several workers.
Invariant: no wait is without a limit; the process ends with its `ChildProcess`, and so do all processes it has started.
All reading is done here, by one thread: `pool` forks, and a fork during another thread's work may hang.
"""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from math import ceil
from pathlib import Path
from typing import Any, Protocol, TypeVar

from scaffold.verify.pool import cores

CHILD = Path(__file__).parent / "child"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # small tensors alone
KEPT = 8000  # last bytes of other output
PER_PROCESS = 4  # requests for one more process, which costs as much to start

Request = TypeVar("Request")
Result = TypeVar("Result")
Request_contra = TypeVar("Request_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class ChildProcess:
    """A child process to answer requests."""

    def __init__(
        self, python: str, target: str, variables: Mapping[str, str] = ONE_THREAD
    ) -> None:
        """Start a process of the interpreter `python`; raise OSError if it cannot be started.

        `target` is what it runs: the dotted name of a module of `scaffold.verify.child`, or the path of a standalone file, for an interpreter
        without scaffold. `variables` are added to the environment.
        """
        self.code: int | None = None  # how it ended; a signal as a negative number
        self._said = self._line = b""
        self._process = subprocess.Popen(
            [python, "-u", str(CHILD / "start.py"), target],
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout and self._process.stderr
        self._answers = self._process.stdout.fileno()
        self._talk = self._process.stderr.fileno()
        self.open = [self._answers, self._talk]  # streams not yet at their end
        for stream in self.open:
            os.set_blocking(stream, False)

    @property
    def said(self) -> str:
        """Return the last part of its other output since the last request."""
        return self._said.decode(errors="replace").strip()

    def ask(self, request: Mapping[str, Any]) -> None:
        """Send a request; one to a process that has ended is lost, and gets no answer."""
        assert self._process.stdin
        self._said = b""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def hear(self) -> list[dict[str, Any]]:
        """Return the answers that have come since the last call; set `code` if the process has ended.

        A line that is no JSON object counts as {}.
        """
        # Answers are read first: so `said` has what was printed before them.
        data = self._read(self._answers)
        self._said = (self._said + self._read(self._talk))[-KEPT:]
        *lines, self._line = (self._line + data).split(b"\n")  # the last: not complete
        # Its stdout is closed: it has ended, or is about to.
        if self._answers not in self.open and self.code is None:
            self.code = self._process.wait()
        return [_object(line) for line in lines]

    def answer(self, limit: float) -> dict[str, Any] | None:
        """Return the next answer; None if the process has ended without one, or after `limit` seconds."""
        deadline = time.monotonic() + limit
        while self.code is None and time.monotonic() < deadline:
            wait([self], deadline)
            if answers := self.hear():
                return answers[0]
        return None

    def close(self) -> None:
        """Kill the process and all it has started (its process group), and wait for its end."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError), self._process:  # of an unread request
            self._process.wait()

    def _read(self, stream: int) -> bytes:
        """Return the bytes a stream has now, without waiting; at its end, remove it from `open`."""
        found = b""
        with suppress(BlockingIOError):
            while stream in self.open:
                data = os.read(stream, 65536)
                found += data
                if not data:
                    self.open.remove(stream)
        return found


def wait(processes: Iterable[ChildProcess], deadline: float) -> None:
    """Wait until one of them has output or has ended, or the deadline has come."""
    processes = list(processes)
    if any(process.code is not None for process in processes):
        return
    with selectors.DefaultSelector() as selector:
        for process in processes:
            for stream in process.open:
                selector.register(stream, selectors.EVENT_READ)
        selector.select(max(0.0, deadline - time.monotonic()))


class Worker(Protocol[Request_contra, Result_co]):
    """An object to work through requests, one after the other, in a process of its own.

    `ask` begins, `hear` is called whenever there may be output, and once `result` is set the worker is free again.
    """

    deadline: float  # of its request

    @property
    def process(self) -> ChildProcess | None:
        """Return its process; None before the first request, and after it was ended."""

    @property
    def result(self) -> Result_co | None:
        """Return the result of the last request, once it is known."""

    def ask(self, request: Request_contra) -> None:
        """Begin with a request."""

    def hear(self) -> None:
        """Read the output of the process; end it if it is out of time."""

    def close(self) -> None:
        """End the process."""


def work_through(
    requests: Iterable[Request],
    worker: Callable[[], Worker[Request, Result]],
    processes: int,
) -> Generator[Result, None, None]:
    """Yield the results in the order of the requests, each as soon as it and all before it are known.

    `worker` makes a worker; at most `processes` of them exist. A request is taken from its iterable only when a worker is free (making it
    may be work, too), and a worker is made only when needed.
    """
    waiting = iter(enumerate(requests))
    following = next(waiting, None)  # the next request with its number
    results: dict[int, Result] = {}  # by number, not yielded yet
    yielded = 0
    with ExitStack() as stack:
        free: list[Worker[Request, Result]] = []
        busy: dict[int, Worker[Request, Result]] = {}  # by the number of its request
        while following is not None or busy:
            # A new worker only if none is free: a process costs seconds to start.
            if following is not None and not free and len(busy) < processes:
                free.append(worker())
                stack.callback(free[-1].close)
            if following is not None and free:
                number, request = following
                busy[number] = free.pop()
                busy[number].ask(request)
                following = next(waiting, None)
                continue
            listen(list(busy.values()))
            for number, one in list(busy.items()):
                if one.result is not None:
                    results[number] = one.result
                    free.append(busy.pop(number))
            while yielded in results:
                yield results.pop(yielded)
                yielded += 1


def listen(busy: Sequence[Worker[Any, Any]]) -> None:
    """Wait until a busy worker's process has output, or one is out of time, and let each read; return at once if a result is there."""
    if any(worker.result is not None for worker in busy):
        return
    processes = [worker.process for worker in busy if worker.process is not None]
    wait(processes, min(worker.deadline for worker in busy))
    for worker in busy:
        worker.hear()


def processes_for(requests: int) -> int:
    """Return the number of processes worth starting, at most one for each core."""
    return max(1, min(cores(), ceil(requests / PER_PROCESS)))


def _object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; {} if it is none."""
    with suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}


def end_in_words(code: int) -> str:
    """Describe the end of a process by its exit code, or minus its signal: `ended with exit code 1`, `killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
