"""What the generated test asks of gradcheck: a projection of the derivative where there are many elements."""

from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.render.testcases import plan_making
from scaffold.render.testgradients import MANY, first_options, second_options
from tests.derive.building import spec_of


def options(inputs: str, forward: str = "x * x", **keys: Any) -> tuple[str, str]:
    spec = spec_of(inputs, forward=forward, derive=True, **keys)
    making = plan_making(spec)
    return first_options(spec, derive(spec), making), second_options(spec, making)


@pytest.mark.parametrize("inputs", ["x[..., D]", "x", f"x[{MANY}]", "x[A, B, C, D]"])
def test_a_few_elements_are_checked_one_by_one(inputs: str) -> None:
    assert options(inputs) == ("check_batched_grad=True, check_grad_dtypes=True", "")


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        (f"x[{MANY + 1}]", "x * x"),
        ("x[A, B, C, D], y[A, B, C, D, 2]", "x.sum() * y"),
        ("x[..., A, B, C, 3]", "x * x"),
    ],
)
def test_many_elements_are_projected(inputs: str, forward: str) -> None:
    first, second = options(inputs, forward)
    assert "fast_mode=True" in first
    assert second == ", fast_mode=True"


def test_only_what_has_a_gradient_counts() -> None:
    first, _ = options(f"x[D], y[{MANY + 1}; const]", "x * y.sum()")
    assert "fast_mode" not in first


def test_what_the_user_states_goes_first() -> None:
    first, second = options(f"x[{MANY + 1}]", tolerance={"fast_mode": False})
    assert "fast_mode=False" in first and "fast_mode=True" not in first
    assert second == ", fast_mode=False"
