"""The product of a complex and a real tensor."""

from typing import Any

from torch import Tensor
from torch.autograd import Function


class ComplexMulFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, gain: Tensor) -> Tensor:
        return z * gain

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        z, gain = ctx.saved_tensors
        grad_z = grad_gain = None
        if ctx.needs_input_grad[0]:
            grad_z = (grad_output * gain).sum_to_size(z.shape)
        if ctx.needs_input_grad[1]:
            grad_gain = (grad_output * z.conj()).real.sum_to_size(gain.shape)
        return grad_z, grad_gain


def complex_mul(z: Tensor, gain: Tensor) -> Tensor:
    output: Tensor = ComplexMulFunction.apply(z, gain)  # type: ignore[no-untyped-call]
    return output
