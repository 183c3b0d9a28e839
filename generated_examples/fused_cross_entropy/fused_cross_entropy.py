"""The custom operator fused_cross_entropy."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_cross_entropy_triton
except (ImportError, AttributeError) as error:
    fused_cross_entropy_triton = None  # type: ignore[assignment]
    warnings.warn(
        f"fused_cross_entropy runs without its kernels: {error}", stacklevel=2
    )


class FusedCrossEntropyFunction(Function):
    """Forward and backward of :func:`fused_cross_entropy`.

    Forward also returns what is saved for backward.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        logits: Tensor, target: Tensor, smoothing: float, ignore_index: int
    ) -> tuple[Tensor, Tensor]:
        if logits.ndim != 2:
            raise ValueError(f"logits[N, V] has shape {[*logits.shape]}, not 2-D")
        if target.shape != (logits.shape[0],):
            raise ValueError(
                f"target[N] has shape {[*target.shape]}, not {[logits.shape[0]]}"
            )
        if fused_cross_entropy_triton is not None and fused_cross_entropy_triton.takes(
            logits, target
        ):
            return fused_cross_entropy_triton.forward(
                logits, target, smoothing, ignore_index
            )
        log_probs = torch.log_softmax(logits, dim=-1)
        kept = target != ignore_index
        index = torch.where(kept, target, 0).unsqueeze(-1)
        nll = -log_probs.gather(-1, index).squeeze(-1)
        loss = (1 - smoothing) * nll - smoothing * log_probs.mean(-1)
        # No lse: backward computes it again.
        return torch.where(kept, loss, 0.0), logits.new_empty(0)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        logits, target, smoothing, ignore_index = inputs
        _output, lse = outputs
        ctx.mark_non_differentiable(lse)
        ctx.in_kernels = lse.numel() > 0
        ctx.save_for_backward(logits, target, lse if ctx.in_kernels else None)
        ctx.ignore_index = ignore_index
        ctx.smoothing = smoothing
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if logits.is_meta else logits.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor, _grad_lse: Tensor
    ) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            logits, target, lse = ctx.saved_tensors
            if ctx.in_kernels and not torch.is_grad_enabled():
                grad_logits = fused_cross_entropy_triton.fused_cross_entropy_backward(
                    grad_output, logits, target, lse, ctx.smoothing, ctx.ignore_index
                )
                return grad_logits, None, None, None
            kept = target != ctx.ignore_index
            index = torch.where(kept, target, 0).unsqueeze(-1)
            neg_grad_mean = torch.where(kept, ctx.smoothing * grad_output, 0)
            scaled_grad = neg_grad_mean.unsqueeze(-1) / logits.shape[-1]
            grad_nll = torch.where(kept, (1 - ctx.smoothing) * grad_output, 0)
            onehot = torch.zeros_like(logits).scatter(-1, index, 1)
            neg_grad_log_probs = scaled_grad + grad_nll.unsqueeze(-1) * onehot
            total_grad = grad_nll.unsqueeze(-1) + neg_grad_mean.unsqueeze(-1)
            grad_logits = torch.softmax(logits, -1) * total_grad - neg_grad_log_probs
            return grad_logits, None, None, None


def fused_cross_entropy(
    logits: Tensor, target: Tensor, smoothing: float = 0.1, ignore_index: int = -100
) -> Tensor:
    """Cross entropy with smoothed labels, of each row; a target may be ignored.

    Computes::

        log_probs = torch.log_softmax(logits, dim=-1)
        kept = target != ignore_index
        index = torch.where(kept, target, 0).unsqueeze(-1)
        nll = -log_probs.gather(-1, index).squeeze(-1)
        loss = (1 - smoothing) * nll - smoothing * log_probs.mean(-1)
        return torch.where(kept, loss, 0.0)

    Args:
        logits: Tensor of shape ``(N, V)``.
        target: Long tensor of shape ``(N,)``, below V.
        smoothing: Float.
        ignore_index: Integer.
    """
    output, _lse = FusedCrossEntropyFunction.apply(
        logits, target, smoothing, ignore_index
    )
    return output


class FusedCrossEntropy(nn.Module):
    """:func:`fused_cross_entropy` as a module."""

    def __init__(self, smoothing: float = 0.1, ignore_index: int = -100) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return fused_cross_entropy(logits, target, self.smoothing, self.ignore_index)

    def extra_repr(self) -> str:
        return f"smoothing={self.smoothing}, ignore_index={self.ignore_index}"
