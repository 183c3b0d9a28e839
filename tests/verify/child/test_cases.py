"""What is wrong with samples is said of their function."""

from typing import Any

import pytest
import torch

from scaffold.verify.child.cases import SamplesError, sampled
from tests.verify.ops import texts

X = torch.ones(2, dtype=torch.float64)
HINT = "return a list of calls, each with a value for every input: [(x, y)]"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((X, X), "make()[0] is a Tensor, not the values of a call"),
        ({"x": X, "y": X}, "make() returns a dict, not a list of calls"),
        (X, "make() returns a Tensor, not a list of calls"),
        ([], "make() returns nothing, not a list of calls"),
        (None, "make() returns nothing, not a list of calls"),
        ([(X, X), (X,)], "make()[1] has 1 value, the op's inputs are x, y"),
        ([(X, X, 2)], "make()[0] has 3 values, the op's inputs are x, y"),
        ([{"x": X}], "make()[0] is a dict, not the values of a call"),
    ],
)
def test_what_is_no_list_of_calls(found: Any, words: str) -> None:
    def make() -> Any:
        return found

    with pytest.raises(SamplesError) as raised:
        sampled(make, ("x", "y"))
    assert (raised.value.words, raised.value.hint) == (words, HINT)


def test_a_function_that_raises() -> None:
    def make() -> Any:
        raise ValueError("no")

    with pytest.raises(SamplesError, match=r"make\(\) raised ValueError: no"):
        sampled(make, ("x",))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_tensors(count: int) -> None:
    def make() -> Any:
        return [(X,) * count]

    assert sampled(make, ("x", "*ys")) is make


def test_a_proof_asks_it() -> None:
    assert "sampled" not in texts(inputs="x[N]", forward="x * 2").checks
