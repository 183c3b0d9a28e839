"""The custom operator rms_norm."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class RMSNormFunction(Function):
    """Forward and backward of :func:`rms_norm`.

    Forward also returns what it saves, so that second derivatives reach the inputs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        if weight.shape != (x.shape[-1],):
            raise ValueError(
                f"weight[features] has shape {[*weight.shape]}, not {[x.shape[-1]]}"
            )
        rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        return x * rstd * weight, rstd

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
    ) -> None:
        x, weight, _eps = inputs
        _output, rstd = outputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, rstd)
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor | None, extra_grad_rstd: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            x, weight, rstd = ctx.saved_tensors
            if grad_output is None:  # a second derivative, by rstd alone
                grad_output = torch.zeros_like(x)
            if grad_output.dtype.is_complex:
                raise TypeError("rms_norm: x and weight must be real")
            grad_x = grad_weight = None
            x_hat = x * rstd
            if ctx.needs_input_grad[0]:
                grad_x_hat = grad_output * weight
                grad_rstd = (grad_x_hat * x).sum(-1, keepdim=True)
                if extra_grad_rstd is not None:
                    grad_rstd = grad_rstd + extra_grad_rstd
                scaled_grad = grad_rstd * rstd / grad_output.shape[-1]
                grad_x = rstd * (grad_x_hat - scaled_grad * x_hat)
            if ctx.needs_input_grad[1]:
                grad_weight = (grad_output * x_hat).sum_to_size(weight.shape)
            return grad_x, grad_weight, None


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Scale the last dimension to a mean square of 1.

    Computes::

        rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        return x * rstd * weight

    Args:
        x: Tensor of shape ``(..., features)``.
        weight: Tensor of shape ``(features,)``.
        eps: Float.
    """
    output, _rstd = RMSNormFunction.apply(x, weight, eps)
    return output


class RMSNorm(nn.Module):
    """:func:`rms_norm` as a module that owns ``weight``."""

    def __init__(
        self,
        features: int,
        eps: float = 1e-6,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.features = features
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"features={self.features}, eps={self.eps}"
