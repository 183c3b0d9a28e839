"""What the generated test asks of gradcheck: a projection of the derivative where there are many elements."""

from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.render.testcases import plan_making
from scaffold.render.testclaims import MANY, claims, is_batched
from scaffold.render.testclaims import options as options_of
from scaffold.render.testvalues import enlarged
from tests.derive.building import spec_of


def options(inputs: str, forward: str = "x * x", **keys: Any) -> dict[str, str]:
    spec = spec_of(inputs, forward=forward, derive=True, **keys)
    assert is_batched(spec, derive(spec))
    return options_of(spec, plan_making(spec))


@pytest.mark.parametrize("inputs", ["x[..., D]", "x", f"x[{MANY}]", "x[A, B, C, D]"])
def test_a_few_elements_are_checked_one_by_one(inputs: str) -> None:
    assert options(inputs) == {}


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        (f"x[{MANY + 1}]", "x * x"),
        ("x[A, B, C, D], y[A, B, C, D, 2]", "x.sum() * y"),
        ("x[..., A, B, C, 3]", "x * x"),
    ],
)
def test_many_elements_are_projected(inputs: str, forward: str) -> None:
    assert options(inputs, forward) == {"fast_mode": "True"}


def test_only_what_has_a_gradient_counts() -> None:
    assert not options(f"x[D], y[{MANY + 1}; const]", "x * y.sum()")


def test_what_the_user_states_goes_first() -> None:
    stated = options(f"x[{MANY + 1}]", tolerance={"fast_mode": False})
    assert stated == {"fast_mode": "False"}


@pytest.mark.parametrize(
    ("inputs", "forward", "expected"),
    [
        ("x[N], s[1; positive]", "torch.clamp(x / s, -128, 127) * s", ("x",)),
        ("x[N], y[N]", "x.clip(-9, 9) * y", ("x", "y")),
        ("x[N]", "x * x", ()),
    ],
)
def test_large_values_are_tried_where_there_is_a_limit(
    inputs: str, forward: str, expected: tuple[str, ...]
) -> None:
    assert enlarged(spec_of(inputs, forward=forward, derive=True)) == expected


@pytest.mark.parametrize(
    ("inputs", "arguments"),
    [
        ("x", '"shape": (5, 207)'),
        ("x[...]", '"batch": (5, 207)'),
        ("x[..., N]", '"batch": (345,)'),
        ("x[N, M]", '"N": 1035'),
        ("x[N, N, M]", '"M": 1035'),
        ("s[], x[N]", '"N": 1035'),
    ],
)
def test_a_kernel_element_by_element_runs_in_several_programs(
    inputs: str, arguments: str
) -> None:
    forward = "x.sigmoid() * s" if "s[]" in inputs else "x.sigmoid()"
    spec = spec_of(inputs, forward=forward, derive=True, kernels=["triton"])
    found = claims(spec, derive(spec), plan_making(spec), compared=True)
    cases = next(claim for claim in found if claim.name == "kernel_cases")
    assert cases.value == f'{{"two programs": {{{arguments}}}}}'
