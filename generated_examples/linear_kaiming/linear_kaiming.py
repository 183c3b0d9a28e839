"""The custom operator linear_kaiming."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class LinearKaimingFunction(Function):
    """Forward and backward of :func:`linear_kaiming`."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if input.ndim != 2:
            raise ValueError(
                f"input[N, in_features] has shape {[*input.shape]}, not 2-D"
            )
        if bias is not None and bias.shape != (weight.shape[0],):
            raise ValueError(
                f"bias[out_features] has shape {[*bias.shape]}, not {[weight.shape[0]]}"
            )
        output = input @ weight.t()
        if bias is not None:
            output = output + bias
        ctx.save_for_backward(
            input if ctx.needs_input_grad[1] else None,
            weight if ctx.needs_input_grad[0] else None,
        )
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if input.is_meta else input.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            if grad_output.dtype.is_complex:
                raise TypeError("linear_kaiming: input, weight and bias must be real")
            input, weight = ctx.saved_tensors
            grad_input = grad_weight = grad_bias = None
            if ctx.needs_input_grad[0]:
                grad_input = grad_output @ weight
            if ctx.needs_input_grad[1]:
                grad_weight = grad_output.t() @ input
            if ctx.needs_input_grad[2]:
                grad_bias = grad_output.sum(0)
            return grad_input, grad_weight, grad_bias


def linear_kaiming(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``input @ weight.t() + bias``.

    Once differentiable: the gradient must not be part of a loss, since autograd may
    drop the second derivative without an error.

    Args:
        input: Tensor of shape ``(N, in_features)``.
        weight: Tensor of shape ``(out_features, in_features)``.
        bias: Tensor of shape ``(out_features,)``, or None.
    """
    return LinearKaimingFunction.apply(input, weight, bias)


class LinearKaiming(nn.Module):
    """:func:`linear_kaiming` as a module that owns ``weight`` and ``bias``."""

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
        return linear_kaiming(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
