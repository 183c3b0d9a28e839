"""The custom operator rms_norm_registered."""

from typing import Any

import torch
from torch import Tensor, nn

from registered_kernels import rms_norm_backward, rms_norm_forward


def _forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    if weight.shape != (x.shape[-1],):
        raise ValueError(f"weight[D] has shape {[*weight.shape]}, not {[x.shape[-1]]}")
    y, rstd = rms_norm_forward(x, weight, eps)
    # Contiguous, as the fake says: a kernel may return any layout.
    return y.contiguous(), rstd.contiguous()


def _fake(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Outputs of the shapes that are declared, without data."""
    return x.new_empty(x.shape), x.new_empty((*x.shape[:-1], 1))


def _setup_context(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]
) -> None:
    x, weight, _eps = inputs
    _y, rstd = output
    ctx.mark_non_differentiable(rstd)
    ctx.save_for_backward(x, weight, rstd)


def _rms_norm_registered_backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor]:
    grad_x, grad_weight = rms_norm_backward(grad_y, x, weight, rstd)
    # Contiguous, as the fake says: a kernel may return any layout.
    return grad_x.contiguous(), grad_weight.contiguous()


def _rms_norm_registered_backward_fake(
    grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the shapes of their inputs, without data."""
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


rms_norm_registered_backward_op = torch.library.custom_op(
    "custom_ops::rms_norm_registered_backward",
    _rms_norm_registered_backward,
    mutates_args=(),
)
rms_norm_registered_backward_op.register_fake(_rms_norm_registered_backward_fake)


def _backward(
    ctx: Any, grad_y: Tensor, _grad_rstd: Tensor
) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        raise RuntimeError("rms_norm_registered is differentiable once")
    x, weight, rstd = ctx.saved_tensors
    grad_x, grad_weight = rms_norm_registered_backward_op(grad_y, x, weight, rstd)
    return (
        grad_x if ctx.needs_input_grad[0] else None,
        grad_weight if ctx.needs_input_grad[1] else None,
        None,
    )


def _vmap(
    info: Any, in_dims: tuple[Any, ...], *inputs: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    """Call the op for each sample of a batch."""
    samples = [
        [
            x if dim is None else x.select(dim, i)
            for x, dim in zip(inputs, in_dims, strict=True)
        ]
        for i in range(info.batch_size)
    ]
    y, rstd = zip(*(rms_norm_registered_op(*sample) for sample in samples), strict=True)
    return (torch.stack(y), torch.stack(rstd)), (0, 0)


rms_norm_registered_op = torch.library.custom_op(
    "custom_ops::rms_norm_registered", _forward, mutates_args=()
)
rms_norm_registered_op.register_fake(_fake)
rms_norm_registered_op.register_autograd(_backward, setup_context=_setup_context)
rms_norm_registered_op.register_vmap(_vmap)


def rms_norm_registered(
    x: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Divide each row by its root mean square, and scale.

    Computes::

        return rms_norm_forward(x, weight, eps)

    Once differentiable: a backward with ``create_graph=True`` is an error.

    Args:
        x: Tensor of shape ``(..., D)``.
        weight: Tensor of shape ``(D,)``.
        eps: Float.

    Returns:
        ``y`` of shape ``(..., D)``, ``rstd`` of shape ``(..., 1)`` (no gradient).
    """
    return rms_norm_registered_op(x, weight, eps)


class RMSNormRegistered(nn.Module):
    """:func:`rms_norm_registered` as a module that owns ``weight``."""

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

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return rms_norm_registered(x, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"D={self.D}, eps={self.eps}"
