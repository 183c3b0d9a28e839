"""What an op asks of itself: dims that stand for any number, and which inputs have a gradient."""

import pytest

from scaffold.spec.op_spec import (
    Dim,
    TensorInput,
    is_leading,
    is_size_name,
    leading,
)


@pytest.mark.parametrize(
    ("dim", "any_number", "named"),
    [
        *(("...", True, False), ("*batch", True, False)),
        *(("N", False, True), (3, False, False)),
    ],
)
def test_a_dim_is_a_name_a_size_or_any_number(
    dim: Dim, any_number: bool, named: bool
) -> None:
    assert (is_leading(dim), is_size_name(dim)) == (any_number, named)


def test_the_dim_that_stands_for_any_number_is_found_wherever_it_is() -> None:
    assert leading(("B", "*batch", "D")) == "*batch"
    assert leading(("...", 3)) == "..."
    assert leading(("B", 3)) is None
    assert leading(None) is None


@pytest.mark.parametrize(
    ("tensor", "differentiable"),
    [
        (TensorInput("x"), True),
        (TensorInput("x", dtype="complex"), True),
        (TensorInput("x", const=True), False),
        (TensorInput("x", dtype="index"), False),
        (TensorInput("x", dtype="bool"), False),
    ],
)
def test_a_gradient_is_of_what_is_floating_and_no_constant(
    tensor: TensorInput, differentiable: bool
) -> None:
    assert tensor.differentiable is differentiable
