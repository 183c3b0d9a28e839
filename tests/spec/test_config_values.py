"""Conventional shapes and the parameters that a module takes by their names."""

import pytest

from scaffold.spec import Configuration
from tests.spec.written import op

LINEAR = (
    ("input", ("N", "in_features")),
    ("weight", ("out_features", "in_features")),
    ("bias", ("out_features",)),
)


@pytest.mark.parametrize(
    ("inputs", "shapes"),
    [
        ("input, weight, bias?", LINEAR),
        ("weight, x, input", (LINEAR[1], LINEAR[0])),
        ("input, weight, eps: float", LINEAR[:2]),
        ("input[N, D], weight", ()),  # the user declares shapes: all of them
        ("x, weight, bias", ()),  # may be a norm
        ("input", ()),
        ("input, *weight", ()),
        ("input, weight, bias: bool", ()),
        ("input, weight, in_features: int", ()),
    ],
)
def test_shapes_by_convention(
    inputs: str, shapes: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    assert op(f"inputs = '{inputs}'").conventional == shapes


def test_the_configuration_states_conventions_and_parameters() -> None:
    mine = Configuration(
        conventions=((("x", ("N", "D")), ("g", ("D",))),), parameter_names=("g",)
    )
    found = op("inputs = 'x, g, weight'", configuration=mine)
    assert found.conventional == (("x", ("N", "D")), ("g", ("D",)))
    assert found.module is not None and found.module.parameters == ("g",)
    plain = Configuration(conventions=(), parameter_names=())
    assert op("inputs = 'input, weight'", configuration=plain).conventional == ()


def test_a_size_of_a_convention_can_be_required() -> None:
    text = "inputs = 'input, weight'\nrequire = ['in_features % 2 == 0']"
    assert len(op(text).require) == 1
