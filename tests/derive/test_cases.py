"""The development cases: what is derived is the derivative, and reads as an author would write it."""

import re
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from scaffold.derive import Derivation, derive
from scaffold.spec import OpSpec
from tests.derive.building import backward_of, draft_of, load, spec_of, text_of
from tests.derive.cases import CASES, Case
from tests.derive.checking import check_needs
from tests.sweeps import in_every_run

NAMES = [case.name for case in CASES]
BY_NAME = {case.name: case for case in CASES}
NUMBERED = re.compile(r"^ *(tmp|temp|scaled|node|var)_?\\d* = ")


class Made(NamedTuple):
    """An op as it was derived, and as a module; `plain` has the same forward and no backward."""

    spec: OpSpec
    derivation: Derivation
    text: str
    function: Any
    wrapper: Any
    plain: Any


@cache
def made(name: str) -> Made:
    case = BY_NAME[name]
    options: dict[str, Any] = {"forward": case.forward, "outputs": case.outputs}
    spec = spec_of(case.inputs, derive=True, **options)
    derivation = derive(spec)
    text = text_of(spec, derivation)
    module, skeleton = load(text), load(draft_of(spec_of(case.inputs, **options)))
    plain = getattr(skeleton, spec.function_name)
    function = getattr(module, spec.function_name)
    return Made(spec, derivation, text, function, getattr(module, spec.name), plain)


def samples(case: Case) -> list[tuple[Any, ...]]:
    torch.manual_seed(7)
    return case.samples()


def may_need(op: Made, inputs: tuple[Any, ...]) -> list[bool]:
    """Which of the inputs can have a gradient."""
    wanted = {item.name for item in op.spec.differentiable}
    names = [item.name for item in op.spec.inputs]
    return [
        isinstance(item, Tensor) and name in wanted
        for name, item in zip(names, inputs, strict=True)
    ]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "name", in_every_run(NAMES, NAMES[::3], pytest.mark.each_commit)
)
def test_gradients_are_those_of_autograd(name: str) -> None:
    op = made(name)
    assert not op.derivation.missing, op.derivation.notes
    for inputs in samples(BY_NAME[name]):
        choices = [(True, False) if can else (False,) for can in may_need(op, inputs)]
        for needs in product(*choices):
            if any(needs):
                reference = op.plain.forward
                check_needs(
                    op.function, op.wrapper, reference, inputs, needs, False, False
                )


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", in_every_run(NAMES, NAMES[::5]))
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    op = made(name)
    for inputs in samples(BY_NAME[name]):
        needs = may_need(op, inputs)
        tensors = [
            item.detach().requires_grad_() if need else item
            for item, need in zip(inputs, needs, strict=True)
        ]
        options: dict[str, Any] = {"check_undefined_grad": False, "fast_mode": True}
        assert gradcheck(op.wrapper, tensors, **options)
        assert gradgradcheck(op.wrapper, tensors, **options)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "name", in_every_run(NAMES, NAMES[1::3], pytest.mark.each_commit)
)
def test_other_layouts_and_no_elements(name: str) -> None:
    op = made(name)
    for inputs in samples(BY_NAME[name]):
        needs = tuple(may_need(op, inputs))
        strided = tuple(map(non_contiguous, inputs))
        check_needs(
            op.function, op.wrapper, op.plain.forward, strided, needs, False, False
        )
    empty = without_rows(samples(BY_NAME[name])[0])
    if empty is not None and runs(op, empty):
        needs = tuple(may_need(op, empty))
        check_needs(
            op.function, op.wrapper, op.plain.forward, empty, needs, False, False
        )


def non_contiguous(item: Any) -> Any:
    """The same values in another order of memory."""
    if not isinstance(item, Tensor) or item.ndim < 2:
        return item
    return item.transpose(0, -1).contiguous().transpose(0, -1)


def without_rows(inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The inputs with nothing in what is the first dimension of the first one."""
    first = inputs[0]
    if not isinstance(first, Tensor) or first.ndim < 2:
        return None
    rows = first.shape[0]
    return tuple(
        (
            item[:0]
            if isinstance(item, Tensor) and item.ndim > 1 and item.shape[0] == rows
            else item
        )
        for item in inputs
    )


def runs(op: Made, inputs: tuple[Any, ...]) -> bool:
    """Whether the forward itself takes the inputs, and gives numbers, and they are of the declared shapes."""
    try:
        with torch.no_grad():
            op.function.apply(*inputs)
        result = op.plain.forward(*inputs)
    except (RuntimeError, IndexError, ValueError):
        return False
    first = result[0] if isinstance(result, tuple) else result
    return bool(torch.isfinite(first).all())


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_well(name: str) -> None:
    text = made(name).text
    assert max(map(len, re.sub("  # type: ignore.*", "", text).splitlines())) <= 88
    for line in backward_of(text).splitlines():
        assert not NUMBERED.match(line), line


def test_few_fall_back() -> None:
    falls = [name for name in NAMES if "torch.func.vjp" in made(name).text]
    assert len(falls) <= len(NAMES) // 20, falls


@pytest.mark.parametrize(
    "name",
    [case.name for case in CASES if "[" in case.inputs and "..." not in case.inputs],
)
def test_no_sum_is_redundant_where_shapes_are_declared(name: str) -> None:
    assert "sum_to_size" not in made(name).text
