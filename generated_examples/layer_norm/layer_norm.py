"""The custom operator layer_norm."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class LayerNormFunction(Function):
    """Forward and backward of :func:`layer_norm`.

    Forward also returns what it saves, so that second derivatives reach the inputs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        if weight is not None and weight.shape != (x.shape[-1],):
            raise ValueError(
                f"weight[features] has shape {[*weight.shape]}, not {[x.shape[-1]]}"
            )
        if bias is not None and bias.shape != (x.shape[-1],):
            raise ValueError(
                f"bias[features] has shape {[*bias.shape]}, not {[x.shape[-1]]}"
            )
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        normalized = centred * rstd
        scaled = normalized * weight if weight is not None else normalized
        output = scaled + bias if bias is not None else scaled
        return output, mean, rstd

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        x, weight, bias, _eps = inputs
        _output, mean, rstd = outputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.bias_shape = bias.shape if bias is not None else None
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(
        ctx: Any,
        grad_output: Tensor | None,
        extra_grad_mean: Tensor | None,
        extra_grad_rstd: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            x, weight, mean, rstd = ctx.saved_tensors
            if grad_output is None:
                grad_output = torch.zeros_like(x)
            if grad_output.dtype.is_complex:
                raise TypeError("layer_norm: x, weight and bias must be real")
            grad_x = grad_weight = grad_bias = None
            if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
                centred = x - mean
                normalized = centred * rstd
            if ctx.needs_input_grad[0]:
                if weight is not None:
                    grad_normalized = grad_output * weight
                else:
                    grad_normalized = grad_output
                grad_rstd = (grad_normalized * centred).sum(-1, keepdim=True)
                if extra_grad_rstd is not None:
                    grad_rstd = grad_rstd + extra_grad_rstd
                grad_mean = -rstd * grad_normalized.sum(-1, keepdim=True)
                if extra_grad_mean is not None:
                    grad_mean = grad_mean + extra_grad_mean
                scaled_grad = grad_rstd * rstd / grad_output.shape[-1]
                grad_centred = rstd * (grad_normalized - scaled_grad * normalized)
                grad_x = grad_centred + grad_mean / grad_output.shape[-1]
            if ctx.needs_input_grad[1]:
                grad_weight = (grad_output * normalized).sum_to_size(weight.shape)
            if ctx.needs_input_grad[2]:
                grad_bias = grad_output.sum_to_size(ctx.bias_shape)
            return grad_x, grad_weight, grad_bias, None


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize the last dimension to mean 0 and variance 1, then scale and shift it.

    Computes::

        centred = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        normalized = centred * rstd
        scaled = normalized * weight
        return scaled + bias

    Args:
        x: Tensor of shape ``(..., features)``.
        weight: Tensor of shape ``(features,)``, or None.
        bias: Tensor of shape ``(features,)``, or None.
        eps: Float.
    """
    output, _mean, _rstd = LayerNormFunction.apply(x, weight, bias, eps)
    return output


class LayerNorm(nn.Module):
    """:func:`layer_norm` as a module that owns ``weight`` and ``bias``."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        features: int,
        weight: bool = True,
        bias: bool = True,
        eps: float = 1e-5,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.features = features
        self.eps = eps
        if weight:
            self.weight = nn.Parameter(
                torch.empty(features, device=device, dtype=dtype)
            )
        else:
            self.register_parameter("weight", None)
        if bias:
            self.bias = nn.Parameter(torch.empty(features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"features={self.features}, weight={self.weight is not None}, "
            f"bias={self.bias is not None}, eps={self.eps}"
        )
