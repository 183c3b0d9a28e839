"""The custom operator linear_library."""

import math
from typing import Any

import torch
from torch import Tensor, nn


def _forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is not None and bias.shape != (weight.shape[0],):
        raise ValueError(
            f"bias[out_features] has shape {[*bias.shape]}, not {[weight.shape[0]]}"
        )
    output = input @ weight.t()
    if bias is not None:
        output = output + bias
    return output


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, weight, bias = inputs
    ctx.save_for_backward(
        input if ctx.needs_input_grad[1] else None,
        weight if ctx.needs_input_grad[0] else None,
    )
    ctx.bias_shape = bias.shape if bias is not None else None


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    if grad_output.dtype.is_complex:
        raise TypeError("linear_library: input, weight and bias must be real")
    input, weight = ctx.saved_tensors
    grad_input = grad_weight = grad_bias = None
    if ctx.needs_input_grad[0]:
        grad_input = grad_output @ weight
    if ctx.needs_input_grad[1]:
        leading = list(range(grad_output.ndim - 1))
        grad_weight = torch.tensordot(grad_output, input, dims=(leading, leading))
    if ctx.needs_input_grad[2]:
        grad_bias = grad_output.sum_to_size(ctx.bias_shape)
    return grad_input, grad_weight, grad_bias


def _vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
    """Call the op for each sample of a batch."""
    samples = [
        [
            x if dim is None else x.select(dim, i)
            for x, dim in zip(inputs, in_dims, strict=True)
        ]
        for i in range(info.batch_size)
    ]
    return torch.stack([linear_library_op(*sample) for sample in samples]), 0


linear_library_op = torch.library.custom_op(
    "custom_ops::linear_library", _forward, mutates_args=()
)
linear_library_op.register_fake(_forward)
linear_library_op.register_autograd(_backward, setup_context=_setup_context)
linear_library_op.register_vmap(_vmap)


def linear_library(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``input @ weight.t() + bias``.

    Args:
        input: Tensor of shape ``(..., in_features)``.
        weight: Tensor of shape ``(out_features, in_features)``.
        bias: Tensor of shape ``(out_features,)``, or None.
    """
    device = input.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        # A compiler runs it outside of autocast, so the op computes in float32.
        low = (torch.float16, torch.bfloat16)
        input = input.float() if input.dtype in low else input
        weight = weight.float() if weight.dtype in low else weight
        if bias is not None and bias.dtype in low:
            bias = bias.float()
        with torch.autocast(device, enabled=False):
            return linear_library_op(input, weight, bias)
    return linear_library_op(input, weight, bias)


class LinearLibrary(nn.Module):
    """:func:`linear_library` as a module that owns ``weight`` and ``bias``."""

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
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
        if bias:
            self.bias = nn.Parameter(
                torch.empty(out_features, device=device, dtype=dtype)
            )
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return linear_library(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
