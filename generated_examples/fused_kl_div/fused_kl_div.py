"""The custom operator fused_kl_div."""

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_kl_div_triton
except (ImportError, AttributeError) as error:
    fused_kl_div_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_kl_div runs without its kernels: {error}", stacklevel=2)


class FusedKlDivFunction(Function):
    """Forward and backward of :func:`fused_kl_div`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(log_q: Tensor, p: Tensor) -> Tensor:
        if p.shape != log_q.shape:
            raise ValueError(f"p[N, D] has shape {[*p.shape]}, not {[*log_q.shape]}")
        if fused_kl_div_triton is not None and fused_kl_div_triton.takes(log_q, p):
            return fused_kl_div_triton.forward(log_q, p)
        return F.kl_div(log_q, p, reduction="batchmean")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        log_q, p = inputs
        ctx.in_kernels = fused_kl_div_triton is not None and fused_kl_div_triton.takes(
            log_q, p
        )
        ctx.save_for_backward(log_q if ctx.needs_input_grad[1] else None, p)
        ctx.log_q_dtype = log_q.dtype
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if log_q.is_meta else log_q.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            log_q, p = ctx.saved_tensors
            if ctx.in_kernels and not torch.is_grad_enabled():
                grad_log_q, grad_p = fused_kl_div_triton.fused_kl_div_backward(
                    grad_output,
                    log_q,
                    p,
                    ctx.log_q_dtype,
                    ctx.needs_input_grad[0],
                    ctx.needs_input_grad[1],
                )
                return (
                    grad_log_q if ctx.needs_input_grad[0] else None,
                    grad_p if ctx.needs_input_grad[1] else None,
                )
            grad_log_q = grad_p = None
            scaled_grad = grad_output / p.shape[0]
            if ctx.needs_input_grad[0]:
                grad_log_q = -scaled_grad * p
            if ctx.needs_input_grad[1]:
                grad_p = scaled_grad * (torch.log(p) - log_q + 1)
            return grad_log_q, grad_p


def fused_kl_div(log_q: Tensor, p: Tensor) -> Tensor:
    """Compute ``F.kl_div(log_q, p, reduction='batchmean')``.

    Args:
        log_q: Tensor of shape ``(N, D)``.
        p: Tensor of shape ``(N, D)``.
    """
    return FusedKlDivFunction.apply(log_q, p)


class FusedKlDiv(nn.Module):
    """:func:`fused_kl_div` as a module."""

    def forward(self, log_q: Tensor, p: Tensor) -> Tensor:
        return fused_kl_div(log_q, p)
