"""Ops of others: the gradient is autograd's, with and without declared shapes, and few of them fall back."""

import re
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from scaffold.derive import derive
from scaffold.spec import OpSpec
from tests.derive.building import load, spec_of, text_of
from tests.derive.cases import Case
from tests.derive.checking import check_needs
from tests.derive.ops_of_others import ONCE, OPS, SURROGATES
from tests.derive.test_cases import non_contiguous, without_rows

BY_NAME = {case.name: case for case in OPS}
SHAPE = re.compile(r"(?<=\w)\[([^\]]*)\]")
# A statistic over no rows is not a number, and `det` is derived by the inverse.
# What is not declared is taken for a matrix in a product.
VECTORS = {"additive_attention", "gat_edge_scores", "einsum_kinds", "complex_out"}
VECTORS |= {"spectral_norm_power"}
NEVER_EMPTY = {"dice_act", "kabsch_cov"}


class Made(NamedTuple):
    """An op as it was derived, as a module, and its plain forward."""

    spec: OpSpec
    text: str
    function: Any
    wrapper: Any
    plain: Any


def undeclared(inputs: str) -> str:
    """A signature without the shapes."""

    def left(match: re.Match[str]) -> str:
        if inputs[: match.start()].endswith(": tuple"):
            return match[0]
        trait = match[1].partition(";")[2].strip()
        trait = re.sub(r"index\(\w+\)", "int", trait)
        return f"[; {trait}]" if trait else ""

    return SHAPE.sub(left, inputs)


VARIANTS = [
    (case.name, typed)
    for case in OPS
    for typed in (True, False)
    if typed or (undeclared(case.inputs) != case.inputs and case.name not in VECTORS)
]


@cache
def made(name: str, typed: bool) -> Made:
    case = BY_NAME[name]
    inputs = case.inputs if typed else undeclared(case.inputs)
    options: dict[str, Any] = {"forward": case.forward, "outputs": case.outputs}
    spec = spec_of(inputs, derive=True, **options)
    derivation = derive(spec)
    assert not derivation.missing, derivation.notes
    text = text_of(spec, derivation)
    module = load(text)
    skeleton = load(text_of(spec_of(inputs, **options, derive=False)))
    plain = getattr(skeleton, spec.function_name).forward
    function = getattr(module, spec.function_name)
    return Made(spec, text, function, getattr(module, spec.name), plain)


def may_need(op: Made, inputs: tuple[Any, ...]) -> tuple[bool, ...]:
    """Which of the inputs can have a gradient."""
    wanted = {item.name for item in op.spec.differentiable}
    return tuple(
        isinstance(item, Tensor) and entry.name in wanted
        for entry, item in zip(op.spec.inputs, inputs, strict=True)
    )


def runs(op: Made, inputs: tuple[Any, ...]) -> bool:
    """Whether the forward itself takes the inputs, and gives numbers."""
    try:
        result = op.plain(*inputs)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
        return False
    results = result if isinstance(result, tuple) else (result,)
    return all(bool(torch.isfinite(item).all()) for item in results)


def samples(case: Case) -> list[tuple[Any, ...]]:
    torch.manual_seed(7)
    return case.samples()


@pytest.mark.parametrize(("name", "typed"), VARIANTS)
def test_gradients_are_those_of_autograd(name: str, typed: bool) -> None:
    op = made(name, typed)
    once = name in ONCE
    for inputs in samples(BY_NAME[name]):
        may = may_need(op, inputs)
        for needs in product(*((True, False) if can else (False,) for can in may)):
            if sum(needs) in (1, sum(may)):
                check_needs(
                    op.function, op.wrapper, op.plain, inputs, needs, once, False
                )
        others = [tuple(map(non_contiguous, inputs)), without_rows(inputs)]
        for other in others[: 1 if name in NEVER_EMPTY else 2]:
            if other is not None and runs(op, other):
                check_needs(op.function, op.wrapper, op.plain, other, may, once, False)


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in SURROGATES])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    op = made(name, True)
    for inputs in samples(BY_NAME[name]):
        tensors = [
            item.detach().requires_grad_() if need else item
            for item, need in zip(inputs, may_need(op, inputs), strict=True)
        ]
        options: dict[str, Any] = {"check_undefined_grad": False, "fast_mode": True}
        assert gradcheck(op.function.apply, tensors, **options)
        assert name in ONCE or gradgradcheck(op.function.apply, tensors, **options)


def test_few_fall_back() -> None:
    falls = [item for item in VARIANTS if "torch.func.vjp" in made(*item).text]
    assert len(falls) <= len(VARIANTS) * 6 // 100, falls
