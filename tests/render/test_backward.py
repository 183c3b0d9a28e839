"""The text of backward: the tests that its branches stand under."""

import pytest

from scaffold.render.backward import any_needed
from tests.derive.building import spec_of

INPUTS = "a, b, size: int, c, d, e, *xs"


@pytest.mark.parametrize(
    ("names", "test"),
    [
        ("b", "ctx.needs_input_grad[1]"),
        ("b a", "ctx.needs_input_grad[0] or ctx.needs_input_grad[1]"),
        ("c d e", "any(ctx.needs_input_grad[3:6])"),
        ("a c d e", "ctx.needs_input_grad[0] or any(ctx.needs_input_grad[3:6])"),
        (
            "b c d",
            "ctx.needs_input_grad[1] or ctx.needs_input_grad[3] or ctx.needs_input_grad[4]",
        ),
        ("e xs", "ctx.needs_input_grad[5] or any(ctx.needs_input_grad[6:])"),
    ],
)
def test_the_flags_of_inputs_that_stand_side_by_side_are_a_slice(
    names: str, test: str
) -> None:
    spec = spec_of(INPUTS, forward="a * b + c * d + e * size + sum(xs)")
    assert any_needed(spec, names.split()) == test


def test_the_flags_of_the_first_inputs_are_a_slice() -> None:
    spec = spec_of("a, b, c, d", forward="a * b + c * d")
    assert any_needed(spec, ["a", "b", "c"]) == "any(ctx.needs_input_grad[:3])"
