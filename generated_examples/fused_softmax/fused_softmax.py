"""The custom operator fused_softmax."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

try:
    import fused_softmax_triton
except (ImportError, AttributeError) as error:
    fused_softmax_triton = None  # type: ignore[assignment]
    warnings.warn(f"fused_softmax runs without its kernels: {error}", stacklevel=2)


class FusedSoftmaxFunction(Function):
    """Forward and backward of :func:`fused_softmax`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, temperature: float) -> Tensor:
        if fused_softmax_triton is not None and fused_softmax_triton.takes(x):
            return fused_softmax_triton.forward(x, temperature)
        return torch.softmax(x / temperature, dim=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, temperature = inputs
        ctx.in_kernels = (
            fused_softmax_triton is not None and fused_softmax_triton.takes(x)
        )
        ctx.save_for_backward(output)
        ctx.temperature = temperature
        ctx.x_dtype = x.dtype
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            (output,) = ctx.saved_tensors
            if ctx.in_kernels and not torch.is_grad_enabled():
                grad_x = fused_softmax_triton.fused_softmax_backward(
                    grad_output, output, ctx.temperature, ctx.x_dtype
                )
                return grad_x, None
            inner = (grad_output * output).sum(dim=-1, keepdim=True)
            return output * (grad_output - inner) / ctx.temperature, None


def fused_softmax(x: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute ``torch.softmax(x / temperature, dim=-1)``.

    Args:
        x: Tensor of shape ``(..., D)``.
        temperature: Float.
    """
    return FusedSoftmaxFunction.apply(x, temperature)


class FusedSoftmax(nn.Module):
    """:func:`fused_softmax` as a module."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        return fused_softmax(x, self.temperature)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"
