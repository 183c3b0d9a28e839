"""A linear layer over rows, to be written."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class LinearTodoFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError("linear_todo: write forward")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, _bias = inputs
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        input, weight = ctx.saved_tensors  # noqa: RUF059
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            raise NotImplementedError("linear_todo: write grad_input")
        if ctx.needs_input_grad[1]:
            raise NotImplementedError("linear_todo: write grad_weight")
        if ctx.needs_input_grad[2]:
            raise NotImplementedError("linear_todo: write grad_bias")
        return grad_input, grad_weight, grad_bias


def linear_todo(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    output: Tensor = LinearTodoFunction.apply(input, weight, bias)  # type: ignore[no-untyped-call]
    return output


class LinearTodo(nn.Module):
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
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return linear_todo(input, self.weight, self.bias)
