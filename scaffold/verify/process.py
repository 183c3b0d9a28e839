"""Prove ops in processes of their own.

In: requests, each an op's text, that of the module with its cases and its reference, and where the user's modules are; an
interpreter that has torch; a time limit for each. Out: a `Verdict` a request, in their order.
Invariant: whatever a process does, hang or crash, is a failure in words of the op that did it, never an exception of ours; none
outlives this process.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

CHILD = Path(__file__).parent / "child"
LIMIT = 30.0  # seconds for the proof of an op; it takes one, at most a few
START_LIMIT = 120.0  # ... to import torch: from a slow disk it takes a minute
PER_PROCESS = 4  # ops for one more process: to import torch costs as much as they do
KEPT = 8000  # bytes of what a process said last
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
    expression: str = ""  # of a formula, that raised
    statement: str = ""  # ... and the line that it stands in
    rule: Sequence[str] = ()  # conditions that would mend it, for the user to decide

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
    torch: str = ""  # the version that ran; none where it did not come to that


class Original(NamedTuple):
    """The Function that an op was adopted from, with which it is compared; its module is run for that."""

    module: str  # dotted
    root: str  # the directory that its import starts from
    file: str
    name: str  # of the Function in its module
    more: tuple[str, ...] = ()  # other checks, for what takes no case of the first


def import_path(root: Path, source: Path) -> tuple[str, ...]:
    """Where an op's own imports are looked for: in the root, beside the op, and where its package begins."""
    root, source = root.resolve(), source.resolve()
    return tuple(map(str, dict.fromkeys((root, source, *source.parents[:2]))))


class Request(NamedTuple):
    """What is to be proven."""

    op: str
    checks: str
    path: tuple[str, ...] = ()  # modules of the user's: looked for after all others
    modules: tuple[tuple[str, str], ...] = ()  # what the op imports, not written yet
    original: Original | None = None  # in the place of the op's own reference


def has_torch() -> bool:
    """Whether the interpreter has torch, which is not imported to know it."""
    try:
        found = find_spec("torch")
        return found is not None and found.origin is not None
    except (ImportError, ValueError):  # something stands in its way
        return False


PROBE = """
import sys
sys.path[:] = [path for path in sys.path if path]
from importlib.util import find_spec
found = find_spec("torch")
print(*sys.version_info[:2], bool(found and found.origin))
"""
OLDEST = (3, 10)  # of the interpreters that can prove


def lacks_torch(python: str) -> str:
    """What keeps an interpreter from proving, in words; nothing where it has torch, which is not imported to know it."""
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
    return "is no Python"


def verify(
    op: str,
    checks: str,
    path: Sequence[str] = (),
    limit: float = LIMIT,
    python: str = sys.executable,
) -> Verdict:
    """Prove one op."""
    return ask(Request(op, checks, tuple(path)), limit, python)


def ask(
    request: Request, limit: float = LIMIT, python: str = sys.executable
) -> Verdict:
    """The verdict on one request."""
    with closing(Prover(python, limit)) as prover:
        return prover.prove(request)


def verify_many(
    requests: Iterable[Request],
    python: str = sys.executable,
    limit: float = LIMIT,
    processes: int = 1,
) -> Iterator[Verdict]:
    """Prove ops in at most so many processes, each of which imports torch once; a verdict comes as soon as those before it.

    A request is asked for when a process is free for it.
    """
    waiting = iter(enumerate(requests))
    request = next(waiting, None)
    found: dict[int, Verdict] = {}
    shown = 0
    with ExitStack() as stack:
        provers: list[Prover] = []
        numbers: dict[int, int] = {}  # of a prover -> of its request
        while request is not None or numbers:
            free = [at for at in range(len(provers)) if at not in numbers]
            if request is not None and not free and len(provers) < processes:
                free = [len(provers)]
                provers.append(stack.enter_context(closing(Prover(python, limit))))
            if request is not None and free:
                numbers[free[0]], wanted = request
                provers[free[0]].ask(wanted)
                request = next(waiting, None)
                continue
            _listen([provers[at] for at in numbers])
            for at, number in list(numbers.items()):
                verdict = provers[at].verdict
                if verdict is not None:
                    found[number] = verdict
                    del numbers[at]
            while shown in found:
                yield found.pop(shown)
                shown += 1


