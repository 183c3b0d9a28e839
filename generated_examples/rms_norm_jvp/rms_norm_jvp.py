"""The custom operator rms_norm_jvp."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class RmsNormJvpFunction(Function):
    """Forward and backward of :func:`rms_norm_jvp`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if weight.shape != (x.shape[-1],):
            raise ValueError(
                f"weight[D] has shape {[*weight.shape]}, not {[x.shape[-1]]}"
            )
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, eps = inputs
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        # Backward runs outside of autocast: it enters the forward's again.
        device = "cpu" if x.is_meta else x.device.type
        ctx.autocast = torch.autocast(
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast:
            if grad_output.dtype.is_complex:
                raise TypeError("rms_norm_jvp: x and weight must be real")
            x, weight = ctx.saved_tensors
            grad_x = grad_weight = None
            inv_rms = torch.rsqrt(torch.square(x).mean(-1, keepdim=True) + ctx.eps)
            x_hat = x * inv_rms
            if ctx.needs_input_grad[0]:
                grad_x_hat = grad_output * weight
                inner = (grad_x_hat * x_hat).mean(-1, keepdim=True)
                grad_x = inv_rms * (grad_x_hat - inner * x_hat)
            if ctx.needs_input_grad[1]:
                grad_weight = (grad_output * x_hat).sum_to_size(weight.shape)
            return grad_x, grad_weight, None


class RmsNormJvpFunctionWithJvp(RmsNormJvpFunction):
    """The same with a jvp, for forward mode."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        RmsNormJvpFunction.setup_context(ctx, inputs, output)
        x, weight, _eps = inputs
        ctx.save_for_forward(x, weight)

    @staticmethod
    def jvp(
        ctx: Any, tangent_x: Tensor, tangent_weight: Tensor, _tangent_eps: None
    ) -> Tensor:
        x, weight = ctx.saved_tensors
        inv_rms = torch.rsqrt(torch.square(x).mean(-1, keepdim=True) + ctx.eps)
        x_hat = x * inv_rms
        inner = (tangent_x * x_hat).mean(-1, keepdim=True)
        tangent_x_hat = inv_rms * (tangent_x - x_hat * inner)
        return tangent_x_hat * weight + x_hat * tangent_weight


def rms_norm_jvp(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Compute ``x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight``.

    Args:
        x: Tensor of shape ``(..., D)``.
        weight: Tensor of shape ``(D,)``.
        eps: Float.
    """
    function: type[RmsNormJvpFunction] = RmsNormJvpFunctionWithJvp
    if torch.compiler.is_compiling():  # Dynamo refuses a jvp
        function = RmsNormJvpFunction
    return function.apply(x, weight, eps)


class RmsNormJvp(nn.Module):
    """:func:`rms_norm_jvp` as a module that owns ``weight``."""

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
        return rms_norm_jvp(x, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"D={self.D}, eps={self.eps}"
