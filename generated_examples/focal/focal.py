"""The custom operator focal."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function


class FocalLossFunction(Function):
    """Forward and backward of :func:`focal`.

    Forward also returns what it saves, so that second derivatives reach the inputs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        logits: Tensor, target: Tensor, gamma: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if target.shape != logits.shape:
            raise ValueError(
                f"target[N, C] has shape {[*target.shape]}, not {[*logits.shape]}"
            )
        margin = torch.where(target, logits, -logits)
        sigmoid = torch.sigmoid(-margin)
        weight = sigmoid**gamma
        logsigmoid = F.logsigmoid(margin)
        return -(weight * logsigmoid).mean(), sigmoid, weight, logsigmoid

    @staticmethod
    def setup_context(
        ctx: Any,
        inputs: tuple[Any, ...],
        outputs: tuple[Tensor, Tensor, Tensor, Tensor],
    ) -> None:
        logits, target, gamma = inputs
        _output, sigmoid, weight, logsigmoid = outputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(target, sigmoid, weight, logsigmoid)
        ctx.gamma = gamma
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if logits.is_meta else logits.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(
        ctx: Any,
        grad_output: Tensor | None,
        extra_grad_sigmoid: Tensor | None,
        extra_grad_weight: Tensor | None,
        extra_grad_logsigmoid: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            target, sigmoid, weight, logsigmoid = ctx.saved_tensors
            if grad_output is None:
                grad_output = sigmoid.new_zeros(())
            scaled_grad = grad_output / sigmoid.numel()
            # if gamma is 0 the gradient is 0, not 0 * inf
            power = sigmoid ** (0 if ctx.gamma == 0 else ctx.gamma - 1)
            grad_logsigmoid = -scaled_grad * weight
            if extra_grad_logsigmoid is not None:
                grad_logsigmoid = grad_logsigmoid + extra_grad_logsigmoid
            grad_weight = -scaled_grad * logsigmoid
            if extra_grad_weight is not None:
                grad_weight = grad_weight + extra_grad_weight
            grad_sigmoid = ctx.gamma * grad_weight * power
            if extra_grad_sigmoid is not None:
                grad_sigmoid = grad_sigmoid + extra_grad_sigmoid
            grad_preactivation = torch.ops.aten.sigmoid_backward(grad_sigmoid, sigmoid)
            grad_margin = grad_logsigmoid * sigmoid - grad_preactivation
            return torch.where(target, grad_margin, -grad_margin), None, None


def focal(logits: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    """Binary cross-entropy that counts what is classified well for little.

    Computes::

        margin = torch.where(target, logits, -logits)
        weight = torch.sigmoid(-margin) ** gamma
        return -(weight * F.logsigmoid(margin)).mean()

    Args:
        logits: Tensor of shape ``(N, C)``.
        target: Boolean tensor of shape ``(N, C)``.
        gamma: Float.
    """
    output, _sigmoid, _weight, _logsigmoid = FocalLossFunction.apply(
        logits, target, gamma
    )
    return output


class FocalLoss(nn.Module):
    """:func:`focal` as a module."""

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return focal(logits, target, self.gamma)

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}"
