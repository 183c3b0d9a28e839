"""The custom operator focal."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function


class FocalLossFunction(Function):
    """Forward and backward of :func:`focal`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
        margin = torch.where(target, logits, -logits)
        weight = torch.sigmoid(-margin) ** gamma
        return -(weight * F.logsigmoid(margin)).mean()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, target, gamma = inputs
        ctx.save_for_backward(logits, target)
        ctx.gamma = gamma
        device = "cpu" if logits.is_meta else logits.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            logits, target = ctx.saved_tensors
            margin = torch.where(target, logits, -logits)
            sigmoid = torch.sigmoid(-margin)
            weight = sigmoid**ctx.gamma
            logsigmoid = F.logsigmoid(margin)
            product = weight * (ctx.gamma * logsigmoid * (1 - sigmoid) - sigmoid)
            grad_margin = grad_output / margin.numel() * product
            selected_grad = torch.where(target, grad_margin, -grad_margin)
            return selected_grad.sum_to_size(logits.shape), None, None


def focal(logits: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    """Binary cross-entropy that counts what is classified well for little.

    Computes::

        margin = torch.where(target, logits, -logits)
        weight = torch.sigmoid(-margin) ** gamma
        return -(weight * F.logsigmoid(margin)).mean()

    Args:
        logits: Tensor of shape ``(..., N)``.
        target: Boolean tensor of shape ``(..., N)``.
        gamma: Constant.
    """
    return FocalLossFunction.apply(logits, target, gamma)


class FocalLoss(nn.Module):
    """:func:`focal` as a module."""

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return focal(logits, target, self.gamma)

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}"
