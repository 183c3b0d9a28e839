"""The custom operator linear_sharded."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding


def _forward(input: Tensor, weight: Tensor) -> Tensor:
    return input @ weight.t()


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, weight = inputs
    ctx.save_for_backward(
        input if ctx.needs_input_grad[1] else None,
        weight if ctx.needs_input_grad[0] else None,
    )


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    if grad_output.dtype.is_complex:
        raise TypeError("linear_sharded: input and weight must be real")
    input, weight = ctx.saved_tensors
    grad_input = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_input = grad_output @ weight
    if ctx.needs_input_grad[1]:
        leading = list(range(grad_output.ndim - 1))
        grad_weight = torch.tensordot(grad_output, input, dims=(leading, leading))
    return grad_input, grad_weight


def _vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
    """Call the op for each sample of a batch."""
    samples = [
        [
            x if dim is None else x.select(dim, i)
            for x, dim in zip(inputs, in_dims, strict=True)
        ]
        for i in range(info.batch_size)
    ]
    return torch.stack([linear_sharded_op(*sample) for sample in samples]), 0


linear_sharded_op = torch.library.custom_op(
    "custom_ops::linear_sharded", _forward, mutates_args=()
)
linear_sharded_op.register_fake(_forward)
linear_sharded_op.register_autograd(_backward, setup_context=_setup_context)
linear_sharded_op.register_vmap(_vmap)


def _sharding(input: Any, _weight: Any) -> list[Any]:
    """Where DTensor may split it: ``...k, nk -> ...n``."""
    leading = input.ndim - 1
    return [
        ([Replicate()], [Replicate(), Replicate()]),
        *(([Shard(dim)], [Shard(dim), Replicate()]) for dim in range(leading)),
        ([Partial()], [Shard(leading), Shard(1)]),
        ([Shard(leading)], [Replicate(), Shard(0)]),
    ]


register_sharding(torch.ops.custom_ops.linear_sharded.default)(_sharding)


def linear_sharded(input: Tensor, weight: Tensor) -> Tensor:
    """Compute ``input @ weight.t()``.

    Args:
        input: Tensor of shape ``(..., in_features)``.
        weight: Tensor of shape ``(out_features, in_features)``.
    """
    device = input.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        # A compiler runs it outside of autocast, so the op computes in float32.
        low = (torch.float16, torch.bfloat16)
        input = input.float() if input.dtype in low else input
        weight = weight.float() if weight.dtype in low else weight
        with torch.autocast(device, enabled=False):
            return linear_sharded_op(input, weight)
    return linear_sharded_op(input, weight)


class LinearSharded(nn.Module):
    """:func:`linear_sharded` as a module that owns ``weight``."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(
            torch.empty(out_features, in_features, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, input: Tensor) -> Tensor:
        return linear_sharded(input, self.weight)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"
