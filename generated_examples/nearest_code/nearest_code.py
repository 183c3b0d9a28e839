"""The custom operator nearest_code."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class NearestCodeFunction(Function):
    """Forward and backward of :func:`nearest_code`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, codes: Tensor) -> Tensor:
        return torch.cdist(x, codes).argmin(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Backward needs nothing of the forward."""

    @staticmethod
    def backward(ctx: Any, _grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """No output has a gradient."""
        return None, None


def nearest_code(x: Tensor, codes: Tensor) -> Tensor:
    """Find the closest code of each row.

    Computes::

        torch.cdist(x, codes).argmin(-1)

    Args:
        x: Tensor of shape ``(N, D)``.
        codes: Tensor of shape ``(K, D)``.

    Returns:
        ``index`` of shape ``(N,)`` (no gradient).
    """
    return NearestCodeFunction.apply(x, codes)


class NearestCode(nn.Module):
    """:func:`nearest_code` as a module."""

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        return nearest_code(x, codes)
