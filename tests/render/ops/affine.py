"""Scale and shift the last dimension, each of them optional; eps is added."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function


class AffineFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        reduction: str,
    ) -> Tensor:
        output = x + eps
        if weight is not None:
            output = output * weight
        if bias is not None:
            output = output + bias
        if reduction == "sum":
            output = output.sum()
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _bias, ctx.eps, ctx.reduction = inputs
        ctx.shape = x.shape
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        leading = tuple(range(len(ctx.shape) - 1))
        if ctx.reduction == "sum":
            grad_output = grad_output.expand(ctx.shape)
        if ctx.needs_input_grad[0]:
            grad_x = grad_output if weight is None else grad_output * weight
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output * (x + ctx.eps)
            if leading:
                grad_weight = grad_weight.sum(leading)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(leading) if leading else grad_output
        return grad_x, grad_weight, grad_bias, None, None


def affine(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-6,
    reduction: Literal["none", "sum"] = "none",
) -> Tensor:
    output: Tensor = AffineFunction.apply(x, weight, bias, eps, reduction)  # type: ignore[no-untyped-call]
    return output


class Affine(nn.Module):
    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        D: int,
        weight: bool = True,
        bias: bool = True,
        eps: float = 1e-6,
        reduction: Literal["none", "sum"] = "none",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.reduction: Literal["none", "sum"] = reduction
        shape: Sequence[int] = (D,)
        for name, wanted in (("weight", weight), ("bias", bias)):
            parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, parameter if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        return affine(x, self.weight, self.bias, self.eps, self.reduction)
