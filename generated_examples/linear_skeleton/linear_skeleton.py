"""The custom operator linear_skeleton."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class LinearSkeletonFunction(Function):
    """Forward and backward of :func:`linear_skeleton`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError("linear_skeleton: write forward")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, bias = inputs
        ctx.save_for_backward(input, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, bias = ctx.saved_tensors  # noqa: RUF059
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            raise NotImplementedError("linear_skeleton: write grad_input")
        if ctx.needs_input_grad[1]:
            raise NotImplementedError("linear_skeleton: write grad_weight")
        if ctx.needs_input_grad[2]:
            raise NotImplementedError("linear_skeleton: write grad_bias")
        return grad_input, grad_weight, grad_bias


def linear_skeleton(
    input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Apply linear_skeleton."""
    return LinearSkeletonFunction.apply(input, weight, bias)


class LinearSkeleton(nn.Module):
    """:func:`linear_skeleton` as a module that owns ``weight`` and ``bias``."""

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(
            torch.empty(out_features, in_features, device=device, dtype=dtype)
        )
        if bias:
            self.bias = nn.Parameter(
                torch.empty(out_features, device=device, dtype=dtype)
            )
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return linear_skeleton(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
