"""Tests of the custom operator nearest_code."""

from collections.abc import Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from nearest_code import NearestCode, nearest_code

DIFFERENTIABLE = ("x", "codes")
CASES: dict[str, dict[str, Any]] = {"base": {}}
EMPTY_CASES: dict[str, dict[str, Any]] = {
    "N=0": {"N": 0},
    "D=0": {"D": 0},
    "K=0": {"K": 0},
}


def make(
    *,
    N: int = 2,
    D: int = 3,
    K: int = 4,
    needs: Collection[str] = DIFFERENTIABLE,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(0)
    inputs = {
        "x": torch.randn(N, D, dtype=torch.double),
        "codes": torch.randn(K, D, dtype=torch.double),
    }
    return tuple(value.requires_grad_(name in needs) for name, value in inputs.items())


def reference(x: Tensor, codes: Tensor) -> Tensor:
    """nearest_code in plain PyTorch."""
    return torch.cdist(x, codes).argmin(-1)


@pytest.fixture(params=[*CASES, *EMPTY_CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of `make`; an empty tensor only where PyTorch allows it."""
    if request.param in CASES:
        return CASES[request.param]
    arguments = EMPTY_CASES[request.param]
    inputs = make(**arguments)
    try:
        output = reference(*inputs)
        values = (output,)
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        pytest.skip(f"PyTorch: {error}")
    if not all(value.isfinite().all() for value in values):
        pytest.skip("not finite")
    return arguments


def test_forward_matches_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    assert_close(nearest_code(*inputs), reference(*inputs))


def test_output_requires_no_grad(case: dict[str, Any]) -> None:
    assert not nearest_code(*make(**case)).requires_grad


def build() -> NearestCode:
    return NearestCode()


def test_module_calls_nearest_code() -> None:
    inputs = make()
    module = build()
    expected = nearest_code(inputs[0], inputs[1])
    assert_close(module(inputs[0], inputs[1]), expected)
