"""Multiply by a constant, with no gradient for none."""

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function


class ScaleByFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, constant: float) -> Tensor:
        return x * constant

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _x, constant = inputs
        ctx.constant = constant
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_output is None:
            return None, None
        return grad_output * ctx.constant, None


def scale_by(x: Tensor, constant: float) -> Tensor:
    output: Tensor = ScaleByFunction.apply(x, constant)  # type: ignore[no-untyped-call]
    return output


class ScaleBy(nn.Module):
    def __init__(self, constant: float) -> None:
        super().__init__()
        self.constant = constant

    def forward(self, x: Tensor) -> Tensor:
        return scale_by(x, self.constant)
