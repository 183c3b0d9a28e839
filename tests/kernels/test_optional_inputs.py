"""Optional inputs: the number that stands in the place of an absent one."""

import pytest

from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.kernels.optional_inputs import with_all
from tests.derive.building import spec_of

INPUTS = "x[N, D], weight[D]?, bias[D]?"


def test_a_weight_is_one_and_a_bias_zero() -> None:
    forward = (
        "y = x * weight if weight is not None else x\n"
        "return y + bias if bias is not None else y"
    )
    whole, numbers = with_all(spec_of(INPUTS, "op", forward=forward))
    assert {name: float(text) for name, text in numbers.items()} == {
        "weight": 1,
        "bias": 0,
    }
    assert not any(item.optional for item in whole.tensors)


def test_no_number_stands_for_a_choice_between_two_formulas() -> None:
    forward = "x + bias if bias is not None else torch.exp(x)"
    with pytest.raises(UnsupportedError, match="neither 0 nor 1 can replace it"):
        with_all(spec_of("x[N, D], bias[D]?", "op", forward=forward))


def test_a_test_of_several_inputs_is_settled() -> None:
    forward = (
        "if weight is None and not bias is not None:\n    y = x\n"
        "elif weight is None:\n    y = x + bias\n"
        "elif bias is None:\n    y = x * weight\n"
        "else:\n    y = x * weight + bias\n"
        "return y"
    )
    _, numbers = with_all(spec_of(INPUTS, "op", forward=forward))
    assert numbers == {"weight": "1.0", "bias": "0.0"}
