"""Ops of others: the gradient is autograd's, with and without declared shapes, and few of them fall back."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from scaffold.derive import Derivation, derive
from scaffold.spec import OpSpec
from tests.derive.building import draft_of, load, overlong, reference, spec_of
from tests.derive.cases import Case
from tests.derive.checking import check_needs, is_once
from tests.derive.ops_of_others import ONCE, OPS, SURROGATES
from tests.derive.published import DETACHED, PUBLISHED
from tests.derive.published.loops import LOOPS
from tests.derive.published.training import TRAINING
from tests.derive.representative import REPRESENTATIVE
from tests.derive.test_cases import non_contiguous, samples, without_rows
from tests.sweeps import in_every_run, pairs_in_every_run

NEW = {case.name: case for case in PUBLISHED}
BY_NAME = {case.name: case for case in OPS} | NEW
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


def variants(several: Iterable[Case]) -> list[tuple[str, bool]]:
    """Each op, with its shapes and without."""
    return [
        (case.name, typed)
        for case in several
        for typed in (True, False)
        if typed
        or (undeclared(case.inputs) != case.inputs and case.name not in VECTORS)
    ]


EVERY = variants(BY_NAME.values())
# Autograd, which all are compared with, is itself trusted: of finite differences a few are enough.
DIFFERENCED = {name for name, _ in REPRESENTATIVE[:8]}


# What a user may ask for beside the policy, and what it is called.
SETTINGS: dict[str, dict[str, Any]] = {
    "recompute": {"save_policy": "recompute"},
    "balanced": {},
    "once": {"once_differentiable": True},
    "combined": {"style": "combined"},
    "once apart": {"once_differentiable": True, "style": "setup-context"},
}


# One has a `while` over ranks.
WITH_LOOPS = {"min_snr_weighted", *(case.name for case in LOOPS)}
FALLS = re.compile(r"autograd differentiates (that call|the forward)")


@cache
def derived(
    name: str, typed: bool, setting: str = "balanced"
) -> tuple[OpSpec, Derivation]:
    case = BY_NAME[name]
    inputs = case.inputs if typed else undeclared(case.inputs)
    outputs = case.outputs if typed else undeclared(case.outputs)
    options: dict[str, Any] = {"forward": case.forward, "outputs": outputs}
    spec = spec_of(inputs, derive=True, **options, **SETTINGS[setting])
    return spec, derive(spec)


@cache
def made(name: str, typed: bool, setting: str = "balanced") -> Made:
    spec, derivation = derived(name, typed, setting)
    if derivation.missing and spec.style == "combined":
        assert 'style = "setup-context"' in derivation.notes[0]
        pytest.skip(derivation.notes[0])
    assert not derivation.missing, derivation.notes
    text = draft_of(spec, derivation)
    module = load(text)
    plain = reference([item.name for item in spec.inputs], BY_NAME[name].forward)
    if any(item.optional for item in spec.tensors):  # a term of one may be left out
        skeleton = draft_of(replace(spec, derive=False, style="setup-context"))
        plain = getattr(load(skeleton), spec.function_name).forward
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
    """Whether the forward itself takes the inputs, and gives numbers, and they are of the declared shapes."""
    try:
        with torch.no_grad():
            op.function.apply(*inputs)
        result = op.plain(*inputs)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
        return False
    results = result if isinstance(result, tuple) else (result,)
    return all(bool(torch.isfinite(item).all()) for item in results)


# Those that reach the most come first; what the others add to them is a call or two each.
@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("name", "typed"),
    pairs_in_every_run(REPRESENTATIVE, REPRESENTATIVE[:28], pytest.mark.each_commit),
)
def test_gradients_are_those_of_autograd(name: str, typed: bool) -> None:
    check_gradients(name, typed, "recompute")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "typed"), [one for one in EVERY if one not in {*REPRESENTATIVE}]
)
def test_gradients_of_the_others(name: str, typed: bool) -> None:
    check_gradients(name, typed, "recompute")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "typed"), EVERY)
def test_gradients_of_what_is_saved(name: str, typed: bool) -> None:
    check_gradients(name, typed, "balanced")


@pytest.mark.exhaustive
@pytest.mark.parametrize("setting", [*SETTINGS][2:])
@pytest.mark.parametrize(("name", "typed"), EVERY)
def test_gradients_under_other_settings(name: str, typed: bool, setting: str) -> None:
    if setting == "combined" and name in WITH_LOOPS:
        pytest.skip("a combined forward cannot hold a loop")
    check_gradients(name, typed, setting)


def check_gradients(name: str, typed: bool, setting: str) -> None:
    """Against autograd: each input alone, all together, other layouts, no rows. And the lines fit."""
    op = made(name, typed, setting)
    assert not overlong(op.text)
    once = name in ONCE or is_once(op.text)
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


@pytest.mark.parametrize(
    "name",
    in_every_run(
        [name for name in BY_NAME if name not in SURROGATES | DETACHED], DIFFERENCED
    ),
)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    op = made(name, True)
    once = name in ONCE or is_once(op.text)
    for inputs in samples(BY_NAME[name]):
        tensors = [
            item.detach().requires_grad_() if need else item
            for item, need in zip(inputs, may_need(op, inputs), strict=True)
        ]
        options: dict[str, Any] = {"check_undefined_grad": False, "fast_mode": True}
        assert gradcheck(op.wrapper, tensors, **options)
        assert once or gradgradcheck(op.wrapper, tensors, **options)


@pytest.mark.each_commit
@pytest.mark.parametrize(("name", "typed"), EVERY)
def test_its_lines_fit(name: str, typed: bool) -> None:
    assert not overlong(draft_of(*derived(name, typed)))


@pytest.mark.exhaustive
def test_few_fall_back() -> None:
    falls = [item for item in EVERY if FALLS.search(str(derived(*item)[1].notes))]
    assert 0 < len(falls) <= len(EVERY) * 6 // 100, falls


@pytest.mark.each_commit
def test_what_training_code_does_is_derived() -> None:
    several = variants(TRAINING)
    falls = [item for item in several if FALLS.search(str(derived(*item)[1].notes))]
    assert several and falls == [
        ("min_snr_weighted", True),  # has a `while` over ranks
        ("min_snr_weighted", False),
        # Without shapes nothing tells what an optional weight broadcasts the losses to.
        ("asymmetric_multilabel", False),
    ]


@pytest.mark.parametrize(
    "name",
    ["teacher_by_addition", "sequence_log_probs", "depth_normals"]
    + ["triplane_features", "multi_resolution_stft", "dino_loss"],
)
def test_gradients_of_what_was_rewritten(name: str) -> None:
    check_gradients(name, True, "recompute")


def test_what_runs_every_time_is_known() -> None:
    assert {*REPRESENTATIVE} <= {*EVERY}
    assert len({*REPRESENTATIVE}) == len(REPRESENTATIVE)
