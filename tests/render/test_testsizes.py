"""Sizes of named dims: distinct, and as the conditions want them."""

from typing import Any

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Formula, Graph, Scope, Text, emit, parse
from scaffold.render.testsizes import allows, choose_sizes, divisions, reaches
from scaffold.spec import Attribute, Dim, OpSpec, TensorInput
from tests.derive.building import spec_of

NAMES = frozenset({*"ABCDEGHJK", "groups", "math"})


def condition(text: str) -> Formula:
    return parse(Text(text, Location("--require")), Scope(NAMES), Graph())


def op(*dims: Dim, require: tuple[str, ...] = (), groups: str | None = None) -> OpSpec:
    attributes = (Attribute("groups", "int", groups),) if groups else ()
    inputs = (TensorInput("x", dims), *attributes)
    return OpSpec("op", "Op", inputs, require=tuple(map(condition, require)))


def test_sizes_are_distinct_and_in_order_of_appearance() -> None:
    assert choose_sizes(op("D", "H", "G")) == {"D": 2, "H": 3, "G": 4}
    assert choose_sizes(op("D", "H"), first=3) == {"D": 3, "H": 4}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("H % G == 0", {"H": 4, "G": 2}),
        ("H == 2 * G", {"H": 4, "G": 2}),
        ("G <= H - 2 and H < 5", {"H": 4, "G": 2}),
        ("not H < 7", {"H": 7}),
        ("H >= 64", {"H": 64}),
        ("2 < H < G", {"H": 3, "G": 4}),
        ("H // G == 3 or H ** 2 == -G", {"H": 6, "G": 2}),
    ],
)
def test_sizes_satisfy_a_condition(text: str, expected: dict[str, int]) -> None:
    sizes = choose_sizes(op("H", "G", require=(text,)))
    assert {name: sizes[name] for name in expected} == expected
    assert len(set(sizes.values())) == len(sizes)


def test_sizes_are_equal_only_where_they_must_be() -> None:
    sizes = choose_sizes(op("H", "G", "D", require=("H == G",)))
    assert sizes["H"] == sizes["G"] != sizes["D"]


def test_several_conditions_hold_together() -> None:
    sizes = choose_sizes(op("H", "G", "D", require=("H % G == 0", "D > H")))
    assert sizes["H"] % sizes["G"] == 0
    assert sizes["D"] > sizes["H"]


def test_an_integer_attribute_counts_in_a_condition() -> None:
    assert choose_sizes(op("H", require=("H % groups == 0",), groups="5"))["H"] == 5


def test_an_attribute_without_default_counts_with_its_test_value() -> None:
    inputs = (TensorInput("x", ("H",)), Attribute("groups", "int"))
    require = (condition("H == 3 * groups"),)
    assert choose_sizes(OpSpec("op", "Op", inputs, require=require)) == {"H": 6}


def test_an_attribute_that_names_a_dim_is_as_large_as_it() -> None:
    inputs = (TensorInput("x", ("D", "groups")), Attribute("groups", "int"))
    assert choose_sizes(OpSpec("op", "Op", inputs)) == {"D": 2, "groups": 3}


def test_a_dim_named_as_an_attribute_has_its_value() -> None:
    assert choose_sizes(op("groups", "D", groups="3")) == {"groups": 3, "D": 2}


def test_a_condition_on_something_else_is_left_alone() -> None:
    spec = op("H", require=("math.isqrt(H) == 100",))
    assert choose_sizes(spec) == {"H": 2}
    assert allows(spec, {"H": 0})


def test_impossible_conditions_are_an_error() -> None:
    with pytest.raises(ScaffoldError, match="no sizes up to 128 that satisfy: H < 0"):
        choose_sizes(op("H", require=("H < 0",)))


@pytest.mark.parametrize(
    ("names", "require", "expected"),
    [
        ("ABCDE", ("A == B * C * D", "E > A"), [24, 2, 3, 4, 25]),
        ("ABCDEJ", ("A == B * C * D * E * J",), [32, 2, 2, 2, 2, 2]),
        ("ABCDEG", ("A == B * C", "D == A + E", "G == D * A"), [6, 2, 3, 10, 4, 60]),
        ("ABCDEJGK", ("A * B * C * D == E * J * G * K",), [2] * 8),
    ],
)
def test_sizes_that_others_tell_are_counted(
    names: str, require: tuple[str, ...], expected: list[int]
) -> None:
    found = choose_sizes(op(*names, require=require))
    assert [found[name] for name in names] == expected


def test_a_search_for_sizes_ends() -> None:
    with pytest.raises(ScaffoldError, match="no sizes up to 128 that satisfy"):
        choose_sizes(op(*"ABCDEGJ", require=("A * B * C == D * E * G * J * 2 + 1",)))


def test_the_bound_of_an_index_is_a_size() -> None:
    inputs = (TensorInput("ids", ("D",), dtype="index", bound="V"),)
    assert choose_sizes(OpSpec("op", "Op", inputs)) == {"D": 2, "V": 3}


@pytest.mark.parametrize(("size", "allowed"), [(0, False), (2, True), (3, False)])
def test_other_sizes_are_allowed_where_conditions_hold(
    size: int, allowed: bool
) -> None:
    spec = op("H", "G", require=("H % G == 0",))
    assert allows(spec, {"H": 4, "G": size}) is allowed


# Sizes that the forward divides


def derived(inputs: str, forward: str, require: str = "") -> OpSpec:
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
    spec = derived(inputs, forward)
    found = [emit(item.result) for item in divisions(spec) if item.result]
    assert found == conditions


def test_sizes_are_divided_into_several() -> None:
    sizes = choose_sizes(derived("x[N, D], k: int = 3", "x.unflatten(-1, (k, -1))"))
    assert sizes["D"] == 6


def test_a_size_that_leaves_a_remainder_is_no_case() -> None:
    spec = derived("x[N, D], k: int = 3", "x.unflatten(-1, (k, -1))")
    assert allows(spec, {"D": 0})
    assert not allows(spec, {"D": 1})


def test_what_is_required_goes_first() -> None:
    spec = derived("x[N, D]", "x[:, : x.shape[1] // 2]", require="D == 5")
    assert choose_sizes(spec)["D"] == 5


# How far the forward's indices reach


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
    found = reaches(derived(inputs, forward))
    assert [emit(item.result) for item in found if item.result] == conditions


def test_sizes_are_as_large() -> None:
    assert choose_sizes(derived("x[B, T]", "x[:, 3]")) == {"B": 2, "T": 4}


def test_what_is_divided_goes_first() -> None:
    """No size up to 128 would do both."""
    forward = "x.unflatten(-1, (3, -1)).sum((-1, -2)) * x[:, 127]"
    assert choose_sizes(derived("x[B, D]", forward))["D"] % 3 == 0


def test_what_is_required_goes_before_what_is_indexed() -> None:
    assert choose_sizes(derived("x[B, T]", "x[:, 3]", require="T == 3"))["T"] == 3
