"""Verify an op in a process of its own.

In: the op's text and that of the module with its cases and its reference, where the user's modules are, a time limit.
Out: a `Verdict`. Invariant: whatever that process does, hang or crash, is a failure in words, never an exception of ours.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

RUNNER = Path(__file__).parent / "child" / "runner.py"
TIME_LIMIT = 300.0  # seconds; a run takes two, most of them to import torch
SHOWN_LINES = 12  # of what a process said before it died
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # small tensors alone


class Failure(NamedTuple):
    """What went wrong first, in words."""

    subject: str  # "forward", "backward", "grad_weight", or "process"
    words: str  # the diagnosis: "transposed", "None though needed"
    case: str = ""  # which case, and the layout of its tensors
    inputs: str = ""  # the shapes of the call
    needed: str = ""  # the inputs of which gradients were needed
    expected: str = ""
    actual: str = ""
    output: str = ""  # what the process said before it died
    hint: str = ""  # what to say of the inputs

    @property
    def lines(self) -> tuple[str, ...]:
        """The failing case, one fact a line."""
        named = zip(("case", "inputs", "needed", "expected", "actual"), self[2:7])
        facts = [f"{name}: {text}" for name, text in named if text]
        return (*facts, *self.output.splitlines()[-SHOWN_LINES:])


class Verdict(NamedTuple):
    """What a verification found."""

    cases: (
        int  # that ran: a call, its forward or the gradients of a subset of its inputs
    )
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # cases that the forward does not allow
    wanted: tuple[str, ...] = ()  # conditions on sizes that it turns out to have


def has_torch() -> bool:
    """Whether the interpreter has torch, which is not imported to know it."""
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):  # something stands in its way
        return False


def verify(
    op: str, checks: str, path: Sequence[str] = (), limit: float = TIME_LIMIT
) -> Verdict:
    """Run the cases; modules of the user's are looked for in `path`, after all others."""
    request = {"op": op, "checks": checks, "path": list(path)}
    with ended_with([sys.executable, "-P", str(RUNNER)], subprocess.PIPE) as process:
        try:
            answer, said = process.communicate(json.dumps(request).encode(), limit)
        except subprocess.TimeoutExpired as late:
            words = f"still running after {limit:g} seconds"
            return _died(words, late.stderr or b"")
    verdict = read_verdict(answer) if process.returncode == 0 else None
    return verdict or _died(_end(process.returncode), said)


@contextmanager
def ended_with(command: list[str], stderr: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a group of its own; whatever is left of the group ends with the context."""
    with subprocess.Popen(
        command,
        env=os.environ | ONE_THREAD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def read_verdict(answer: bytes) -> Verdict | None:
    """The verdict in what the process answered; None where it is none."""
    try:
        found: dict[str, Any] = json.loads(answer)
        failure = Failure(**found["failure"]) if found["failure"] else None
        notes, skipped = tuple(found["notes"]), tuple(found["skipped"])
        wanted = tuple(found["wanted"])
        return Verdict(int(found["cases"]), failure, notes, skipped, wanted)
    except (ValueError, TypeError, KeyError):
        return None


def _died(words: str, stderr: bytes) -> Verdict:
    said = stderr.decode(errors="replace").strip()
    return Verdict(0, Failure("process", words, output=said))


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} and no verdict"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
