"""The custom operator cross_entropy."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class CrossEntropyFunction(Function):
    """Forward and backward of :func:`cross_entropy`.

    Forward also returns what it saves, so that second derivatives reach the inputs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if logits.ndim != 2:
            raise ValueError(f"logits[N, C] has shape {[*logits.shape]}, not 2-D")
        if target.shape != (logits.shape[0],):
            raise ValueError(
                f"target[N] has shape {[*target.shape]}, not {[logits.shape[0]]}"
            )
        log_probs = torch.log_softmax(logits, dim=-1)
        return -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1).mean(), log_probs

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        _logits, target = inputs
        _output, log_probs = outputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(target, log_probs)

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor | None, extra_grad_log_probs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        target, log_probs = ctx.saved_tensors
        if grad_output is None:  # a second derivative, by log_probs alone
            grad_output = log_probs.new_zeros(())
        scaled_grad = grad_output / target.numel()
        grad_gathered = (-scaled_grad).expand((log_probs.shape[0], 1))
        grad_log_probs = torch.ops.aten.gather_backward(
            grad_gathered, log_probs, -1, target.unsqueeze(-1), sparse_grad=False
        )
        if extra_grad_log_probs is not None:
            grad_log_probs = grad_log_probs + extra_grad_log_probs
        grad_logits = torch.ops.aten._log_softmax_backward_data(
            grad_log_probs, log_probs, -1, log_probs.dtype
        )
        return grad_logits, None


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean negative log-likelihood of the target classes.

    Computes::

        log_probs = torch.log_softmax(logits, dim=-1)
        return -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1).mean()

    Args:
        logits: Tensor of shape ``(N, C)``.
        target: Long tensor of shape ``(N,)``, below C.
    """
    output, _log_probs = CrossEntropyFunction.apply(logits, target)
    return output
