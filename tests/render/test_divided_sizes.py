"""Test sizes leave no remainder where the forward divides them, and the quotient is more than one."""

from typing import Any

import pytest

from scaffold.formula import emit
from scaffold.render.divided_sizes import divisions
from scaffold.render.sizes_of_tests import allows, choose_sizes
from scaffold.spec import OpSpec
from tests.derive.building import spec_of


def op(inputs: str, forward: str, require: str = "") -> OpSpec:
    options: dict[str, Any] = {"require": [require]} if require else {}
    return spec_of(inputs, forward=forward, derive=True, **options)


@pytest.mark.parametrize(
    ("inputs", "forward", "conditions"),
    [
        (
            "x[B, H, W, C], ws: int = 2",
            "B, H, W, C = x.shape; return x.view(B, H // ws, ws, W // ws, ws, C)",
            ["H % ws == 0", "W % ws == 0"],
        ),
        ("x[N, T, C]", "n = x.size(2) // 4; return x[..., :n]", ["C % 4 == 0"]),
        ("x[..., D]", "a, b = x.chunk(2, dim=-1); return a * b", ["D % 2 == 0"]),
        ("x[D, N]", "a, b = torch.chunk(x, 2); return a * b", ["D % 2 == 0"]),
        ("x[..., D], g: int = 3", "x.unflatten(-1, (g, -1))", ["D % g == 0"]),
        (
            "x[N, C, L], g: int = 4",
            "x.reshape(x.shape[0], g, -1)",
            ["N * C * L % (N * g) == 0"],
        ),
        ("x[N, C, H, W]", "F.pixel_shuffle(x, 2)", ["C % (2 * 2) == 0"]),
        ("x[N, C, H, W]", "F.pixel_unshuffle(x, 3)", ["H % 3 == 0", "W % 3 == 0"]),
        ("x[..., D]", "x[..., : x.shape[-2] // 2]", []),  # no dim of that name
        ("x, n: int = 4", "x * (n // 2)", []),
    ],
)
def test_divisions_are_read_off(
    inputs: str, forward: str, conditions: list[str]
) -> None:
    spec = op(inputs, forward)
    found = [emit(item.result) for item in divisions(spec) if item.result]
    assert found == conditions


def test_sizes_are_divided_into_several() -> None:
    sizes = choose_sizes(op("x[N, D], k: int = 3", "x.unflatten(-1, (k, -1))"))
    assert sizes["D"] == 6


def test_a_size_that_leaves_a_remainder_is_no_case() -> None:
    spec = op("x[N, D], k: int = 3", "x.unflatten(-1, (k, -1))")
    assert allows(spec, {"D": 0})
    assert not allows(spec, {"D": 1})


def test_what_is_required_goes_first() -> None:
    spec = op("x[N, D]", "x[:, : x.shape[1] // 2]", require="D == 5")
    assert choose_sizes(spec)["D"] == 5
