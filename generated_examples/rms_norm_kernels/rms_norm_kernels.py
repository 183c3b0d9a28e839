"""The custom operator rms_norm_kernels."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from rms_kernels import rms_norm_backward, rms_norm_forward


class RMSNormKernelsFunction(Function):
    """Forward and backward of :func:`rms_norm_kernels`.

    Forward also returns what is saved for backward.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        if weight.shape != (x.shape[-1],):
            raise ValueError(
                f"weight[D] has shape {[*weight.shape]}, not {[x.shape[-1]]}"
            )
        y, rstd = rms_norm_forward(x, weight, eps)
        return y, rstd

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        x, weight, _eps = inputs
        _output, rstd = outputs
        ctx.mark_non_differentiable(rstd)
        ctx.save_for_backward(x, weight, rstd)

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor, _grad_rstd: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, rstd = ctx.saved_tensors
        with torch.no_grad():
            grad_x, grad_weight = rms_norm_backward(grad_output, x, weight, rstd)
            grads = (
                grad_x if ctx.needs_input_grad[0] else None,
                grad_weight if ctx.needs_input_grad[1] else None,
                None,
            )
        if not torch.is_grad_enabled():
            return grads
        return tuple(
            (
                None
                if grad is None
                else _OnceDifferentiable.apply(grad, grad_output, x, weight, rstd)
            )
            for grad in grads
        )


class _OnceDifferentiable(Function):
    """A gradient, which raises where it is differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, *_read: Tensor | None) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Backward needs nothing of the forward."""

    @staticmethod
    def backward(ctx: Any, _grad_output: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError("rms_norm_kernels is differentiable once")


def rms_norm_kernels(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Divide each row by its root mean square, and scale.

    Computes::

        y, rstd = rms_norm_forward(x, weight, eps)
        return y

    Once differentiable: to differentiate its gradient is an error.

    Args:
        x: Tensor of shape ``(..., D)``.
        weight: Tensor of shape ``(D,)``.
        eps: Float.
    """
    output, _rstd = RMSNormKernelsFunction.apply(x, weight, eps)
    return output


class RMSNormKernels(nn.Module):
    """:func:`rms_norm_kernels` as a module that owns ``weight``."""

    def __init__(
        self,
        D: int,
        eps: float = 1e-6,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.D = D
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(D, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm_kernels(x, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"D={self.D}, eps={self.eps}"
