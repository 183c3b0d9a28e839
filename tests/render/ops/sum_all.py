"""The sum of any number of tensors."""

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function


class SumAllFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*tensors: Tensor) -> Tensor:
        output = tensors[0].clone()
        for tensor in tensors[1:]:
            output = output + tensor
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.shapes = [tensor.shape for tensor in inputs]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        pairs = zip(ctx.needs_input_grad, ctx.shapes, strict=True)
        return tuple(
            grad_output.sum_to_size(shape) if needed else None
            for needed, shape in pairs
        )


def sum_all(*tensors: Tensor) -> Tensor:
    output: Tensor = SumAllFunction.apply(*tensors)  # type: ignore[no-untyped-call]
    return output


class SumAll(nn.Module):
    def forward(self, *tensors: Tensor) -> Tensor:
        return sum_all(*tensors)
