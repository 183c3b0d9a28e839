"""`--save-policy balanced`: the development cases again, what is saved, and what is written over."""

from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from scaffold.derive import derive
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_needs
from tests.derive.random_forwards import drawn
from tests.derive.test_cases import (
    BY_NAME,
    NAMES,
    Made,
    may_need,
    non_contiguous,
    runs,
    samples,
    without_rows,
)
from tests.sweeps import pairs_in_every_run


@cache
def made(name: str, style: str) -> Made:
    case = BY_NAME[name]
    options: dict[str, Any] = {"forward": case.forward, "outputs": case.outputs}
    plain_text = draft_of(spec_of(case.inputs, derive=False, **options))
    spec = spec_of(
        case.inputs, derive=True, save_policy="balanced", style=style, **options
    )
    derivation = derive(spec)
    text = draft_of(spec, derivation)
    module, skeleton = load(text), load(plain_text)
    plain = getattr(skeleton, spec.function_name)
    function = getattr(module, spec.function_name)
    return Made(spec, derivation, text, function, getattr(module, spec.name), plain)


# What is saved is the same in both styles, and so is the backward but for what the forward of one can keep.
IN_STYLES = [(name, style) for name in NAMES for style in ("combined", "setup-context")]
IN_ONE = [(name, style) for name, style in IN_STYLES if style == "combined"]


@pytest.mark.parametrize(
    ("name", "style"), pairs_in_every_run(IN_STYLES, [*IN_ONE, *IN_STYLES[1::12]])
)
def test_gradients_are_those_of_autograd(name: str, style: str) -> None:
    """Each choice of the inputs that need one, and all with other strides."""
    op = made(name, style)
    assert not op.derivation.missing, op.derivation.notes
    once = op.derivation.once_differentiable
    for inputs in samples(BY_NAME[name]):
        may = tuple(may_need(op, inputs))
        choices = [(True, False) if can else (False,) for can in may]
        calls = [(inputs, needs) for needs in product(*choices) if any(needs)]
        calls.append((tuple(map(non_contiguous, inputs)), may))
        for given, needs in calls:
            reference = op.plain.forward
            check_needs(op.function, op.wrapper, reference, given, needs, once, False)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    op = made(name, "combined")
    for inputs in samples(BY_NAME[name]):
        tensors = [
            item.detach().requires_grad_() if need else item
            for item, need in zip(inputs, may_need(op, inputs), strict=True)
        ]
        assert gradcheck(op.function.apply, tensors, fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_no_elements(name: str) -> None:
    op = made(name, "combined")
    empty = without_rows(samples(BY_NAME[name])[0])
    if empty is None or not runs(op, empty):
        pytest.skip("the forward wants elements")
    once = op.derivation.once_differentiable
    needs = tuple(may_need(op, empty))
    check_needs(op.function, op.wrapper, op.plain.forward, empty, needs, once, False)


@pytest.mark.parametrize("name", NAMES)
def test_the_incoming_gradient_is_not_changed(name: str) -> None:
    """Nor an input, nor what is saved: the backward runs twice and gives the same."""
    op = made(name, "combined")
    for inputs in samples(BY_NAME[name]):
        needs = may_need(op, inputs)
        given = [
            item.detach().clone().requires_grad_() if need else item
            for item, need in zip(inputs, needs, strict=True)
        ]
        leaves = [item for item, need in zip(given, needs, strict=True) if need]
        results = op.function.apply(*given)
        first = results[0] if isinstance(results, tuple) else results
        if not first.requires_grad:
            continue
        grad = torch.randn_like(first)
        before = [item.detach().clone() for item in (grad, *leaves)]
        once = backward(first, leaves, grad)
        again = backward(first, leaves, grad)
        torch.testing.assert_close([grad, *leaves], before, rtol=0, atol=0)
        torch.testing.assert_close(again, once, rtol=0, atol=0)


def backward(output: Tensor, leaves: list[Tensor], grad: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(
        output, leaves, grad, retain_graph=True, allow_unused=True
    )
    return [torch.zeros(()) if item is None else item.clone() for item in found]


@pytest.mark.parametrize("first", range(0, 25, 25))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 25):
        check_random(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(25, 2000, 25))
def test_many_random_programs(first: int) -> None:
    for seed in range(first, first + 25):
        check_random(seed)


@pytest.mark.parametrize("seed", [485])
def test_what_changes_in_place_is_written_once(seed: int) -> None:
    """The gradient of a slice reads what it puts among zeros for its dtype as well."""
    check_random(seed)


def check_random(seed: int) -> None:
    program = drawn(seed)
    options: dict[str, Any] = {"forward": program.forward}
    spec = spec_of(
        program.inputs, derive=True, save_policy="balanced", style="combined", **options
    )
    derivation = derive(spec)
    module = load(draft_of(spec, derivation))
    skeleton = load(draft_of(spec_of(program.inputs, derive=False, **options)))
    count = len(program.values)
    alone = [tuple(at == only for at in range(count)) for only in range(count)]
    try:
        for needs in {(True,) * count, *alone}:
            check_needs(
                getattr(module, spec.function_name),
                getattr(module, spec.name),
                getattr(skeleton, spec.function_name).forward,
                program.values,
                needs,
                derivation.once_differentiable,
                False,
            )
    except Exception as error:
        error.add_note(f"seed {seed}: {program.inputs}\n{program.forward}")
        raise


@pytest.mark.parametrize("at", [0, 1])
def test_of_several_gradients_one_alone_may_come_in_batches(at: int) -> None:
    forward = "return torch.sin(x) * w, torch.sigmoid(w * x) * x"
    options: dict[str, Any] = {"outputs": "a, b", "save_policy": "balanced"}
    spec = spec_of("x[N], w[N]", forward=forward, derive=True, **options)
    function = getattr(load(draft_of(spec)), spec.name)
    x, w = (torch.randn(3).double().requires_grad_() for _ in range(2))
    plain = (torch.sin(x) * w, torch.sigmoid(w * x) * x)
    expected = torch.autograd.grad(plain[at], (x, w), torch.ones(3).double())
    batch = torch.eye(3).double()
    output = function(x, w)[at]
    found = torch.autograd.grad(output, (x, w), batch, is_grads_batched=True)
    for one, rows in zip(expected, found, strict=True):
        torch.testing.assert_close(rows.sum(0), one)
