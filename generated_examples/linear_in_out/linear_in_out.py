"""The custom operator linear_in_out."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class LinearInOutFunction(Function):
    """Forward and backward of :func:`linear_in_out`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        if x.ndim != 2:
            raise ValueError(f"x[N, in_features] has shape {[*x.shape]}, not 2-D")
        if weights.ndim != 2:
            raise ValueError(
                f"weights[in_features, out_features] has shape {[*weights.shape]}, "
                "not 2-D"
            )
        if bias.shape != (weights.shape[-1],):
            raise ValueError(
                f"bias[out_features] has shape {[*bias.shape]}, "
                f"not {[weights.shape[-1]]}"
            )
        return x @ weights + bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weights, _bias = inputs
        ctx.save_for_backward(
            x if ctx.needs_input_grad[1] else None,
            weights if ctx.needs_input_grad[0] else None,
        )
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            if grad_output.dtype.is_complex:
                raise TypeError("linear_in_out: x, weights and bias must be real")
            x, weights = ctx.saved_tensors
            grad_x = grad_weights = grad_bias = None
            if ctx.needs_input_grad[0]:
                grad_x = grad_output @ weights.t()
            if ctx.needs_input_grad[1]:
                grad_weights = x.t() @ grad_output
            if ctx.needs_input_grad[2]:
                grad_bias = grad_output.sum(0)
            return grad_x, grad_weights, grad_bias


def linear_in_out(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """Compute ``x @ weights + bias``.

    Args:
        x: Tensor of shape ``(N, in_features)``.
        weights: Tensor of shape ``(in_features, out_features)``.
        bias: Tensor of shape ``(out_features,)``.
    """
    return LinearInOutFunction.apply(x, weights, bias)


class LinearInOut(nn.Module):
    """:func:`linear_in_out` as a module that owns ``weights`` and ``bias``."""

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
        self.weights = nn.Parameter(
            torch.empty(in_features, out_features, device=device, dtype=dtype)
        )
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weights)
        nn.init.normal_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return linear_in_out(x, self.weights, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"
