"""Proofs of ops, in separate processes.

A proof runs an op and compares it with its reference: outputs with plain PyTorch, gradients with autograd. The work itself is done in the
child process (`child/runner.py`); here it is started, fed and listened to. Callers: `project/proofs.py` for generated ops,
`project/function_verdicts.py` for hand-written Functions.
In: requests, each an op's text, that of the module with its cases and its reference, and the paths of the user's modules; an
interpreter that has torch; a time limit for each. Out: a `Verdict` a request, in their order.
Words: the *module of checks* is a generated text like the op's test file, with its cases and its reference in plain PyTorch, which the child
imports to make inputs and to compare; *declared* is what the user says of inputs in `--inputs`.
Invariant: a process that hangs or crashes is a failure of its op, in words, never an exception of ours; none outlives this process.
"""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.verify.processes import ChildProcess, end_in_words, listen, work_through

# CPU seconds for the proof of an op, not of the clock if others keep the machine busy; it takes one, at most a few.
LIMIT = 30
LONGEST = 5  # times the limit by the clock, in case its process does not keep it
INTERPRETED = (
    4  # times the limit for an op with kernels: the interpreter walks over each row
)
START_LIMIT = 120.0  # ... to import torch: from a slow disk it takes a minute
SHOWN_LINES = 12  # of the output of a process before it died


class Failure(NamedTuple):
    """The first failure of a proof, in words."""

    subject: str  # "forward", "backward", "grad_weight", or "process"
    words: str  # the diagnosis: "transposed", "None, but needed"
    case: str = ""  # the case, and the layout of its tensors
    inputs: str = ""  # the shapes of the call
    needed: str = ""  # the inputs requiring grad
    expected: str = ""
    actual: str = ""
    output: str = ""  # of the process before it died
    hint: str = ""  # how to declare the inputs
    expression: str = ""  # the raising part of a formula
    statement: str = ""  # ... and its line
    tried: Sequence[str] = ()  # shapes tried for undeclared inputs, in vain

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the failing case, one fact a line."""
        texts = self._asdict()
        names = ("case", "inputs", "needed", "expected", "actual")
        facts = [f"{name}: {texts[name]}" for name in names if texts[name]]
        return (*facts, *self.tried, *self.output.splitlines()[-SHOWN_LINES:])


class Checked(NamedTuple):
    """The outcome of one check of a hand-written Function, one of CHECKS in `child/function_checks.py`."""

    name: str  # "gradient of one output alone"
    status: str  # passed, failed or skipped
    words: str = ""  # the fault, or why it was skipped
    line: int = 0  # of the fault in the file
    hint: str = ""


class Verdict(NamedTuple):
    """The result of a verification."""

    # The number that ran: a call, its forward or the gradients of a subset of its inputs.
    cases: int
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # cases refused by the forward
    torch: str = ""  # its version; "" if it was not reached
    shapes: Mapping[str, str] = {}  # of undeclared inputs, accepted by the forward
    conditions: tuple[str, ...] = ()  # on their sizes, or on declared ones
    by_differences: bool = False  # since autograd has no gradient of the forward
    checks: tuple["Checked", ...] = ()  # of a hand-written Function
    chosen: int = 0  # the index of the Function's candidate declaration it accepted
    call: str = ""  # of a hand-written Function, as checked: "x (2, 3), dim=-1"
    kernels: int = 0  # the calls of the op with its kernels


class Original(NamedTuple):
    """The Function an op was adopted from, for comparison; its module is run."""

    module: str  # dotted
    root: str  # the directory that its import starts from
    file: str
    name: str  # of the Function in its module
    more: tuple[str, ...] = ()  # other checks, if it accepts no case of the first


class Place(NamedTuple):
    """An object in a user's file, and how to import it."""

    module: str  # dotted
    file: str
    root: str  # the directory that its import starts from
    name: str


