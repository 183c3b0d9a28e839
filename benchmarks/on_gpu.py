"""Test and time the fused kernels on a GPU.

In: `python -m benchmarks.on_gpu [NAME ...] [--device cuda] [--rows N] [--columns N]`, in an environment with torch and triton: the
ops of tests/kernels that are named, else all. Out: the tests of `generated_examples/fused_*` on that device, then a table in Markdown:
the time of forward and backward in milliseconds, of the kernels, of plain PyTorch, of `torch.compile`, and of Liger-Kernel where it is
installed and has the op. Takes some ten minutes; exit 1 if a test fails or a gradient is wrong.
"""

import argparse
import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.render.files import drafts
from scaffold.render.layout import Directories
from scaffold.spec import OpSpec
from tests.derive.building import reference
from tests.kernels.ops import OPS, FusedOp

ROOT = Path(__file__).parent.parent
ROUNDS, WARM = 30, 5
LIGER = {
    "swiglu": ("liger_kernel.ops.swiglu", "LigerSiLUMulFunction"),
    "geglu": ("liger_kernel.ops.geglu", "LigerGELUMulFunction"),
    "softmax": ("liger_kernel.ops.softmax", "LigerSoftmaxFunction"),
}
ALLOWED = 1.5  # of PyTorch's own error, against float64


def main(words: Sequence[str] | None = None) -> int:
    """Run the tests, then measure each op."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(OPS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--no-tests", action="store_true")
    asked = parser.parse_args(words)
    failed = not asked.no_tests and tests_fail(asked.device)
    dtype = getattr(torch, asked.dtype)
    print("| op | kernels, ms | eager | torch.compile | Liger | error / PyTorch's |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        sys.path.insert(0, directory)
        for name in asked.names or OPS:
            op = OPS[name]
            kernels = written(op.spec(name), Path(directory))
            inputs = made(op, (asked.rows,), asked.columns, asked.device, dtype)
            row, worse = measured(name, op, kernels, inputs)
            print(row, flush=True)
            failed |= worse
    return int(failed)


def tests_fail(device: str) -> bool:
    """Run the generated tests of the examples; return whether one fails."""
    failed = False
    for directory in sorted((ROOT / "generated_examples").glob("fused_*")):
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--device", device],
            cwd=directory,
            check=False,
        )
        failed |= run.returncode != 0
    return failed


def written(spec: OpSpec, directory: Path) -> Callable[..., Any]:
    """Write the files of an op; return its wrapper."""
    for path, text in drafts(spec, derive(spec), Directories()).items():
        (directory / path).write_text(text)
    wrapper: Callable[..., Any] = vars(importlib.import_module(spec.name))[spec.name]
    return wrapper


def made(
    op: FusedOp, lead: tuple[int, ...], columns: int, device: str, dtype: torch.dtype
) -> tuple[Any, ...]:
    """Return arguments on the device; real ones need gradients."""
    torch.manual_seed(0)
    found = []
    for value in op.make(lead, columns):
        if isinstance(value, Tensor) and value.is_floating_point():
            value = value.to(device, dtype).requires_grad_()
        elif isinstance(value, Tensor):
            value = value.to(device)
        found.append(value)
    return tuple(found)


def measured(
    name: str, op: FusedOp, kernels: Callable[..., Any], inputs: tuple[Any, ...]
) -> tuple[str, bool]:
    """Return the row of an op, and whether its gradients are worse than allowed."""
    plain = reference([item.name for item in op.spec(name).inputs], op.forward)
    rivals = {"kernels": kernels, "eager": plain, "compiled": torch.compile(plain)}
    times = {key: milliseconds(rival, inputs) for key, rival in rivals.items()}
    liger = liger_time(name, inputs)
    worst = error_over(kernels, plain, inputs)
    cells = [f"{times[key]:.3f}" for key in rivals]
    cells += ["" if liger is None else f"{liger:.3f}", f"{worst:.2f}"]
    return f"| {name} | {' | '.join(cells)} |", worst > ALLOWED


def liger_time(name: str, inputs: tuple[Any, ...]) -> float | None:
    """Return the time of Liger-Kernel's op, if it has one that takes these arguments."""
    if name not in LIGER:
        return None
    module, function = LIGER[name]
    try:
        rival = vars(importlib.import_module(module))[function].apply
    except ImportError:
        return None
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    return milliseconds(rival, tuple(tensors)) if len(tensors) == len(inputs) else None


def milliseconds(function: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    """Return the median time of forward and backward."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    grad = torch.ones_like(function(*inputs))
    times = []
    for at in range(WARM + ROUNDS):
        settle(grad)
        start = time.perf_counter()
        torch.autograd.grad(function(*inputs), needed, grad)
        settle(grad)
        if at >= WARM:
            times.append(time.perf_counter() - start)
    return 1e3 * median(times)


def settle(tensor: Tensor) -> None:
    """Wait for the device."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def error_over(
    ours: Callable[..., Any], plain: Callable[..., Any], inputs: tuple[Any, ...]
) -> float:
    """Return the largest error of a gradient against float64, over that of PyTorch in the same dtype."""
    precise = tuple(
        (
            x.detach().double().requires_grad_()
            if isinstance(x, Tensor) and x.requires_grad
            else x
        )
        for x in inputs
    )
    exact, own, theirs = (
        gradients(function, given)
        for function, given in ((plain, precise), (ours, inputs), (plain, inputs))
    )
    ratios = []
    for wanted, found, usual in zip(exact, own, theirs, strict=True):
        scale = torch.finfo(found.dtype).eps * wanted.abs().max()
        error = (found - wanted).abs().max()
        ratios.append(float(error / torch.maximum((usual - wanted).abs().max(), scale)))
    return max(ratios)


def gradients(
    function: Callable[..., Any], inputs: tuple[Any, ...]
) -> tuple[Tensor, ...]:
    """Return the gradients of a call, for a gradient of its output that is the same for all."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    output = function(*inputs)
    steps = torch.arange(output.numel(), device=output.device).reshape(output.shape)
    return torch.autograd.grad(output, needed, torch.sin(steps.double()).to(output))


if __name__ == "__main__":
    sys.exit(main())
