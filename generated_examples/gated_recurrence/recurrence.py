"""A recurrence with a gate, as one writes it."""

import torch
from torch import Tensor


def gated_recurrence(gate: Tensor, x: Tensor, read: Tensor) -> Tensor:
    """Each state keeps as much of the one before as its gate says."""
    h = torch.zeros_like(x[:, 0])
    outputs = []
    for t in range(x.shape[1]):
        h = gate[:, t] * h + x[:, t]
        outputs.append((h * read[:, t]).sum(-1))
    return torch.stack(outputs, 1)
