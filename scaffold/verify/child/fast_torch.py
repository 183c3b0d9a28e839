"""Fast torch calls: `torch.manual_seed` and a seeded `torch.autograd.grad` without their overhead.

The overhead of torch's own costs more than all cases of a proof.

All code of the child that seeds or differentiates many times calls these. In: the arguments of torch's own. Out: the results of torch's
own, bit for bit and in the same memory layout.
Invariant: nothing is imported, and no stack trace formatted.
"""

from typing import Any

import torch
from torch import Tensor


def seed_generator(number: int) -> None:
    """Seed like `torch.manual_seed`, which formats a stack trace for each unused kind of device."""
    cuda: Any = torch.cuda
    # Unless a GPU is in use, the generator of the CPU is the only one that matters.
    if cuda.is_initialized():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


def seeded_grad(outputs: Any, needed: Any, grad_outputs: Any, **options: Any) -> Any:
    """Return the gradients of the tensors `needed` like `torch.autograd.grad`, for these `grad_outputs`; raise RuntimeError if an output has none.

    If `torch.autograd.grad` is given grad_outputs, it imports SymPy, which is slow: here a last node, `_Seed`, has them as its gradients.
    `options` are the other arguments of `torch.autograd.grad`.
    """
    alone = isinstance(outputs, Tensor)
    ends, weights = ([outputs], [grad_outputs]) if alone else (outputs, grad_outputs)
    for end in ends:
        if not end.requires_grad:
            raise RuntimeError("an output that has a gradient does not require grad")
    apply: Any = _Seed.apply
    end = apply(list(weights), *ends)
    try:
        return torch.autograd.grad(end, needed, **options)
    except RuntimeError as error:
        if ".grad()" not in str(error):
            raise
    # A Function that calls `.backward()` inside its own backward, as torch.utils.checkpoint
    # does with use_reentrant=True, refuses `torch.autograd.grad`: accumulate in `.grad`.
    for leaf in needed:
        leaf.grad = None
    end.backward(retain_graph=options.get("retain_graph"))
    return tuple(torch.zeros_like(x) if x.grad is None else x.grad for x in needed)


class _Seed(torch.autograd.Function):
    """A number, 0, whose gradient with respect to each of the outputs is the given weight: backpropagation from it starts with these."""

    @staticmethod
    def forward(ctx: Any, weights: list[Tensor], *outputs: Tensor) -> Tensor:
        ctx.weights = weights
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
        return None, *ctx.weights
