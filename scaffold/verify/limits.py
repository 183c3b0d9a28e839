"""Limits of time and memory, for a team's templates, whose cost is unknown.

A team may replace our templates by its own, and a loop in one could hang or fill the machine while files are rendered.
In: a function. Out: its result, or its exception. Invariant: it takes at most SECONDS of a processor, and on Linux BYTES more than the
process had; a C call that no exception ends is killed.
"""

import math
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from scaffold.files import read_bytes

SECONDS = 5  # of a processor, for the files of one op
GRACE = 2  # seconds more, for the TimeoutError to be raised
BYTES = 1 << 30

Result = TypeVar("Result")
_is_limited = False  # whether the memory of this process is limited


class LimitReached(Exception):
    """The process of the function was killed."""


def limited(function: Callable[[], Result]) -> Result:
    """Call the function in a new process with limits of time and memory; return its result, or raise its exception.

    Raise LimitReached if the process was killed. In a process with limited memory (after `hold`), it is called directly, with the limit of
    time alone.
    """
    if _is_limited:
        with _timed():
            return function()
    import multiprocessing  # most runs need no second process

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(function, theirs))
    process.start()
    # So that `recv` below sees the end if the process dies: no other end is open.
    theirs.close()
    try:
        succeeded, found = ours.recv()
    except EOFError:  # the process ended without sending anything
        raise LimitReached from None
    finally:
        process.join()
    if not succeeded:
        raise found
    return found  # type: ignore[no-any-return]


def _answer(function: Callable[[], Any], answers: Any) -> None:
    """Limit this process, call the function, and send (True, its result) or (False, its exception)."""
    hold()
    try:
        found = (True, limited(function))
    except Exception as error:  # noqa: BLE001 (the caller's to handle)
        found = (False, error)
    answers.send(found)


def hold() -> None:
    """Limit the memory of this process from now on, to BYTES more than it has; nothing happens where the system cannot.

    A process that renders a team's templates calls it first: a loop in one may fill the memory.
    """
    global _is_limited
    _is_limited = True
    with suppress(OSError, ValueError):
        pages = int(read_bytes(Path("/proc/self/statm")).split()[0])
        most = pages * resource.getpagesize() + BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


@contextmanager
def _timed() -> Iterator[None]:
    """Raise TimeoutError in the context after SECONDS of work; kill the process if a C call does not return.

    A signal stops Python code. The kernel's own limit, GRACE later, stops any code.
    """

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds of work")

    spent = resource.getrusage(resource.RUSAGE_SELF)
    last = math.ceil(spent.ru_utime + spent.ru_stime + SECONDS + GRACE)
    # RLIMIT_CPU counts from the start of the process: add to what it has spent.
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_CPU, (last, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))  # none of ours
