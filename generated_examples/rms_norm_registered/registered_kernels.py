"""Two kernels, as a library of compiled ones would offer them.

What they return has the dtype of its input.
"""

import torch
from torch import Tensor


def rms_norm_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Normalise the rows of x; also return the reciprocal root mean square of each."""
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (x * rstd * weight).to(x.dtype), rstd.to(x.dtype)


def rms_norm_backward(
    grad_output: Tensor, x: Tensor, weight: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor]:
    """Both gradients in one pass over the rows."""
    normed = x * rstd
    grad_normed = grad_output * weight
    inner = (grad_normed * normed).mean(-1, keepdim=True)
    grad_weight = (grad_output * normed).sum_to_size(weight.shape)
    grad_x = (grad_normed - normed * inner) * rstd
    return grad_x.to(x.dtype), grad_weight.to(weight.dtype)
