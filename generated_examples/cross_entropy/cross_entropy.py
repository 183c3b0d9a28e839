"""The custom operator cross_entropy."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class CrossEntropyFunction(Function):
    """Forward and backward of :func:`cross_entropy`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, target: Tensor) -> Tensor:
        if logits.ndim != 2:
            raise ValueError(f"logits[N, C] has shape {[*logits.shape]}, not 2-D")
        if target.shape != (logits.shape[0],):
            raise ValueError(
                f"target[N] has shape {[*target.shape]}, not {[logits.shape[0]]}"
            )
        log_probs = torch.log_softmax(logits, dim=-1)
        return -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1).mean()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, target = inputs
        ctx.save_for_backward(logits, target)
        device = "cpu" if logits.is_meta else logits.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            logits, target = ctx.saved_tensors
            onehot = torch.zeros_like(logits).scatter(-1, target.unsqueeze(-1), 1)
            probs = torch.softmax(logits, dim=-1)
            return grad_output / target.numel() * (probs - onehot), None


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean negative log-likelihood of the target classes.

    Computes::

        log_probs = torch.log_softmax(logits, dim=-1)
        return -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1).mean()

    Args:
        logits: Tensor of shape ``(N, C)``.
        target: Long tensor of shape ``(N,)``, below C.
    """
    return CrossEntropyFunction.apply(logits, target)
