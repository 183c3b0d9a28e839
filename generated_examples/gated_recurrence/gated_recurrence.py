"""The custom operator gated_recurrence."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class GatedRecurrenceFunction(Function):
    """Forward and backward of :func:`gated_recurrence`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gate: Tensor, x: Tensor, read: Tensor) -> Tensor:
        h = torch.zeros_like(x[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            h = gate[:, t] * h + x[:, t]
            outputs.append((h * read[:, t]).sum(-1))
        return torch.stack(outputs, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        gate, x, read = inputs
        ctx.save_for_backward(gate, x, read)
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if gate.is_meta else gate.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            gate, x, read = ctx.saved_tensors
            grad_gate = grad_x = grad_read = None
            needed = {}
            if ctx.needs_input_grad[0]:
                needed["gate"] = gate
            if ctx.needs_input_grad[1]:
                needed["x"] = x
            if ctx.needs_input_grad[2]:
                needed["read"] = read
            # autograd differentiates the forward as a whole
            pullback = torch.func.vjp(
                lambda some: GatedRecurrenceFunction.forward(
                    some.get("gate", gate), some.get("x", x), some.get("read", read)
                ),
                needed,
            )[1]
        (pulled,) = pullback(grad_output)
        if ctx.needs_input_grad[0]:
            grad_gate = pulled["gate"]
        if ctx.needs_input_grad[1]:
            grad_x = pulled["x"]
        if ctx.needs_input_grad[2]:
            grad_read = pulled["read"]
        return grad_gate, grad_x, grad_read


def gated_recurrence(gate: Tensor, x: Tensor, read: Tensor) -> Tensor:
    """Each state keeps as much of the one before as its gate says.

    Computes::

        h = torch.zeros_like(x[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            h = gate[:, t] * h + x[:, t]
            outputs.append((h * read[:, t]).sum(-1))
        return torch.stack(outputs, 1)

    Args:
        gate: Tensor of shape ``(B, T, D)``.
        x: Tensor of shape ``(B, T, D)``.
        read: Tensor of shape ``(B, T, D)``.
    """
    return GatedRecurrenceFunction.apply(gate, x, read)


class GatedRecurrence(nn.Module):
    """:func:`gated_recurrence` as a module."""

    def forward(self, gate: Tensor, x: Tensor, read: Tensor) -> Tensor:
        return gated_recurrence(gate, x, read)
