"""What a call of an op costs besides its arithmetic: microseconds of rms_norm's forward on a few elements, by how the op is written.

In: `python -m benchmarks.overhead`, in an environment with torch. Out: for each way the median of 15 runs of 2,000 calls, taken in turn,
and its ratio to the same formula in plain PyTorch.
"""

import inspect
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.derive.building import draft_of, load, spec_of

CALLS, RUNS = 2000, 15
INPUTS = "x[..., D], weight[D], eps: float = 1e-6"
FORWARD = """
rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
return x * rstd * weight
"""
Call = Callable[[Tensor, Tensor], Tensor]


def generated(**keys: Any) -> Any:
    """The module of the op with these keys."""
    table = {"inputs": INPUTS, "forward": FORWARD, "shape_checks": False, **keys}
    return load(draft_of(spec_of(**table)))


def with_signature() -> Call:
    """The op with a signature that is worked out once, which each call of `apply` asks for."""
    module = generated()
    forward = module.SomeOpFunction.forward
    forward.__signature__ = inspect.signature(forward)
    op: Call = module.some_op
    return op


def plain(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return x * rstd * weight


def ways() -> dict[str, Call]:
    return {
        "plain PyTorch": plain,
        "combined style": generated(style="combined").some_op,
        "setup_context (default)": generated().some_op,
        "... its signature kept": with_signature(),
        "... with shape checks": generated(shape_checks=True).some_op,
        "... with a cast for autocast": generated(amp="float32").some_op,
        "... in a region of autocast": generated(amp="region").some_op,
    }


def measured(calls: dict[str, Call]) -> dict[str, float]:
    """Microseconds a call, in the order of the ways."""
    x = torch.randn(2, 4, requires_grad=True)
    weight = torch.randn(4, requires_grad=True)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(RUNS):
        for name, call in calls.items():
            begun = time.process_time()
            for _ in range(CALLS):
                call(x, weight)
            times[name].append((time.process_time() - begun) / CALLS * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    torch.set_num_threads(1)
    found = measured(ways())
    first = next(iter(found.values()))
    for name, value in found.items():
        print(f"{name:30} {value:6.1f} us  {value / first:5.2f}")


if __name__ == "__main__":
    main()
