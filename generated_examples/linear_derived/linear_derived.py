"""The custom operator linear_derived."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class LinearDerivedFunction(Function):
    """Forward and backward of :func:`linear_derived`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if bias is not None and bias.shape != (weight.shape[0],):
            raise ValueError(
                f"bias[out_features] has shape {[*bias.shape]}, not {[weight.shape[0]]}"
            )
        output = input @ weight.t()
        if bias is not None:
            output = output + bias
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, bias = inputs
        ctx.save_for_backward(
            input if ctx.needs_input_grad[1] else None,
            weight if ctx.needs_input_grad[0] else None,
        )
        ctx.bias_shape = bias.shape if bias is not None else None
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if input.is_meta else input.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            if grad_output.dtype.is_complex:
                raise TypeError("linear_derived: input, weight and bias must be real")
            input, weight = ctx.saved_tensors
            grad_input = grad_weight = grad_bias = None
            if ctx.needs_input_grad[0]:
                grad_input = grad_output @ weight
            if ctx.needs_input_grad[1]:
                leading = list(range(grad_output.ndim - 1))
                # autocast may leave these in different dtypes
                input_cast = input.to(grad_output.dtype)
                grad_weight = torch.tensordot(
                    grad_output, input_cast, dims=(leading, leading)
                )
            if ctx.needs_input_grad[2]:
                grad_bias = grad_output.sum_to_size(ctx.bias_shape)
            return grad_input, grad_weight, grad_bias


def linear_derived(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``input @ weight.t() + bias``.

    Args:
        input: Tensor of shape ``(..., in_features)``.
        weight: Tensor of shape ``(out_features, in_features)``.
        bias: Tensor of shape ``(out_features,)``, or None.
    """
    return LinearDerivedFunction.apply(input, weight, bias)


class LinearDerived(nn.Module):
    """:func:`linear_derived` as a module that owns ``weight`` and ``bias``."""

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
        return linear_derived(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
