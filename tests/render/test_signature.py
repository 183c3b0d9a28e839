"""Signatures of generated code."""

import pytest

from scaffold.errors import Location
from scaffold.render.signature import (
    annotation,
    arguments,
    call_arguments,
    parameters,
    parameters_with_defaults,
    result_type,
)
from scaffold.spec import Input
from scaffold.spec.signature import parse_inputs


def inputs(text: str) -> tuple[Input, ...]:
    return parse_inputs(text, Location("--inputs"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x, bias?", "x: Tensor, bias: Tensor | None = None"),
        ("x?, y", "x: Tensor | None, y: Tensor"),
        ("x, eps: float = 1e-5", "x: Tensor, eps: float = 1e-5"),
        ("*xs, dim: int = 0", "*xs: Tensor, dim: int = 0"),
    ],
)
def test_a_default_stands_where_all_after_it_have_one(text: str, expected: str) -> None:
    assert parameters_with_defaults(inputs(text)) == expected


def test_without_defaults_any_number_of_tensors_comes_last() -> None:
    items = inputs("x, bias?, *xs, eps: float = 1e-5")
    assert (
        parameters(items) == "x: Tensor, bias: Tensor | None, eps: float, *xs: Tensor"
    )
    assert arguments(items) == "x, bias, eps, *xs"


def test_what_is_given_by_keyword_comes_last() -> None:
    eps, several = inputs("*xs, eps: float = 1e-5")
    assert call_arguments([(eps, "2.0"), (several, "a, b")]) == "a, b, eps=2.0"


def test_types_that_python_calls_otherwise() -> None:
    assert [annotation(item) for item in inputs("x, kind: dtype, thing: object")] == [
        "Tensor",
        "torch.dtype",
        "Any",
    ]


@pytest.mark.parametrize(
    ("count", "variadic", "expected"),
    [
        (1, False, "Tensor"),
        (2, False, "tuple[Tensor, Tensor]"),
        (1, True, "tuple[Tensor, ...]"),
    ],
)
def test_the_type_of_a_result(count: int, variadic: bool, expected: str) -> None:
    assert result_type(count, variadic) == expected
