"""Scale rows to length 1, with the lengths as an extra output that the wrapper drops."""

from typing import Any

from torch import Tensor
from torch.autograd import Function


class L2NormFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        norm = (x * x).sum(-1, keepdim=True).sqrt()
        return x / norm, norm

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]
    ) -> None:
        (x,) = inputs
        _output, norm = output
        ctx.mark_non_differentiable(norm)
        ctx.save_for_backward(x)

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor, _grad_norm: Tensor | None
    ) -> Tensor | None:
        (x,) = ctx.saved_tensors
        norm = (x * x).sum(-1, keepdim=True).sqrt()
        unit = x / norm
        inner = (grad_output * unit).sum(-1, keepdim=True)
        grad_x: Tensor = (grad_output - unit * inner) / norm
        return grad_x


def l2_norm(x: Tensor) -> Tensor:
    output: Tensor
    output, _norm = L2NormFunction.apply(x)  # type: ignore[no-untyped-call]
    return output