class HandWritten(NamedTuple):
    """A Function to judge by itself, as `scaffold verify` does; its module is run."""

    place: Place
    names: tuple[str, ...]  # of its inputs, in the order of forward
    candidates: tuple[str, ...]  # modules of checks, which declare its inputs
    reference: Place | None
    samples: Place | None
    lines: Mapping[str, int]  # at which faults are reported
    dirty: tuple[str, ...]  # inputs that it marks as changed in place
    numbers: tuple[float, ...]  # in its text
    arguments: Mapping[str, Sequence[Any]]  # other values that choose a branch
    surrogate_stated: bool  # the gradient is no derivative, by its text
    declared: bool  # its inputs are as the user says
    searched: bool  # the shapes of its inputs were found by running it
    shapes: Sequence[Sequence[Sequence[int]]]  # further ones to try for all inputs
    compiled: bool
    questions: str  # the text of op_testing.py


def import_path(root: Path, source: Path) -> tuple[str, ...]:
    """Return the directories an op's imports are searched in: the root, the directory `source` of its file, and two above that."""
    root, source = root.resolve(), source.resolve()
    return tuple(map(str, dict.fromkeys((root, source, *source.parents[:2]))))


class Request(NamedTuple):
    """An op to prove, with its checks and modules."""

    op: str  # the text of its module
    checks: str  # the text of its module of checks
    path: tuple[str, ...] = ()  # of the user's modules, after all others
    modules: tuple[tuple[str, str], ...] = ()  # imports of the op not written yet
    kernels: tuple[tuple[str, str], ...] = ()  # modules of the op's kernels
    original: Original | None = None  # instead of the op's own reference
    function: HandWritten | None = None  # instead of the op


def has_torch() -> bool:
    """Return whether the interpreter has torch, without importing it."""
    try:
        found = find_spec("torch")
        # Without an origin it is a mere folder of that name.
        return found is not None and found.origin is not None
    except (ImportError, ValueError):  # something stands in its way
        return False


# The working directory, "" in the path, is left out: a `torch.py` in it is not PyTorch.
PROBE = """
import sys
sys.path[:] = [path for path in sys.path if path]
from importlib.util import find_spec
found = find_spec("torch")
print(*sys.version_info[:2], bool(found and found.origin))
"""
OLDEST = (3, 10)  # of the interpreters able to prove


