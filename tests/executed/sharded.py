"""One of two processes that run ops in library style on tensors that are split over both.

In: the directory of the ops, the rank, a file where the processes meet. Out: a line of JSON: op -> how far its output and each of its
gradients are from those of the same call on whole tensors, for the worst way to split the inputs. Invariant: every placement of every
input is tried, also those that no rule has, which DTensor makes another of first.
"""

import copy
import importlib
import itertools
import json
import os
import sys
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)

OPS: dict[str, tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]] = {
    "matmul": (
        ("--inputs", "x[M, K], w[N, K]", "--forward", "x @ w.t()")
        + ("--sharding", "mk, nk -> mn"),
        ((4, 6), (8, 6)),
    ),
    "linear": (
        ("--inputs", "input[..., K], weight[N, K], bias[N]?")
        + ("--forward", "input @ weight.t() + bias")
        + ("--sharding", "..._, n_, n -> ...n"),
        ((2, 4, 6), (8, 6), (8,)),
    ),
    "rms_norm": (
        ("--inputs", "x[..., D], w[D], eps: float = 1e-6")
        + ("--forward", "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w")
        + ("--save-policy", "balanced", "--sharding", "..._, _ -> ..._, ..._, ..._"),
        ((2, 4, 6), (6,)),
    ),
    "kernels": (
        ("--inputs", "x[..., D], w[D]", "--outputs", "y[..., D], rstd[..., 1; const]")
        + ("--import", "norm_kernels:norm, norm_backward")
        + ("--forward", "return norm(x, w)")
        + ("--backward", "grad_x, grad_w = norm_backward(grad_y, x, w, rstd)")
        + ("--sharding", "..._, _ -> ..._, ..._"),
        ((2, 4, 6), (6,)),
    ),
    "gate": (
        ("--inputs", "x, y", "--forward", "torch.sigmoid(x) * y")
        + ("--sharding", "..., ... -> ..."),
        ((4, 6), (4, 6)),
    ),
    "row_sums": (
        ("--inputs", "x[B, D], w[D]", "--outputs", "y[B, D], total[B]")
        + ("--forward", "y = x * w\nreturn y, y.sum(-1)")
        + ("--sharding", "bd, d -> bd, b"),
        ((4, 6), (6,)),
    ),
}


KERNELS = """
import torch


def norm(x, w):
    x, w = (torch.from_numpy(value.detach().numpy()) for value in (x, w))
    rstd = x.square().mean(-1, keepdim=True).rsqrt()
    return x * rstd * w, rstd


def norm_backward(grad, *saved):
    grad, x, w, rstd = (
        torch.from_numpy(value.detach().numpy()) for value in (grad, *saved)
    )
    normed, grad_normed = x * rstd, grad * w
    inner = (grad_normed * normed).mean(-1, keepdim=True)
    return (grad_normed - normed * inner) * rstd, (grad * normed).sum_to_size(w.shape)
"""


def distance(op: Any, inputs: list[Tensor], mesh: DeviceMesh, placed: Any) -> float:
    """How far outputs and gradients are from those of whole tensors."""
    whole = [x.clone().requires_grad_() for x in inputs]
    split = [
        distribute_tensor(x, mesh, [placement]).requires_grad_()
        for x, placement in zip(inputs, placed, strict=True)
    ]
    found = []
    for values in (whole, split):
        outputs = op(*values)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        differentiable = [y for y in outputs if y.requires_grad]
        torch.stack([y.square().sum() for y in differentiable]).sum().backward()  # type: ignore[no-untyped-call]
        found.append([*(y.detach() for y in outputs), *(x.grad for x in values)])
    return max(
        float((y.full_tensor() - x).abs().max())
        for x, y in zip(*found, strict=True)
        if isinstance(y, DTensor)
    )


def split_rows(_name: str, module: nn.Module, mesh: DeviceMesh) -> None:
    for key, parameter in module.named_parameters(recurse=False):
        split = nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)]))
        module.register_parameter(key, split)


def take_whole(_module: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
    return tuple(DTensor.from_local(x, mesh, [Replicate()]) for x in inputs)


def give_part(_module: nn.Module, output: Any, _mesh: DeviceMesh) -> Any:
    return output.to_local()


def column_parallel(build: Any, mesh: DeviceMesh) -> float:
    """How far a module of which each process has rows of the weight is from the whole one, as the page on library style has it."""
    whole = build(6, 8, dtype=torch.double)
    split = distribute_module(
        copy.deepcopy(whole), mesh, split_rows, take_whole, give_part
    )
    x = torch.randn(3, 6, dtype=torch.double)
    given, wanted = split(x), whole(x)
    given.square().sum().backward()
    wanted.square().sum().backward()
    found = [(given, wanted.chunk(2, -1)[mesh.get_rank()])]
    for key, parameter in split.named_parameters():
        assert isinstance(parameter.grad, DTensor)
        found.append((parameter.grad.full_tensor(), whole.get_parameter(key).grad))
    return max(float((x - y).detach().abs().max()) for x, y in found)


def main() -> None:
    directory, rank, store = sys.argv[1:]
    sys.path.insert(0, directory)
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=2
    )
    mesh = init_device_mesh("cpu", (2,))
    worst = {}
    for name, (_, shapes) in OPS.items():
        op = getattr(importlib.import_module(name), name)
        torch.manual_seed(0)
        inputs = [torch.randn(shape, dtype=torch.double) for shape in shapes]
        choices = [[Replicate(), *map(Shard, range(x.ndim))] for x in inputs]
        worst[name] = max(
            distance(op, inputs, mesh, placed) for placed in itertools.product(*choices)
        )
    worst["module"] = column_parallel(sys.modules["linear"].Linear, mesh)
    torch.distributed.destroy_process_group()
    print(json.dumps(worst))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
