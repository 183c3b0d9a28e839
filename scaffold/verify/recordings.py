"""Recordings: the arguments a project's tests call its Functions with.

`scaffold test-stub --record` runs a project's tests once, so that the stubs it writes call each Function with real arguments.
In: an interpreter, a directory, arguments of pytest, a limit in seconds. Out: the calls of each Function, by its file and name.
Invariant: the tests run once, in a process of their own; what was recorded before a crash or the limit counts.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.verify.processes import CHILD, ChildProcess, wait
from scaffold.verify.suites import RUNNER

RECORDER = str(CHILD / "recording.py")
PASSED, SOME_FAILED = 0, 1  # exit codes of pytest


class Tensor(NamedTuple):
    """A tensor of a call, without its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str  # `float32`
    needed: bool  # it requires grad
    range: tuple[int, int] | None = None  # of integers

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def dense_stride(self) -> tuple[int, ...]:
        """Return a stride for a new tensor of the same layout; of an expanded tensor (a stride of 0) that of a contiguous one.

        A test makes the recorded tensor anew, in this memory order; elements that share memory could not hold values of their own.
        """
        pairs = zip(self.shape, self.stride, strict=True)
        # A stride means nothing for a size of 1.
        if all(step or size <= 1 for size, step in pairs):
            return self.stride
        sizes = [max(size, 1) for size in self.shape]
        return tuple(math.prod(sizes[at + 1 :]) for at in range(len(sizes)))


Given = tuple[Tensor | str, ...]  # a string is a value as in code


class Recording(NamedTuple):
    """The calls of each Function, and why the run did not reach its end."""

    calls: dict[tuple[str, str], tuple[Given, ...]]  # by file and qualified name
    trouble: str = ""


def record(python: str, directory: Path, tests: str, limit: float) -> Recording:
    """Run tests once in `directory`, and return the arguments of all calls of Functions; the interpreter has to have PyTorch.

    `tests` are arguments of pytest, `limit` is in seconds. The process runs the same module as `suites`; RECORDER is the pytest plugin there.
    """
    process = ChildProcess(python, RUNNER)
    try:
        request = {"file": tests, "directory": str(directory), "watch": RECORDER}
        process.ask(request)
        return _heard(process, limit)
    finally:
        process.close()


def _heard(process: ChildProcess, limit: float) -> Recording:
    """Collect the calls reported by the testing process until it ends or `limit` seconds are over.

    `trouble` of the recording says what went wrong, "" if pytest came to its end. Raise ScaffoldError if the interpreter lacks a module.
    """
    deadline = time.monotonic() + limit
    calls: dict[tuple[str, str], list[Given]] = {}
    trouble = "the tests ended the process"  # unless "finished" comes before the end
    while time.monotonic() < deadline:
        wait([process], deadline)
        for answer in process.hear():
            match answer:
                case {"lacks": str(name), "words": str(words)}:
                    hint = "name the project's interpreter: --python .venv/bin/python"
                    message = f"cannot import {name}: {words}"
                    raise ScaffoldError(message, Location("--record"), hint)
                case {"file": str(file), "function": str(name), "given": list(given)}:
                    calls.setdefault((file, name), []).append(_given(given))
                # Failed tests have called Functions, too: their calls count.
                case {"finished": int(code)} if code in (PASSED, SOME_FAILED):
                    trouble = ""
                case {"finished": int(code)}:
                    trouble = f"pytest ended with exit code {code}"
                case {"ended": _}:
                    said = process.said.rpartition("\n")[2]  # the last line
                    return _recording(calls, trouble and f"{trouble}: {said}")
        if process.code is not None:
            return _recording(calls, trouble)
    return _recording(calls, f"the tests were still running after {limit:g} seconds")


def _recording(calls: dict[tuple[str, str], list[Given]], trouble: str) -> Recording:
    return Recording({key: tuple(each) for key, each in calls.items()}, trouble)


def _given(described: Sequence[dict[str, Any]]) -> Given:
    """Return the arguments of a call from their description in JSON: a tensor without values, or a value as code."""
    found: list[Tensor | str] = []
    for item in described:
        if "value" in item:
            found.append(item["value"])
            continue
        low_high = item.get("range")
        found.append(
            Tensor(
                tuple(item["shape"]),
                tuple(item["stride"]),
                item["dtype"],
                item["needed"],
                tuple(low_high) if low_high else None,
            )
        )
    return tuple(found)
