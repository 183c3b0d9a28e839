"""Sizes that an op is measured with."""

import math

import pytest

from scaffold.errors import ScaffoldError
from scaffold.render.large_sizes import ELEMENTS, large_sizes, make_arguments
from tests.derive.building import spec_of


def test_the_largest_input_is_as_large_as_may_be() -> None:
    spec = spec_of("x[..., D], weight[D], eps: float = 1e-6", forward="x * weight")
    sizes = large_sizes(spec, {})
    elements = math.prod((*sizes["..."], *sizes["D"]))
    assert ELEMENTS / 4 < elements <= ELEMENTS
    assert make_arguments(spec, {"...": (2, 3), "D": (4,)}) == {"batch": (2, 3), "D": 4}


def test_what_is_stated_stands_and_leaves_room_for_others() -> None:
    spec = spec_of("x[*rows, D], y[*rows, D]", forward="x * y")
    sizes = large_sizes(spec, {"D": (1 << 15,)})
    assert sizes == {"D": (1 << 15,), "rows": (16,)}
    assert make_arguments(spec, sizes) == {"D": 1 << 15, "rows": (16,)}


def test_all_inputs_of_no_declared_shape_have_one() -> None:
    spec = spec_of("x, y", forward="x * y")
    assert large_sizes(spec, {}) == {"...": (512, 768)}
    assert make_arguments(spec, {"...": (4, 5)}) == {"shape": (4, 5)}


def test_conditions_hold_where_sizes_are_chosen() -> None:
    spec = spec_of(
        "x[N, D], y[N, half], classes: int = 3",
        forward="(x[:, ::2] * y)[:, :classes]",
        require=["D == 2 * half"],
    )
    sizes = large_sizes(spec, {})
    assert sizes["D"][0] == 2 * sizes["half"][0] > 64
    assert "classes" not in sizes


def test_a_name_that_is_no_dim_is_refused() -> None:
    spec = spec_of("x[rows, D]", forward="x * 2")
    with pytest.raises(ScaffoldError) as caught:
        large_sizes(spec, {"row": (3,)})
    assert (caught.value.message, caught.value.hint) == (
        "no dim 'row'",
        "did you mean 'rows'?",
    )
