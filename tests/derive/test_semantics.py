"""Random ops in every style: the generated file computes the forward and its gradient."""

import random
from typing import Any

import pytest
import torch

from scaffold.derive import derive
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_op
from tests.derive.programs import SHAPES, Program, program
from tests.sweeps import in_every_run


def options(seed: int) -> dict[str, Any]:
    """How the op is written: style, derivatives, None gradients, what is saved."""
    pick = random.Random(seed + 1000)
    chosen: dict[str, Any] = {"style": pick.choice(["setup-context", "combined"])}
    if pick.random() < 0.3:
        chosen["once_differentiable"] = True
    if pick.random() < 0.3:
        chosen["materialize_grads"] = False
    if pick.random() < 0.2:
        chosen["save_policy"] = "balanced"
    return chosen


def tensors(
    made: Program, sizes: dict[str, tuple[int, ...]], permuted: bool
) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    found: list[Any] = []
    for shape in made.inputs.values():
        value = torch.randn(sizes[shape], generator=generator, dtype=torch.double)
        found.append(value.mT.contiguous().mT if permuted and value.ndim > 1 else value)
    return [*found, 1.5, 3]


def check_program(seed: int) -> None:
    made, chosen = program(seed), options(seed)
    spec = spec_of(**made.raw, **chosen)
    derivation = derive(spec)
    text = draft_of(spec, derivation)
    module = load(text)
    names = [item.name for item in spec.inputs]

    def reference(*values: Any) -> Any:
        return made.reference(**dict(zip(names, values, strict=True)))

    def check(inputs: list[Any], limit: int = 16) -> None:
        check_op(
            module.SomeOpFunction,
            module.some_op,
            reference,
            inputs,
            once=derivation.once_differentiable,
            subset_limit=limit,
        )

    inputs = tensors(made, SHAPES, permuted=False)
    check(inputs)
    if made.optional:
        absent = names.index("b")
        check([None if k == absent else item for k, item in enumerate(inputs)], 8)
    if not any(step.kind == "dropout" for step in made.steps):
        # a random mask depends on the strides of what it is like
        check(tensors(made, SHAPES, permuted=True), 1)
    empty = {**SHAPES, "full": (0, 3), "col": (0, 1)}
    check(tensors(made, empty, permuted=False), 1)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "seed", in_every_run(range(40), range(20), pytest.mark.each_commit)
)
def test_random_ops_have_their_gradients(seed: int) -> None:
    check_program(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(40, 3000, 20))
def test_many_random_ops_have_their_gradients(first: int) -> None:
    for seed in range(first, first + 20):
        check_program(seed)
