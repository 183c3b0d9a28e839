"""The custom operator centre."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class CentreFunction(Function):
    """Forward and backward of :func:`centre`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, running_mean: Tensor) -> Tensor:
        if x.ndim != 2:
            raise ValueError(f"x[N, features] has shape {[*x.shape]}, not 2-D")
        if running_mean.shape != (x.shape[-1],):
            raise ValueError(
                f"running_mean[features] has shape {[*running_mean.shape]}, "
                f"not {[x.shape[-1]]}"
            )
        return x - running_mean

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Backward needs nothing of the forward."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return grad_output, None


def centre(x: Tensor, running_mean: Tensor) -> Tensor:
    """Subtract the mean that was seen so far.

    Computes::

        x - running_mean

    Args:
        x: Tensor of shape ``(N, features)``.
        running_mean: Tensor of shape ``(features,)`` without a gradient.
    """
    return CentreFunction.apply(x, running_mean)


class Centre(nn.Module):
    """:func:`centre` as a module that owns ``running_mean``.

    In training, a call updates ``running_mean`` after it has computed its result.
    """

    running_mean: Tensor

    def __init__(
        self,
        features: int,
        momentum: float = 0.1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.features = features
        self.momentum = momentum
        self.register_buffer(
            "running_mean", torch.zeros(features, device=device, dtype=dtype)
        )

    def forward(self, x: Tensor) -> Tensor:
        output = centre(x, self.running_mean)
        if self.training and x.numel() > 0:
            with torch.no_grad():
                x = x.to(self.running_mean.dtype)
                self.running_mean.copy_(
                    torch.lerp(self.running_mean, x.mean(0), self.momentum)
                )
        return output

    def extra_repr(self) -> str:
        return f"features={self.features}, momentum={self.momentum}"