def lacks_torch(python: str) -> str:
    """Return why an interpreter cannot prove ops, as "has no torch"; "" if it can.

    Used to choose the interpreter for proofs (`project/interpreter.py`). PROBE finds torch without importing it, which would take seconds.
    """
    try:
        done = subprocess.run(
            [python, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=START_LIMIT,
            check=False,
        )
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"still runs after {START_LIMIT:g} seconds"
    match done.stdout.decode(errors="replace").split():
        case [major, minor, "True" | "False" as found]:
            if (int(major), int(minor)) < OLDEST:
                return f"is Python {major}.{minor}, which is too old"
            return "" if found == "True" else "has no torch"
    return "is not a Python interpreter"


def verify_many(
    requests: Iterable[Request],
    python: str = sys.executable,
    limit: float = LIMIT,
    processes: int = 1,
) -> Iterator[Verdict]:
    """Yield verdicts in the order of the requests, from several processes.

    Each process imports torch once, and takes a request only when it is free.
    """
    return work_through(requests, lambda: Prover(python, limit), processes)


class Prover:
    """A process to prove one op after the other; replaced if it had to be ended."""

    def __init__(self, python: str = sys.executable, limit: float = LIMIT) -> None:
        """Take an interpreter and the CPU seconds for an op; no process is started yet."""
        # `allowed` is the limit of the present request: longer if it has kernels.
        self.python, self.limit, self.allowed = python, limit, limit
        self.process: ChildProcess | None = None
        self.result: Verdict | None = None  # on the last request
        self.deadline = 0.0
        self._request: Request | None = None  # not sent yet
        self._torch = ""  # its version, once the process has imported it

    def start(self) -> None:
        """Start a process unless there is one; a caller may do so early: it imports torch while the first request is being made."""
        if self.process is None:
            self._torch = ""
            self.process = ChildProcess(self.python, "scaffold.verify.child.runner")
            self.deadline = time.monotonic() + max(START_LIMIT, self.limit)

    def prove(self, request: Request) -> Verdict:
        """Return the verdict on one op."""
        self.ask(request)
        while self.result is None:
            listen([self])
        return self.result

    def ask(self, request: Request) -> None:
        """Begin the proof of an op; call `hear` until `result` is set. Without a process yet, the request waits for torch."""
        self.result, self._request = None, request
        self.allowed = self.limit * (INTERPRETED if request.kernels else 1)
        try:
            self.start()
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror}")
            return
        if self._torch:
            self._send()

    def _send(self) -> None:
        """Send the waiting request, once torch is imported: from now on its time counts."""
        assert self.process is not None and self._request is not None
        request, self._request = self._request, None
        self.deadline = time.monotonic() + LONGEST * self.allowed
        # As dicts for JSON; None stays None.
        original = request.original and request.original._asdict()
        function = request.function and request.function._asdict()
        asked = request._asdict() | {"original": original, "function": function}
        self.process.ask({**asked, "limit": self.allowed})

    def hear(self) -> None:
        """Read the output of the process, and set `result` if it is known; after the deadline, end the process."""
        process = self.process
        if process is None:
            return
        for answer in process.hear():
            self._answered(answer, process)
        # A verdict in time counts, even if the process ended after it.
        if self.result is not None:
            return
        if process.code is not None:
            self._fail(_end(process.code))
        elif time.monotonic() >= self.deadline:
            self._late()

    def _answered(self, answer: dict[str, Any], process: ChildProcess) -> None:
        """Handle an answer of the process: the version of torch, for which a request may wait, or the end of a proof.

        The end is a verdict, or that the proof's own process died or took too long.
        """
        if "torch" in answer:
            self._torch = str(answer["torch"])
            if self._request is not None:
                self._send()
        elif "lacks" in answer:
            self._fail(f"cannot import torch: {answer['lacks']}")
        elif "late" in answer:
            words, hint = self._still_running()
            self.result = _died(words, process.said, hint)._replace(torch=self._torch)
        elif "died" in answer:
            died = _died(_end(int(answer["died"])), process.said)
            self.result = died._replace(torch=self._torch)
        else:
            found = read_verdict(answer)
            if found is None:
                self._fail("gave an answer that is not a verdict")
            else:
                self.result = found._replace(torch=self._torch)

    def _late(self) -> None:
        """End the process after its deadline, and set a failure as the result: torch was not imported in time, or the proof still runs."""
        if not self._torch:
            waited = max(START_LIMIT, self.limit)
            self._fail(f"has not imported torch after {waited:g} seconds")
            return
        self._fail(*self._still_running())

    def _still_running(self) -> tuple[str, str]:
        longer = f"give it longer: --limit {2 * self.limit:g}"
        return f"still running after {self.allowed:g} seconds", longer

    def _fail(self, words: str, hint: str = "") -> None:
        """End the process, and set its failure in these words as the result, with its last output."""
        said = self.process.said if self.process is not None else ""
        self.close()
        self.result = _died(words, said, hint)._replace(torch=self._torch)

    def close(self) -> None:
        """End the process, if there is one, and all it has started."""
        process, self.process = self.process, None
        if process is not None:
            process.close()


def read_verdict(answer: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict in an answer of the process; None if a field is missing or of another type."""
    try:
        failure = Failure(**answer["failure"]) if answer["failure"] else None
        notes, skipped = tuple(answer["notes"]), tuple(answer["skipped"])
        found = Verdict(int(answer["cases"]), failure, notes, skipped)
        return found._replace(
            shapes=dict(answer.get("shapes", {})),
            conditions=tuple(answer.get("conditions", ())),
            by_differences=bool(answer.get("by_differences")),
            checks=tuple(Checked(**one) for one in answer.get("checks", ())),
            chosen=int(answer.get("chosen", 0)),
            call=str(answer.get("call", "")),
            kernels=int(answer.get("kernels", 0)),
        )
    except (ValueError, TypeError, KeyError):
        return None


def _died(words: str, said: str, hint: str = "") -> Verdict:
    return Verdict(0, Failure("process", words, output=said, hint=hint))


def _end(code: int) -> str:
    words = end_in_words(code)
    # Of a signal, a negative code, the words say enough.
    return f"{words} and no verdict" if code >= 0 else words
