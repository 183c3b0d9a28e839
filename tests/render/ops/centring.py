"""Subtract a running mean."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class CentringFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, running_mean: Tensor) -> Tensor:
        return x - running_mean

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return grad_output, None


def centring(x: Tensor, running_mean: Tensor) -> Tensor:
    output: Tensor = CentringFunction.apply(x, running_mean)  # type: ignore[no-untyped-call]
    return output


class Centring(nn.Module):
    running_mean: Tensor

    def __init__(
        self,
        D: int,
        momentum: float = 0.1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros(D, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                mean = torch.lerp(self.running_mean, x.mean(0), self.momentum)
                self.running_mean.copy_(mean)
        return centring(x, self.running_mean.clone())
