"""What derived ops save and take, against autograd of the same forward.

In: `python -m benchmarks.derive [OP ...] [--rounds N] [--no-compile]`, with torch beside scaffold, and tangent-ad if it is to
be measured too. Out: for each op, and as geometric means, the CPU time of forward and backward and the bytes that wait
between them, over those of eager autograd: of both policies, of torch.compile of the forward, and of tangent-ad on the
ops that it takes; the bytes over those of PyTorch's own op with each input frozen; the time of a derivation. One thread;
everything takes turns. Exit 1 where a target is missed, with the ops that miss it most.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from statistics import median
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.derive_native import Call, frozen_one_by_one, saved_bytes
from benchmarks.derive_ops import OPS, POLICIES, Args, Op
from benchmarks.derive_report import (
    COMPILED,
    RIVAL,
    Row,
    frozen_table,
    line,
    mean_lines,
    missed,
    notes,
    row_line,
)
from benchmarks.derive_rival import Step, is_there, rival
from benchmarks.derive_speed import derivation_times, reported
from scaffold.derive import derive
from scaffold.formula import emit, emit_lines
from scaffold.spec import OpSpec
from tests.derive.building import spec_of, text_of

WARM_UP = 2  # rounds that do not count
REPEAT = 2  # calls in a row


def declared(op: Op, **options: object) -> OpSpec:
    """The op as a user declares it."""
    return spec_of(op.inputs, op.name, forward=op.forward, **options)


def loaded(text: str, name: str) -> dict[str, Any]:
    """What a module of that text defines."""
    module = ModuleType(name)
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)  # noqa: S102
    return module.__dict__


def generated(op: Op, policy: str) -> Call:
    """The wrapper of the generated Function."""
    text = text_of(declared(op, derive=True, save_policy=policy))
    function: Call = loaded(text, op.name)[op.name]
    return function


def plain_text(op: Op) -> str:
    """The forward as a plain function."""
    spec = declared(op, derive=False)
    derivation = derive(spec)
    assert derivation.forward is not None
    lines = emit_lines(derivation.forward)
    lines.append(f"return {emit(derivation.results[0])}")
    names = ", ".join(item.name for item in spec.inputs)
    body = "\n".join(f"    {line}" for line in lines)
    header = "import math\nimport torch\nimport torch.nn.functional as F\n"
    return f"{header}def {op.name}({names}):\n{body}\n"


def plain(op: Op) -> Call:
    """That function, for autograd to differentiate."""
    function: Call = loaded(plain_text(op), op.name)[op.name]
    return function


def prepared(op: Op) -> tuple[Args, dict[str, Tensor]]:
    """Arguments, and by name those among them that want a gradient."""
    torch.manual_seed(0)
    arguments = op.arguments()
    spec = declared(op)
    wanted = {item.name for item in spec.differentiable}
    pairs = zip(spec.inputs, arguments, strict=True)
    return arguments, {
        item.name: value.requires_grad_()
        for item, value in pairs
        if item.name in wanted
    }


def stepped(function: Call, arguments: Args, leaves: Sequence[Tensor]) -> Step:
    """Forward and backward of a function."""
    return lambda grad: torch.autograd.grad(function(*arguments), leaves, grad)


def timed(
    steps: Mapping[str, Step], grad: Tensor, rounds: int
) -> tuple[dict[str, float], float]:
    """Each one's time over that of eager, and eager's in milliseconds; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + WARM_UP):
        for name, step in steps.items():
            begin = time.process_time()
            for _ in range(REPEAT):
                step(grad)
            seconds[name].append(time.process_time() - begin)
    base = seconds["eager"][WARM_UP:]
    ratios = {
        name: median(
            own / other for own, other in zip(values[WARM_UP:], base, strict=True)
        )
        for name, values in seconds.items()
    }
    return ratios, min(base) / REPEAT * 1e3


def compiled(op: Op, arguments: Args, leaves: Sequence[Tensor]) -> Call | str:
    """What torch.compile makes of the forward; else why there is nothing, as without a C++ compiler."""
    function: Call = torch.compile(plain(op))
    try:
        value = function(*arguments)
        torch.autograd.grad(value, leaves, torch.randn_like(value))
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no figure
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return function


def measured(op: Op, rounds: int, with_compiled: bool) -> Row:
    """Bytes and times of an op."""
    policies = {policy: generated(op, policy) for policy in POLICIES}
    functions = {"eager": plain(op), **policies}
    arguments, named = prepared(op)
    leaves = list(named.values())
    _compare(op, functions, arguments, leaves)
    refused: dict[str, str] = {}
    if with_compiled:
        found = compiled(op, arguments, leaves)
        if isinstance(found, str):
            refused[COMPILED] = found
        else:
            functions[COMPILED] = found
    steps = {
        name: stepped(function, arguments, leaves)
        for name, function in functions.items()
    }
    if is_there():
        step = rival(plain_text(op), op.name, arguments, leaves, steps["eager"])
        if isinstance(step, str):
            refused[RIVAL] = step
        else:
            steps[RIVAL] = step
    grad = torch.randn_like(functions["eager"](*arguments))
    times, milliseconds = timed(steps, grad, rounds)
    saved = {name: saved_bytes(call, arguments) for name, call in functions.items()}
    return Row(
        op.name,
        milliseconds,
        saved["eager"] / 1024,
        times,
        {name: value / max(1, saved["eager"]) for name, value in saved.items()},
        tuple(frozen_one_by_one(op, policies, arguments, named)),
        refused,
    )


def _compare(
    op: Op, functions: Mapping[str, Call], arguments: Args, leaves: Sequence[Tensor]
) -> None:
    """A figure of a wrong gradient means nothing."""
    value = functions["eager"](*arguments)
    grad = torch.randn_like(value)
    right = torch.autograd.grad(value, leaves, grad)
    for policy in POLICIES:
        own = torch.autograd.grad(functions[policy](*arguments), leaves, grad)
        for found, expected in zip(own, right, strict=True):
            # in single precision sums of large products differ by their order
            noise = max(1e-4, 1e-5 * expected.abs().max().item())
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=noise)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", help="names of ops; all of them if none")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = [op for op in OPS if not options.ops or op.name in options.ops]
    names = [*POLICIES]
    names += [] if options.no_compile else [COMPILED]
    names += [RIVAL] if is_there() else []
    print("CPU time and bytes over those of eager autograd")
    print(line("", "eager: ms, KiB", [f"{name:13s}" for name in names]))
    rows = []
    for op in chosen:
        row = measured(op, options.rounds, not options.no_compile)
        print(row_line(row, names), flush=True)
        rows.append(row)
    print(*mean_lines(rows, names), sep="\n")
    print(*frozen_table(rows), sep="\n")
    derivations = [reported(policy, derivation_times(policy, 3)) for policy in POLICIES]
    print("", *derivations, *notes(rows, is_there()), sep="\n")
    for item in missed(rows):
        print(f"missed: {item}")
    return 1 if missed(rows) or any("missed" in item for item in derivations) else 0


if __name__ == "__main__":
    sys.exit(main())
