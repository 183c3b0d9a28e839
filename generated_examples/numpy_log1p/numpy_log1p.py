"""The custom operator numpy_log1p."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function


class NumpyLog1pFunction(Function):
    """Forward and backward of :func:`numpy_log1p`."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise ValueError(f"x[N, D] has shape {[*x.shape]}, not 2-D")
        return torch.from_numpy(np.log1p(x.detach().numpy()))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_output / (1 + x)


def numpy_log1p(x: Tensor) -> Tensor:
    """Compute ``torch.from_numpy(np.log1p(x.detach().numpy()))``.

    Args:
        x: Tensor of shape ``(N, D)``.
    """
    return NumpyLog1pFunction.apply(x)


class NumpyLog1p(nn.Module):
    """:func:`numpy_log1p` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return numpy_log1p(x)
