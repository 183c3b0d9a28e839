"""Test inputs of apply_pointwise."""

from collections.abc import Callable

import torch
from torch import Tensor


def make() -> list[tuple[Tensor, Callable[..., Tensor], Callable[..., Tensor]]]:
    """Inputs with functions whose derivatives are known."""
    x = torch.randn(3, 4, dtype=torch.double)
    return [(x, torch.sin, torch.cos), (x, torch.exp, torch.exp)]
