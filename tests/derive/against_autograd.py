"""An op from a signature and a forward, beside that forward under autograd."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.render.formatting import fold
from scaffold.spec.other_tools import LINE_LENGTH
from tests.derive.building import draft_of, load, reference, spec_of
from tests.derive.checking import check_op

POLICIES = ("recompute", "balanced")


def tensor(*shape: int, dtype: torch.dtype = torch.double) -> Tensor:
    """Random values, the same for the same shape."""
    generator = torch.Generator().manual_seed(7 + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.double).to(dtype)


def check_forward(
    inputs: str, forward: str, calls: Iterable[tuple[Any, ...]], **options: Any
) -> str:
    """Forward, gradients and second ones for every call, under both policies; the text that saves least, as far as lines are broken."""
    drafts = []
    for policy in POLICIES:
        spec = spec_of(inputs, forward=forward, save_policy=policy, **options)
        derivation = derive(spec)
        drafts.append(draft_of(spec, derivation))
        if drafts[-1] in drafts[:-1]:
            continue  # what is the same text was run
        module = load(drafts[-1])
        plain = reference([item.name for item in spec.inputs], forward)
        for values in calls:
            check_op(
                module.SomeOpFunction,
                module.some_op,
                plain,
                values,
                once=derivation.once_differentiable,
                subset_limit=8,
            )
    return fold(drafts[0], LINE_LENGTH)
