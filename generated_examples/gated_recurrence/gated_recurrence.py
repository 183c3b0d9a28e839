"""The custom operator gated_recurrence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class GatedRecurrenceFunction(Function):
    """Forward and backward of :func:`gated_recurrence`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gate: Tensor, x: Tensor, read: Tensor) -> Tensor:
        if gate.ndim != 3:
            raise ValueError(f"gate[B, T, D] has shape {[*gate.shape]}, not 3-D")
        if x.shape != gate.shape:
            raise ValueError(f"x[B, T, D] has shape {[*x.shape]}, not {[*gate.shape]}")
        if read.shape != gate.shape:
            raise ValueError(
                f"read[B, T, D] has shape {[*read.shape]}, not {[*gate.shape]}"
            )
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

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        gate, x, read = ctx.saved_tensors
        grad_gate = grad_x = grad_read = None
        h = torch.zeros_like(x[:, 0])
        hs = [h]
        for t in range(x.shape[1]):
            h = gate[:, t] * h + x[:, t]
            hs.append(h)
        grad_h = torch.zeros_like(hs[-1])
        grads_gate = []
        grads_x = []
        grads_read = []
        for t in reversed(range(x.shape[1])):
            grad_output_t = grad_output[:, t]
            grad_h = grad_h + grad_output_t.unsqueeze(-1) * read[:, t]
            if ctx.needs_input_grad[0]:
                grads_gate.append(grad_h * hs[t])
            if ctx.needs_input_grad[1]:
                grads_x.append(grad_h)
            if ctx.needs_input_grad[2]:
                grads_read.append(grad_output_t.unsqueeze(-1) * hs[t + 1])
            grad_h = grad_h * gate[:, t]
        if ctx.needs_input_grad[0]:
            grad_gate = torch.stack(grads_gate[::-1], 1)
        if ctx.needs_input_grad[1]:
            grad_x = torch.stack(grads_x[::-1], 1)
        if ctx.needs_input_grad[2]:
            grad_read = torch.stack(grads_read[::-1], 1)
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
    apply: Callable[..., Tensor] = GatedRecurrenceFunction.apply
    device = gate.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        gate = gate if gate.dtype == torch.double else gate.float()
        x = x if x.dtype == torch.double else x.float()
        read = read if read.dtype == torch.double else read.float()
    return apply(gate, x, read)


class GatedRecurrence(nn.Module):
    """:func:`gated_recurrence` as a module."""

    def forward(self, gate: Tensor, x: Tensor, read: Tensor) -> Tensor:
        return gated_recurrence(gate, x, read)
