"""What a derived op saves beside PyTorch's own op, with its inputs frozen one at a time.

In: an op, its functions by policy, arguments. Out: the bytes of each as a `Frozen`. Invariant: a storage counts once, however many
tensors show it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.derive_ops import Args, Op

Call = Callable[..., Tensor]
ROUNDING = 1.01  # a number for each row is no more


class Frozen(NamedTuple):
    """The bytes that wait for the backward where one input wants no gradient."""

    name: str
    native: int
    saved: Mapping[str, int]  # by policy

    @property
    def missed(self) -> tuple[str, ...]:
        """The policies that save more than the native op."""
        most = self.native * ROUNDING
        return tuple(policy for policy, own in self.saved.items() if own > most)


def saved_bytes(function: Call, arguments: Args) -> int:
    """The bytes of all storages that wait for the backward, each once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = function(*arguments)  # alive, or two storages may have one address
    del kept
    return sum(storages.values())


def frozen_one_by_one(
    op: Op,
    functions: Mapping[str, Call],
    arguments: Args,
    leaves: Mapping[str, Tensor],
) -> Iterator[Frozen]:
    """The bytes without each of several inputs in turn, where there is a native op."""
    if op.native is None or len(leaves) == 1:
        return
    for name, leaf in leaves.items():
        leaf.requires_grad_(False)
        native = saved_bytes(op.native, arguments)
        saved = {
            policy: saved_bytes(call, arguments) for policy, call in functions.items()
        }
        leaf.requires_grad_(True)
        yield Frozen(name, native, saved)


def frozen_lines(op: str, cases: Sequence[Frozen]) -> Iterator[str]:
    """A line for each input: bytes over the native op's."""
    for case in cases:
        cells = " ".join(
            f"{_ratio(own, case.native):>9s}" for own in case.saved.values()
        )
        yield f"{op:18s} {case.name:10s} {case.native / 1024:9.0f} {cells}"


def _ratio(own: int, native: int) -> str:
    return f"{own / native:.2f}" if native else f"{own} B"
