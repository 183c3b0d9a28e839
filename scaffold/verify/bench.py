"""Benchmarks: time calls of an op and its variants, each in its own process, in turns; report the median of all rounds.

`scaffold bench` compares an op with plain PyTorch, or with a compiled or fused form of it, by these numbers.
In: the variants, each as texts and the name of the function to call; a setting: sizes, dtype, device. Out: a `Measured` for each variant
that ran, and a reason for each other one.
Words: a *variant* is one of the compared functions; in a *round* each is timed once, one after the other, so that a slow moment of the
machine hits all; the child process (`child/measuring.py`) makes inputs and calls. Invariant: a failure of a process is reported in words;
none outlives its `Bench`, and each answer has a time limit.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from statistics import quantiles
from typing import Any, NamedTuple, Self

from scaffold.errors import Location, ScaffoldError
from scaffold.verify.processes import ChildProcess, end_in_words
from scaffold.verify.prover import START_LIMIT

RUNNER = "scaffold.verify.child.measuring"
LIMIT = 120  # seconds for a variant to be prepared, compiled too, or for a round
ROUNDS = 15
# Let glibc keep large blocks: else each call returns them and takes page faults, which are no arithmetic.
KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}
PARTS = ("forward", "backward", "both")
NOISE = {"float16": 1e-2, "bfloat16": 5e-2}  # of values; other dtypes: LITTLE_NOISE
LITTLE_NOISE = 1e-3


class Variant(NamedTuple):
    """A function to measure, by name in the module of checks."""

    name: str  # of the variant, as the user reads it
    calls: str  # the function's name in that module
    op: str  # the text of the op's module
    checks: str  # the text of the module of checks, which makes the inputs
    compiled: bool = False  # call it through torch.compile


class Setting(NamedTuple):
    """The arguments, dtype and device of a measured call."""

    arguments: Mapping[str, Any]  # of the function that makes the inputs
    dtype: str = "float32"
    device: str = "cpu"
    create_graph: bool = False  # the backward is recorded, for a second derivative


class Spread(NamedTuple):
    """The seconds of a call over all rounds: their median, and the quartiles between which half of them lie."""

    median: float
    low: float
    high: float


class Measured(NamedTuple):
    """Seconds of a call; its peak bytes beyond the inputs; bytes kept for the backward, inputs included."""

    forward: Spread
    backward: Spread
    both: Spread
    peak_bytes: int | None
    saved_bytes: int
    saved_bytes_without: Mapping[str, int]  # by input: if it needs no gradient
    differs: bool  # in values or gradients from the first variant

    def over(self, other: "Measured") -> tuple[float, bool]:
        """Return the time of both directions over the other's, and whether the quartiles overlap: then the difference may be noise."""
        own, base = self.both, other.both  # forward and backward in one measurement
        return own.median / base.median, own.low <= base.high and base.low <= own.high


class Results(NamedTuple):
    """The measurements and the refusals of the variants, by name."""

    measured: dict[str, Measured]
    refused: dict[str, str]  # the reason


class Bench:
    """One process for each variant, by name; all are started together."""

    def __init__(
        self,
        names: Sequence[str],
        python: str = sys.executable,
        threads: int = 1,
        limit: float = LIMIT,
        path: Sequence[str] = (),
    ) -> None:
        """Start a process for each variant, by its name in `names`; `limit` has the seconds for an answer of one.

        `threads` are those of a process; `path` is searched for user modules after all other paths.
        """
        self.python, self.limit, self.torch = python, limit, ""
        self.shared = {"threads": threads, "path": path, "modules": ()}
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self.variables = KEPT_MEMORY | counts
        self.processes: dict[str, ChildProcess] = {}
        self.starting: set[str] = set()  # they still import torch
        for name in names:
            self._start(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.close()

    def measure(
        self,
        variants: Sequence[Variant],
        setting: Setting,
        rounds: int = ROUNDS,
        tell: Callable[[], object] = lambda: None,
    ) -> Results:
        """Prepare each variant in its process, time all in turns, and return measurements and refusals by name.

        `tell` is called after each step, for a progress bar. The first variant's values are those the others are compared with (`differs`).
        """
        answers: dict[str, dict[str, Any]] = {}  # by variant: all it has answered
        for variant in variants:
            asked = {**variant._asdict(), **setting._asdict(), **self.shared}
            answers[variant.name] = self._answer(variant.name, asked)
            tell()
        timings: dict[str, list[dict[str, Any]]] = {name: [] for name in answers}
        for name in [*answers] * rounds:
            if "failed" not in answers[name]:
                timings[name].append(self._answer(name, {}))  # {}: time once more
                answers[name] |= timings[name][-1]  # it may have failed now
            tell()
        results = Results({}, {})
        first = next(iter(answers.values()))
        for name, answer in answers.items():
            if "failed" in answer:
                results.refused[name] = answer["failed"]
                continue
            forward, backward, both = (
                _spread([timing[part] for timing in timings[name]]) for part in PARTS
            )
            differs = _differs(answer, first, NOISE.get(setting.dtype, LITTLE_NOISE))
            counts = {key: count for key, count in answer.items() if "bytes" in key}
            results.measured[name] = Measured(
                forward, backward, both, **counts, differs=differs
            )
        return results

    def _start(self, name: str) -> None:
        self.processes[name] = ChildProcess(self.python, RUNNER, self.variables)
        self.starting.add(name)

    def _answer(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the process of a variant, and return its answer; {"failed": why} if it dies or takes too long.

        A request of {} asks for one more round of the variant prepared before. A dead process is replaced with the next request.
        """
        if name not in self.processes:
            self._start(name)
        process = self.processes[name]
        # The first message of a new process is the version of torch, not an answer.
        if name in self.starting:
            self._await_torch(process)
            self.starting.remove(name)
        process.ask(request)
        answer = process.answer(self.limit)
        if answer is not None:
            return answer
        self.processes.pop(name).close()
        if process.code is None:
            return {"failed": f"still running after {self.limit:g} seconds"}
        return {"failed": f"the process {end_in_words(process.code)}"}

    def _await_torch(self, process: ChildProcess) -> None:
        """Wait for the first message of a process, the version of torch; raise ScaffoldError if it has none."""
        first = process.answer(START_LIMIT) or {}
        if "torch" not in first:
            said = (process.said.splitlines() or ["no answer"])[-1]
            message = f"'{self.python}' cannot import torch: {said}"
            raise ScaffoldError(message, Location("--python"))
        self.torch = str(first["torch"])


def _spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles of some values."""
    several = [*values, *values]  # a single value has no quartiles
    low, middle, high = quantiles(several, n=4, method="inclusive")
    return Spread(middle, low, high)


def _differs(one: Mapping[str, Any], other: Mapping[str, Any], noise: float) -> bool:
    """Return whether outputs or gradients of two variants differ, by their sums and norms; False for random ops.

    `one` and `other` are the answers of their processes; "figures" holds (sum, norm) of each output and gradient, since tensors do not cross
    between processes. `noise` is the difference allowed, relative to the larger norm (the last of the figures).
    """
    # There is nothing to compare with, or other numbers are drawn in each process.
    if "failed" in other or one["random"]:
        return False
    if len(one["figures"]) != len(other["figures"]):
        return True
    pairs = zip(one["figures"], other["figures"], strict=True)
    return any(
        abs(x - y) > noise * max(own[-1], base[-1], 1e-6)
        for own, base in pairs
        for x, y in zip(own, base, strict=True)
        if isfinite(x) and isfinite(y)
    )
