"""The custom operator fused_rms_norm."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_rms_norm_triton
except (ImportError, AttributeError) as error:
    fused_rms_norm_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_rms_norm runs without its kernels: {error}", stacklevel=2)


class FusedRMSNormFunction(Function):
    """Forward and backward of :func:`fused_rms_norm`.

    Forward also returns what is saved for backward.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        if weight.shape != (x.shape[-1],):
            raise ValueError(
                f"weight[D] has shape {[*weight.shape]}, not {[x.shape[-1]]}"
            )
        if fused_rms_norm_triton is not None and fused_rms_norm_triton.takes(x, weight):
            return fused_rms_norm_triton.forward(x, weight, eps)
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        # No rstd: backward computes it again.
        return x * rstd * weight, x.new_empty(0)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        x, weight, eps = inputs
        _output, rstd = outputs
        ctx.mark_non_differentiable(rstd)
        ctx.in_kernels = rstd.numel() > 0
        ctx.save_for_backward(x, weight, rstd if ctx.in_kernels else None)
        ctx.eps = eps
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor, _grad_rstd: Tensor
    ) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            if grad_output.dtype.is_complex:
                raise TypeError("fused_rms_norm: x and weight must be real")
            x, weight, saved_rstd = ctx.saved_tensors
            if ctx.in_kernels and not torch.is_grad_enabled():
                grad_x, grad_weight = fused_rms_norm_triton.fused_rms_norm_backward(
                    grad_output,
                    x,
                    weight,
                    saved_rstd,
                    ctx.needs_input_grad[0],
                    ctx.needs_input_grad[1],
                )
                return (
                    grad_x if ctx.needs_input_grad[0] else None,
                    grad_weight if ctx.needs_input_grad[1] else None,
                    None,
                )
            grad_x = grad_weight = None
            rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + ctx.eps)
            x_hat = x * rstd
            if ctx.needs_input_grad[0]:
                grad_x_hat = grad_output * weight
                inner = (grad_x_hat * x_hat).mean(-1, keepdim=True)
                grad_x = rstd * (grad_x_hat - inner * x_hat)
            if ctx.needs_input_grad[1]:
                grad_weight = (grad_output * x_hat).sum_to_size(weight.shape)
            return grad_x, grad_weight, None


def fused_rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Divide each row by its root mean square, and scale it.

    Computes::

        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        return x * rstd * weight

    Args:
        x: Tensor of shape ``(..., D)``.
        weight: Tensor of shape ``(D,)``.
        eps: Float.
    """
    output, _rstd = FusedRMSNormFunction.apply(x, weight, eps)
    return output


class FusedRMSNorm(nn.Module):
    """:func:`fused_rms_norm` as a module that owns ``weight``."""

    def __init__(
        self,
        D: int,
        eps: float = 1e-6,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.D = D
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(D, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return fused_rms_norm(x, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"D={self.D}, eps={self.eps}"
