"""The negative log-likelihood of a class, each class with a weight that is constant."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class NllFunction(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(logp: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        picked = logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return -picked * scale[target]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logp, target, scale = inputs
        ctx.classes = logp.shape[-1]
        ctx.save_for_backward(target, scale)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        target, scale = ctx.saved_tensors
        picked = -(grad_output * scale[target]).unsqueeze(-1)
        zeros = torch.zeros_like(picked).expand(*target.shape, ctx.classes)
        return zeros.scatter(-1, target.unsqueeze(-1), picked), None, None


def nll(logp: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    output: Tensor = NllFunction.apply(logp, target, scale)  # type: ignore[no-untyped-call]
    return output
