"""Train a small transformer of generated ops beside the same one of PyTorch's own.

In: `python -m tests.executed.transformer SETTING OPS [RANK OF STORE]`: a name of `SETTINGS`, a directory with the files of `OPS`, and
for two processes which one this is, how many there are, and the file that they meet at. Out: JSON with the losses, the time of a step in
seconds and the bytes that are saved for backward, of either model. Invariant: both start from the same weights and see the same tokens.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

STEPS = 50
BATCH, LENGTH, TOKENS = 8, 16, 64
WIDTH, HEADS, HIDDEN, DEPTH = 32, 4, 64, 2

OPS: dict[str, tuple[str, str]] = {
    "linear": ("input[*batch, I], weight[O, I]", "input @ weight.t()"),
    "rms_norm": (
        "x[..., D], weight[D], eps: float = 1e-6",
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight",
    ),
    "rotary": (
        "x[*batch, S, D], cos[S, D; const], sin[S, D; const]",
        "a, b = x.chunk(2, dim=-1)\nreturn x * cos + torch.cat((-b, a), dim=-1) * sin",
    ),
    "attention": (
        "q[*batch, S, D], k[*batch, S, D], v[*batch, S, D], mask[S, S; bool]",
        "torch.softmax((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(mask, -math.inf), dim=-1) @ v",
    ),
    "swiglu": (
        "x[*batch, D], gate[H, D], up[H, D], down[D, H]",
        "(F.silu(x @ gate.t()) * (x @ up.t())) @ down.t()",
    ),
    "cross_entropy": ("x[N, C], target[N; index(C)]", "F.cross_entropy(x, target)"),
}


class Native:
    """The same ops, PyTorch's own."""

    @staticmethod
    def linear(input: Tensor, weight: Tensor) -> Tensor:
        return F.linear(input, weight)

    @staticmethod
    def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)

    @staticmethod
    def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    @staticmethod
    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, ~mask)

    @staticmethod
    def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    @staticmethod
    def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(x, target)


class Generated:
    """The ops of the files in a directory."""

    def __init__(self, directory: Path) -> None:
        sys.path.insert(0, str(directory))  # Dynamo imports what it traces
        for name in OPS:
            setattr(self, name, getattr(importlib.import_module(name), name))


class Block(nn.Module):
    cos: Tensor
    sin: Tensor
    mask: Tensor

    def __init__(self, ops: Any) -> None:
        super().__init__()
        self.ops = ops
        for name, shape in {
            "query": (WIDTH, WIDTH),
            "key": (WIDTH, WIDTH),
            "value": (WIDTH, WIDTH),
            "out": (WIDTH, WIDTH),
            "gate": (HIDDEN, WIDTH),
            "up": (HIDDEN, WIDTH),
            "down": (WIDTH, HIDDEN),
        }.items():
            setattr(self, name, nn.Parameter(torch.randn(shape) / shape[1] ** 0.5))
        self.before = nn.Parameter(torch.ones(WIDTH))
        self.between = nn.Parameter(torch.ones(WIDTH))
        size = WIDTH // HEADS
        angle = torch.arange(LENGTH)[:, None] / 100 ** (
            torch.arange(size // 2) * 2 / size
        )
        self.register_buffer("cos", torch.cat((angle, angle), dim=-1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), dim=-1).sin())
        causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        self.register_buffer("mask", causal)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.ops.rms_norm(x, self.before)
        q = self.ops.rotary(self.heads(normed, self.query), self.cos, self.sin)
        k = self.ops.rotary(self.heads(normed, self.key), self.cos, self.sin)
        mixed = self.ops.attention(q, k, self.heads(normed, self.value), self.mask)
        joined = mixed.transpose(1, 2).flatten(-2)
        x = x + self.ops.linear(joined, self.out)
        normed = self.ops.rms_norm(x, self.between)
        x = x + self.ops.swiglu(normed, self.gate, self.up, self.down)
        return x

    def heads(self, x: Tensor, weight: Any) -> Tensor:
        split: Tensor = self.ops.linear(x, weight)
        return split.view(*split.shape[:-1], HEADS, -1).transpose(1, 2)


