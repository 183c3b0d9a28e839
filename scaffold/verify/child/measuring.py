"""Measuring process: time calls of one variant of an op: the op, its text, the compiled text, another operator.

`scaffold bench` starts one for each variant (`verify/bench.py`). In: on stdin, one JSON object a line: texts and a setting to prepare
for, then rounds. Out: on stdout, likewise: the version of torch; for a setting, the bytes of a call and figures of its values; for a
round, the seconds of its forward and backward.
Words: *ends* are outputs with a gradient, *leaves* the inputs requiring grad; a *figure* is a number that stands for a whole tensor; an
input is *frozen* if it alone requires no grad; LOOSE: some input has no declared shape, DIFFERENTIABLE: the inputs with a gradient.
Invariant: the clock is read only after a device other than the CPU has finished. Output of the user's code goes to stderr.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from scaffold.verify.child.cases import needs_gradient
from scaffold.verify.child.modules import load_checks

ROUND = 0.05  # seconds of a round, about
MOST_CALLS = 1000  # of a round
WARM_UP = 3  # calls before timing begins
MOST_ELEMENTS = 50_000_000  # of a value, if undeclared shapes broadcast
BROADCAST = 16  # times the largest input: less is meant


def main() -> None:
    """Answer each request of stdin, a setting to prepare or {} for a round, until it ends; an error is an answer, too."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)  # what the user's code prints goes to stderr
    with open(os.devnull, encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 0)  # the requests are not for the user's code
    sys.dont_write_bytecode = True
    answer: dict[str, Any] = {"torch": str(torch.__version__)}
    call: Call | None = None
    while True:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        line = requests.readline()
        if not line:
            return
        try:
            if request := json.loads(line):
                call = None  # free its memory for the next one
                call = Call(request)
            assert call is not None  # a round comes after its setting
            answer = call.described() if request else call.round()
        except TooLargeError as error:
            answer = {"failed": str(error)}
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
            first = (str(error).strip().splitlines() or [""])[0]
            answer = {"failed": f"{type(error).__name__}: {first}"}


class TooLargeError(Exception):
    """The reason why a call would take too much memory."""


class Call:
    """Forward and backward of one function, on the same inputs in every process."""

    def __init__(self, request: dict[str, Any]) -> None:
        """Load the module of checks, make the inputs, and warm up the function named by "calls"; raise if it fails.

        The number of calls in a round follows from the seconds of the last call. One thread on a CPU is timed by its CPU time, which other
        processes do not lengthen.
        """
        torch.set_num_threads(request["threads"])
        sys.path.extend(path for path in request["path"] if path not in sys.path)
        self.device = torch.device(request["device"])
        self.dtype: torch.dtype = getattr(torch, request["dtype"])
        self.create_graph: bool = request["create_graph"]
        self.arguments: dict[str, Any] = request["arguments"]
        self.checks = load_checks(request)
        self.function: Callable[..., Any] = getattr(self.checks, request["calls"])
        if self.function is None:
            raise NotImplementedError("autograd has no gradient of it")
        self.compiled: bool = request["compiled"]
        if self.compiled:
            torch._dynamo.reset()  # earlier sizes would make the present ones dynamic
            self.function = torch.compile(self.function)
        on_cpu = self.device.type == "cpu"
        one_thread = on_cpu and request["threads"] == 1
        self.clock = time.process_time if one_thread else time.perf_counter
        self.memory = None if on_cpu else getattr(torch, self.device.type)
        self.inputs = self._inputs(self.checks.DIFFERENTIABLE)
        # Only undeclared shapes can broadcast to something far larger.
        if self.checks.LOOSE:
            refuse_too_large(getattr(self.checks, request["calls"]), self.inputs)
        self.leaves = [x for x in self.inputs if needs_gradient(x)]
        torch.manual_seed(1)
        ends = _ends(self.function(*self.inputs))
        self.grads = [torch.randn_like(end) for end in ends]
        for _ in range(WARM_UP):
            seconds = max(1e-6, sum(self.step()[:2]))  # forward and backward
        self.calls = max(1, min(MOST_CALLS, int(ROUND / seconds)))

    def _inputs(self, needs: Sequence[str]) -> list[Any]:
        """Make the inputs of a call; the ones in `needs` are leaves and require grad."""

        def moved(value: Any) -> Any:
            """Return a tensor on the device and in the dtype of the setting; integers and bools keep theirs."""
            if not isinstance(value, Tensor):
                return value
            dtype = self.dtype if value.is_floating_point() else value.dtype
            if value.is_complex():
                dtype = self.dtype.to_complex()
            there = value.detach().to(self.device, dtype)
            return there.requires_grad_(value.requires_grad)

        return [*map(moved, self.checks.make(**self.arguments, needs=needs))]

    def _time(self) -> float:
        if self.memory is not None:
            self.memory.synchronize()
        return self.clock()

    def step(self) -> tuple[float, float, Any, Any]:
        """Return the seconds of the forward and of the backward, then the outputs and the gradients."""
        begin = self._time()
        outputs = self.function(*self.inputs)
        between = self._time()
        found: Any = ()
        if self.grads:
            found = torch.autograd.grad(
                _ends(outputs),
                self.leaves,
                self.grads,
                create_graph=self.create_graph,
                allow_unused=True,
            )
        return between - begin, self._time() - between, outputs, found

    def round(self) -> dict[str, float]:
        """Return the median seconds of forward, backward and both."""
        timings = [self.step()[:2] for _ in range(self.calls)]
        forward, backward = (median(part) for part in zip(*timings, strict=True))
        return {
            "forward": forward,
            "backward": backward,
            "both": median(map(sum, timings)),
        }

    def described(self) -> dict[str, Any]:
        """Return the bytes of a call, and two figures of each output and gradient, to compare variants by.

        `saved_bytes_without` has the bytes saved for the backward if one input is frozen, by its name.
        """
        *_, outputs, found = self.step()
        values = [*_listed(outputs), *(grad for grad in found if grad is not None)]
        figures = [_figures(value) for value in values]
        del outputs, found, values  # their memory would count as the call's
        names, frozen = self.checks.DIFFERENTIABLE, {}
        # With its only input frozen there is no backward. A compiled function would be compiled for each.
        for name in names if len(names) > 1 and not self.compiled else ():
            needs = [other for other in names if other != name]
            frozen[name] = saved_bytes(self.function, self._inputs(needs))
        saved = saved_bytes(self.function, self.inputs)
        return {
            "random": bool(self.checks.TESTS.random),
            "figures": figures,
            "peak_bytes": self._peak(),
            "saved_bytes": saved,
            "saved_bytes_without": frozen,
        }

    def _peak(self) -> int | None:
        """Return the peak bytes of a call beyond its inputs; None if the device does not report them."""
        if self.memory is None:
            return _peak_of_cpu(self.step)
        if not hasattr(self.memory, "max_memory_allocated"):
            return None
        before = self.memory.memory_allocated(self.device)
        self.memory.reset_peak_memory_stats(self.device)
        self.step()
        return int(self.memory.max_memory_allocated(self.device) - before)


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode to keep the shape of the largest value computed in a call."""

    shape = torch.Size([0])

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator; note the shape of a result larger than those before."""
        found = function(*args, **(kwargs or {}))
        for one in _listed(found):
            if isinstance(one, Tensor) and one.numel() > self.shape.numel():
                self.shape = one.shape
        return found


