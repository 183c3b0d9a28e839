"""Test sizes are as large as the indices of the forward count on."""

import pytest

from scaffold.formula import emit
from scaffold.render.indexed_sizes import reaches
from scaffold.render.sizes_of_tests import choose_sizes
from tests.render.test_divided_sizes import op


@pytest.mark.parametrize(
    ("inputs", "forward", "conditions"),
    [
        ("x[B, T]", "x[:, 3] - x[:, 1]", ["T >= 4"]),
        ("x[B, T]", "x[:, -4] * x[5]", ["T >= 4", "B >= 6"]),
        ("x[..., D]", "x[..., 3]", ["D >= 4"]),
        ("x[T, ..., D]", "x[2, ..., 3]", ["T >= 3", "D >= 4"]),
        ("x[B, T, D]", "x[..., 4, :]", ["T >= 5"]),
        ("x[B, T]", "x[None, :, 4]", ["T >= 5"]),
        ("x[B, T]", "torch.cat((x[:, :2], x[:, 2:]), -1)", ["T >= 4"]),
        ("x[B, T]", "x[:, :-1] * x[:, 1:]", ["T >= 3"]),
        ("x[B, T]", "x[:, 0:] * x[:, -5:]", ["T >= 7"]),
        ("x[B, T]", "x[:, :100]", []),  # which is all of a smaller one
        ("x[B, T]", "x[:, 100]", ["T >= 101"]),
        ("x[B, T]", "x.select(-1, 4)", ["T >= 5"]),
        ("x[B, T]", "x.narrow(1, 2, 3)", ["T >= 5"]),
        ("x[..., T]", "x.select(0, 4)", []),  # a leading dim, or T
        ("x[B, 3]", "x[:, 2]", []),
        ("x", "x[:, 2]", []),
        ("x[B, T], n: int = 4", "x[:, :n]", []),
    ],
)
def test_what_an_index_counts_on(
    inputs: str, forward: str, conditions: list[str]
) -> None:
    found = reaches(op(inputs, forward))
    assert [emit(item.result) for item in found if item.result] == conditions


def test_sizes_are_as_large() -> None:
    assert choose_sizes(op("x[B, T]", "x[:, 3]")) == {"B": 2, "T": 4}


def test_what_is_divided_goes_first() -> None:
    """No size up to 128 would do both."""
    forward = "x.unflatten(-1, (3, -1)).sum((-1, -2)) * x[:, 127]"
    assert choose_sizes(op("x[B, D]", forward))["D"] % 3 == 0


def test_what_is_required_goes_first() -> None:
    assert choose_sizes(op("x[B, T]", "x[:, 3]", require="T == 3"))["T"] == 3