class Transformer(nn.Module):
    def __init__(self, ops: Any, again: bool) -> None:
        super().__init__()
        self.ops, self.again = ops, again
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block(ops) for _ in range(DEPTH))
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.head = nn.Parameter(torch.randn(TOKENS, WIDTH) / WIDTH**0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        logits = self.ops.linear(self.ops.rms_norm(x, self.norm), self.head)
        loss: Tensor = self.ops.cross_entropy(
            logits.flatten(0, 1), tokens[:, 1:].flatten()
        )
        return loss


class Setting(NamedTuple):
    """How the models are trained."""

    autocast: bool = False
    checkpointed: bool = False
    backend: str = ""
    processes: int = 1
    shard: bool = False


SETTINGS = {
    "float32": Setting(),
    "autocast": Setting(autocast=True),
    "checkpoint": Setting(checkpointed=True),
    "aot_eager": Setting(backend="aot_eager"),
    "inductor": Setting(backend="inductor"),
    "inductor, autocast, checkpoint": Setting(True, True, "inductor"),
    "DDP": Setting(processes=2),
    "FSDP2": Setting(processes=2, shard=True),
}


class Trained(NamedTuple):
    """What became of a model."""

    losses: list[float]
    step: float
    saved: int


def batches() -> Iterator[Tensor]:
    """Tokens that a model can learn to predict: each is three more than the one before it, or one more."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        start = torch.randint(TOKENS, (BATCH, 1), generator=generator)
        stride = torch.randint(2, (BATCH, 1), generator=generator) * 2 + 1
        yield (start + stride * torch.arange(LENGTH + 1)) % TOKENS


def train(ops: Any, setting: Setting, rank: int = 0) -> Trained:
    """The losses of 50 steps, the median time of the last ten, and the bytes that a forward saves."""
    torch.manual_seed(0)
    model = distributed(Transformer(ops, setting.checkpointed), setting)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run: Callable[[Tensor], Tensor] = model
    if setting.backend:
        torch._dynamo.reset()
        run = torch.compile(model, fullgraph=True, backend=setting.backend)
    losses, times, saved = [], [], [0]
    for step, tokens in enumerate(batches()):
        begun = time.perf_counter()
        share = tokens.chunk(setting.processes)[rank]
        with region(setting), bytes_saved(saved) if step == 1 else nullcontext():
            loss = run(share)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(mean(loss.detach(), setting).item())
        times.append(time.perf_counter() - begun)
    return Trained(losses, sorted(times[-10:])[5], saved[0])


def region(setting: Setting) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16, enabled=setting.autocast)


@contextmanager
def bytes_saved(total: list[int]) -> Iterator[None]:
    seen: set[int] = set()

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total[0] += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def distributed(model: nn.Module, setting: Setting) -> nn.Module:
    if setting.processes == 1:
        return model
    if not setting.shard:
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    assert isinstance(model, Transformer)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def mean(loss: Tensor, setting: Setting) -> Tensor:
    if setting.processes > 1:
        torch.distributed.all_reduce(loss)
        loss = loss / setting.processes
    return loss


def main(name: str, directory: str, *place: str) -> None:
    torch.set_num_threads(1)
    setting = SETTINGS[name]
    rank = int(place[0]) if place else 0
    if place:
        meeting = f"file://{place[2]}"
        torch.distributed.init_process_group(
            "gloo", init_method=meeting, rank=rank, world_size=int(place[1])
        )
    trained = {
        "native": train(Native, setting, rank)._asdict(),
        "generated": train(Generated(Path(directory)), setting, rank)._asdict(),
    }
    if place:
        torch.distributed.barrier()  # none leaves while another is still in its last step
        torch.distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps(trained))


if __name__ == "__main__":
    main(*sys.argv[1:])
