"""Every spelling in Triton's interpreter, against PyTorch; run in a process of its own.

In: a directory with the modules of the ops. Out: a line of JSON for each op: how many numbers were compared, and what went wrong.
"""

import importlib
import json
import math
import sys
import warnings
from typing import Any

import torch
from torch import Tensor

from scaffold.spec import OpSpec
from tests.kernels.spellings import TABLE, parameter_of, spelled_ops

EDGES = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, math.inf, -math.inf, math.nan, 1e-30, 88.0)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-6}


def main() -> None:
    """Ask every op."""
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    sys.path.insert(0, sys.argv[1])
    for name, spec in spelled_ops().items():
        module = importlib.import_module(name)
        kernels = vars(module)[f"{name}_triton"]
        told: dict[str, Any] = {"name": name, "count": 0, "wrong": []}
        for dtype, allowed in TOLERANCE.items():
            inputs = drawn(spec, name, dtype)
            assert not kernels.why_not(*inputs)
            ours = kernels.forward(*inputs)
            setattr(module, f"{name}_triton", None)
            plain = vars(module)[name](*inputs)
            doubled = (x.double() if x.dtype == dtype else x for x in inputs)
            precise = vars(module)[name](*doubled).to(dtype)
            setattr(module, f"{name}_triton", kernels)
            scale = plain.abs().clamp(min=1)
            same = (ours == plain) | ours.isnan() & plain.isnan()
            same |= ours == precise  # PyTorch's vectors have NaN for gelu(inf)
            off = ((ours - plain).abs() / scale).where(~same, 0)
            told["count"] += ours.numel()
            bad = ~(off <= allowed)
            if bad.any():
                first = [x[bad][0].item() for x in (*inputs, ours, plain)]
                told["wrong"].append(
                    f"{dtype}: {first[:-2]} gives {first[-2]}, not {first[-1]}"
                )
        print(json.dumps(told), flush=True)


def drawn(spec: OpSpec, name: str, dtype: torch.dtype) -> list[Tensor]:
    """Inputs of one shape: random numbers, then every pair of edges."""
    rule = TABLE.rule(name.removeprefix("of_").rpartition("_")[0])
    torch.manual_seed(0)
    grid = torch.cartesian_prod(torch.tensor(EDGES), torch.tensor(EDGES)).T
    found = []
    for at, item in enumerate(spec.tensors):
        value = torch.cat([3 * torch.randn(200), grid[at % 2]]).to(dtype)
        domain = rule.domain.get(parameter_of(item.name))
        if domain == "positive":
            value = value.abs()
        found.append(value > 0.3 if domain == "bool" else value)
    return found


if __name__ == "__main__":
    main()
