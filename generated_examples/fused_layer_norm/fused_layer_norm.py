"""The custom operator fused_layer_norm."""

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_layer_norm_triton
except (ImportError, AttributeError) as error:
    fused_layer_norm_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_layer_norm runs without its kernels: {error}", stacklevel=2)


class FusedLayerNormFunction(Function):
    """Forward and backward of :func:`fused_layer_norm`.

    Forward also returns what is saved for backward.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        if weight.shape != (x.shape[-1],):
            raise ValueError(
                f"weight[D] has shape {[*weight.shape]}, not {[x.shape[-1]]}"
            )
        if bias.shape != weight.shape:
            raise ValueError(
                f"bias[D] has shape {[*bias.shape]}, not {[*weight.shape]}"
            )
        if fused_layer_norm_triton is not None and fused_layer_norm_triton.takes(
            x, weight, bias
        ):
            return fused_layer_norm_triton.forward(x, weight, bias, eps)
        # No mean and no rstd: backward computes them again.
        return (
            F.layer_norm(x, x.shape[-1:], weight, bias, eps),
            x.new_empty(0),
            x.new_empty(0),
        )

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        x, weight, bias, eps = inputs
        _output, mean, rstd = outputs
        ctx.mark_non_differentiable(mean, rstd)
        ctx.in_kernels = mean.numel() > 0
        ctx.save_for_backward(
            x,
            weight,
            mean if ctx.in_kernels else None,
            rstd if ctx.in_kernels else None,
        )
        ctx.eps = eps
        ctx.bias_dtype = bias.dtype
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor, _grad_mean: Tensor, _grad_rstd: Tensor
    ) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            x, weight, mean, saved_rstd = ctx.saved_tensors
            if ctx.in_kernels and not torch.is_grad_enabled():
                grad_x, grad_weight, grad_bias = (
                    fused_layer_norm_triton.fused_layer_norm_backward(
                        grad_output,
                        x,
                        weight,
                        mean,
                        saved_rstd,
                        ctx.bias_dtype,
                        ctx.needs_input_grad[0],
                        ctx.needs_input_grad[1],
                        ctx.needs_input_grad[2],
                    )
                )
                return (
                    grad_x if ctx.needs_input_grad[0] else None,
                    grad_weight if ctx.needs_input_grad[1] else None,
                    grad_bias if ctx.needs_input_grad[2] else None,
                    None,
                )
            grad_x = grad_weight = grad_bias = None
            if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
                rstd = torch.rsqrt(
                    torch.var(x, -1, correction=0, keepdim=True) + ctx.eps
                )
                diff = x - x.mean(-1, keepdim=True)
                x_hat = diff * rstd
            if ctx.needs_input_grad[0]:
                scaled_grad = grad_output * weight
                mean_grad = scaled_grad.mean(-1, keepdim=True)
                inner = (scaled_grad * diff).mean(-1, keepdim=True)
                grad_x = rstd * (scaled_grad - mean_grad - rstd * inner * x_hat)
            if ctx.needs_input_grad[1]:
                grad_weight = (grad_output * x_hat).sum_to_size(weight.shape)
            if ctx.needs_input_grad[2]:
                grad_bias = grad_output.sum_to_size(weight.shape)
            return grad_x, grad_weight, grad_bias, None


def fused_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Compute ``F.layer_norm(x, x.shape[-1:], weight, bias, eps)``.

    Args:
        x: Tensor of shape ``(..., D)``.
        weight: Tensor of shape ``(D,)``.
        bias: Tensor of shape ``(D,)``.
        eps: Float.
    """
    output, _mean, _rstd = FusedLayerNormFunction.apply(x, weight, bias, eps)
    return output


class FusedLayerNorm(nn.Module):
    """:func:`fused_layer_norm` as a module that owns ``weight`` and ``bias``."""

    def __init__(
        self,
        D: int,
        eps: float = 1e-5,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.D = D
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(D, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(D, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return fused_layer_norm(x, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"D={self.D}, eps={self.eps}"