def processes_for(requests: int) -> int:
    """How many processes that many ops are worth: never more than there are cores."""
    known = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 0
    cores = known or os.cpu_count() or 1
    return max(1, min(cores, -(-requests // PER_PROCESS)))


class Prover:
    """A process that proves one op after the other; another takes its place where it had to be ended."""

    def __init__(self, python: str = sys.executable, limit: float = LIMIT) -> None:
        self.python, self.limit = python, limit
        self.verdict: Verdict | None = None  # of the request that was asked last
        self.deadline = 0.0
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._request: Request | None = None  # that is to be sent
        self._torch = ""
        self._line = self._said = b""

    def start(self) -> None:
        """Let a process import torch, while its first request is still being made."""
        if self._process is not None:
            return
        self._torch, self._line, self._said = "", b"", b""
        command = child_command(self.python, "scaffold.verify.child.runner")
        self._process = self._stack.enter_context(ended_with(command, subprocess.PIPE))
        self.deadline = time.monotonic() + max(START_LIMIT, self.limit)
        for stream in self.streams:
            os.set_blocking(stream, False)

    @property
    def streams(self) -> tuple[int, int]:
        """What it answers, and what the user's code prints."""
        process = self._process
        assert process and process.stdout and process.stderr
        return process.stdout.fileno(), process.stderr.fileno()

    def prove(self, request: Request) -> Verdict:
        """The verdict on one op."""
        self.ask(request)
        while self.verdict is None:
            _listen([self])
        return self.verdict

    def ask(self, request: Request) -> None:
        """Have an op proven; `verdict` is there after as many `hear` as it takes."""
        self.verdict, self._request = None, request
        try:
            self.start()
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror}")
            return
        if self._torch:
            self._send()

    def _send(self) -> None:
        """Say what is to be proven: the clock of the proof begins."""
        assert self._process and self._process.stdin and self._request
        text = json.dumps(_as_object(self._request)).encode() + b"\n"
        self._request, self._said = None, b""
        self.deadline = time.monotonic() + self.limit
        with suppress(BrokenPipeError):  # the missing answer says so
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def hear(self) -> None:
        """Read what there is to read."""
        answers, prints = self.streams
        data, closed = _read(answers)  # before what was printed before it
        self._said = (self._said + _read(prints)[0])[-KEPT:]
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._answered(line)
        if closed and self.verdict is None:
            assert self._process is not None
            self._fail(_end(self._process.wait()))
        elif time.monotonic() >= self.deadline and self.verdict is None:
            self._late()

    def _answered(self, line: bytes) -> None:
        answer = _object(line)
        if "torch" in answer and not self._torch:
            self._torch = str(answer["torch"])
            if self._request is not None:
                self._send()
        elif "lacks" in answer:
            self._fail(f"cannot import torch: {answer['lacks']}")
        elif "died" in answer:
            words, said = _end(int(answer["died"])), self._said
            self.verdict = _died(words, said)._replace(torch=self._torch)
        else:
            found = read_verdict(line)
            if found is None:
                self._fail("gave an answer that is no verdict")
            else:
                self.verdict = found._replace(torch=self._torch)

    def _late(self) -> None:
        if not self._torch:
            waited = max(START_LIMIT, self.limit)
            self._fail(f"has not imported torch after {waited:g} seconds")
            return
        longer = f"give it longer: --limit {2 * self.limit:g}"
        self._fail(f"still running after {self.limit:g} seconds", longer)

    def _fail(self, words: str, hint: str = "") -> None:
        """Say that the process is to blame, and end it."""
        verdict, torch = _died(words, self._said, hint), self._torch
        self.close()
        self.verdict = verdict._replace(torch=torch)

    def close(self) -> None:
        """End the process, if there is one, and whatever it has started."""
        self._process = None
        with suppress(BrokenPipeError):  # of a request that nobody read
            self._stack.close()


def _as_object(request: Request) -> dict[str, Any]:
    original = request.original and request.original._asdict()
    return {**request._asdict(), "original": original}


def _listen(provers: Sequence[Prover]) -> None:
    """Wait until one of them has something to say or is out of time, and hear all."""
    busy = [prover for prover in provers if prover.verdict is None]
    if len(busy) < len(provers):
        return  # there is an answer already
    with selectors.DefaultSelector() as selector:
        for prover in busy:
            for stream in prover.streams:
                selector.register(stream, selectors.EVENT_READ)
        first = min(prover.deadline for prover in busy)
        selector.select(max(0.0, first - time.monotonic()))
    for prover in busy:
        prover.hear()


def _read(descriptor: int) -> tuple[bytes, bool]:
    """What there is to read, and whether nothing more will come."""
    found = b""
    try:
        while data := os.read(descriptor, 65536):
            found += data
    except BlockingIOError:
        return found, False
    return found, True


class Answer(NamedTuple):
    """What a process said to a request."""

    line: bytes = b""  # without an end where it never came to it
    said: bytes = b""  # beside that, of which the last counts
    late: bool = False


def ask_once(
    process: "subprocess.Popen[bytes]", request: dict[str, Any], limit: float
) -> Answer:
    """The one line that a process answers to the one line that it is asked."""
    assert process.stdin and process.stdout and process.stderr
    streams = process.stdout.fileno(), process.stderr.fileno()
    with suppress(BrokenPipeError):  # the missing answer says so
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    line = said = b""
    deadline = time.monotonic() + limit
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            os.set_blocking(stream, False)
            selector.register(stream, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            selector.select(max(0.0, deadline - time.monotonic()))
            data, closed = _read(streams[0])
            line, said = line + data, (said + _read(streams[1])[0])[-KEPT:]
            if closed or line.endswith(b"\n"):
                return Answer(line, said)
    return Answer(line, said, late=True)


def child_command(python: str, target: str) -> list[str]:
    """What starts a process: a module of `scaffold.verify.child`, or the path of a file that stands alone."""
    return [python, "-u", str(CHILD / "start.py"), target]


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
    found = _object(answer)
    try:
        failure = Failure(**found["failure"]) if found["failure"] else None
        notes, skipped = tuple(found["notes"]), tuple(found["skipped"])
        wanted = tuple(found["wanted"])
        return Verdict(int(found["cases"]), failure, notes, skipped, wanted)
    except (ValueError, TypeError, KeyError):
        return None


def _object(line: bytes) -> dict[str, Any]:
    """The JSON object on a line; an empty one where there is none."""
    with suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}


def _died(words: str, said: bytes, hint: str = "") -> Verdict:
    output = said.decode(errors="replace").strip()
    return Verdict(0, Failure("process", words, output=output, hint=hint))


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} and no verdict"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
