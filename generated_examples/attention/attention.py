"""The custom operator attention."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class AttentionFunction(Function):
    """Forward and backward of :func:`attention`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        probs = torch.softmax(query @ key.mT * scale, dim=-1)
        return probs @ value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        query, key, value, scale = inputs
        ctx.save_for_backward(query, key, value)
        ctx.scale = scale
        device = "cpu" if query.is_meta else query.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            if grad_output.is_complex():
                raise TypeError("attention: value must be real")
            query, key, value = ctx.saved_tensors
            grad_query = grad_key = grad_value = None
            probs = torch.softmax(query @ key.mT * ctx.scale, dim=-1)
            if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
                grad_probs = (grad_output @ value.mT).sum_to_size(probs.shape)
                inner = (grad_probs * probs).sum(dim=-1, keepdim=True)
                grad_scores = probs * (grad_probs - inner)
            if ctx.needs_input_grad[0]:
                grad_query = (ctx.scale * (grad_scores @ key)).sum_to_size(query.shape)
            if ctx.needs_input_grad[1]:
                grad_key = (ctx.scale * (grad_scores.mT @ query)).sum_to_size(key.shape)
            if ctx.needs_input_grad[2]:
                grad_value = (probs.mT @ grad_output).sum_to_size(value.shape)
            return grad_query, grad_key, grad_value, None


def attention(query: Tensor, key: Tensor, value: Tensor, scale: float = 1.0) -> Tensor:
    """Average the values, weighted by how well their keys fit the queries.

    Computes::

        probs = torch.softmax(query @ key.mT * scale, dim=-1)
        return probs @ value

    Args:
        query: Tensor of shape ``(..., targets, D)``.
        key: Tensor of shape ``(..., sources, D)``.
        value: Tensor of shape ``(..., sources, E)``.
        scale: Constant.
    """
    return AttentionFunction.apply(query, key, value, scale)