def refuse_too_large(function: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Raise TooLargeError if a value has far more elements than the inputs, as if shapes broadcast by accident; compute only shapes.

    Inputs without declared shapes all get the same one, which a forward may expand against itself: at the sizes of a benchmark that would
    fill the memory.
    """
    sizes = [x.numel() for x in inputs if isinstance(x, Tensor)]
    try:
        with FakeTensorMode() as fake, Largest() as seen:  # type: ignore[no-untyped-call]
            function(
                *(fake.from_tensor(x) if isinstance(x, Tensor) else x for x in inputs)
            )
    except Exception:  # noqa: BLE001 (no shape without values: a kernel of the user's)
        return
    if seen.shape.numel() > max(MOST_ELEMENTS, BROADCAST * max(sizes, default=0)):
        shown = "x".join(map(str, seen.shape))
        raise TooLargeError(
            f"the undeclared shapes broadcast to {shown}, which takes too much memory"
        )


def _listed(outputs: Any) -> tuple[Any, ...]:
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def _ends(outputs: Any) -> list[Any]:
    """Return the outputs with a gradient."""
    return [output for output in _listed(outputs) if needs_gradient(output)]


def _peak_of_cpu(step: Callable[[], Any]) -> int:
    """Return the most bytes allocated at once during a step, by the events of PyTorch's profiler."""
    # Not torch.profiler.profile, whose first use imports the compiler.
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        results = step()
    del results
    most = allocated = 0
    known: Any = profile.kineto_results
    for event in known.events():
        if event.name() == "[memory]":
            allocated += event.nbytes()  # less than 0 if memory is freed
            most = max(most, allocated)
    return most


def saved_bytes(function: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """Return the bytes of all storages kept for the backward, inputs included, each once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = function(*inputs)  # alive, or two storages may have one address
    for tensor in _on_contexts(_ends(kept)):
        pack(tensor)
    del kept
    return sum(storages.values())


def _on_contexts(ends: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield tensors Functions keep as plain attributes of ctx: `saved_tensors_hooks` do not see them."""
    waiting, seen = [end.grad_fn for end in ends], set[Any]()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
            # The nodes of PyTorch's own operators have no `__dict__`.
            for value in getattr(node, "__dict__", {}).values():
                yield from (one for one in _listed(value) if isinstance(one, Tensor))


def _figures(value: Tensor) -> tuple[float, float]:
    """Return two figures to compare values by: a sum, with weights that tell elements apart, and the norm."""
    flat = value.detach().cpu()
    flat = (torch.view_as_real(flat) if flat.is_complex() else flat).flatten().double()
    weights = torch.arange(flat.numel(), dtype=torch.double).cos()
    return float(flat @ weights), float(flat.norm())
