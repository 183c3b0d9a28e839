"""The custom operator attention."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class AttentionFunction(Function):
    """Forward and backward of :func:`attention`.

    Forward also returns what it saves, so that second derivatives reach the inputs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        probs = torch.softmax(query @ key.mT * scale, dim=-1)
        return probs @ value, probs

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        query, key, value, scale = inputs
        output, probs = outputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            query if ctx.needs_input_grad[1] else None,
            key if ctx.needs_input_grad[0] else None,
            value,
            probs,
        )
        ctx.scale = scale
        ctx.query_shape = query.shape
        ctx.key_shape = key.shape
        ctx.output_shape = output.shape
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if query.is_meta else query.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor | None, extra_grad_probs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            query, key, value, probs = ctx.saved_tensors
            if grad_output is None:  # a second derivative, by probs alone
                grad_output = probs.new_zeros(ctx.output_shape)
            grad_query = grad_key = grad_value = None
            if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
                grad_probs = (grad_output @ value.mT).sum_to_size(probs.shape)
                if extra_grad_probs is not None:
                    grad_probs = grad_probs + extra_grad_probs
                # autocast may leave these in different dtypes
                grad_scores = torch.ops.aten._softmax_backward_data(
                    grad_probs.to(probs.dtype), probs, -1, probs.dtype
                )
            if ctx.needs_input_grad[0]:
                grad_query = (ctx.scale * (grad_scores @ key)).sum_to_size(
                    ctx.query_shape
                )
            if ctx.needs_input_grad[1]:
                grad_key = (ctx.scale * (grad_scores.mT @ query)).sum_to_size(
                    ctx.key_shape
                )
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
        scale: Float.
    """
    output, _probs = AttentionFunction.apply(query, key, value, scale)
    return output
