"""Sizes of named dims: distinct, and as the conditions want them."""

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Formula, Graph, Scope, Text, parse
from scaffold.render.sizes_of_tests import allows, choose_sizes
from scaffold.spec import Attribute, Dim, OpSpec, TensorInput

NAMES = frozenset({"H", "G", "D", "groups", "math"})


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
    with pytest.raises(ScaffoldError, match="no sizes up to 128 satisfy: H < 0"):
        choose_sizes(op("H", require=("H < 0",)))


def test_the_bound_of_an_index_is_a_size() -> None:
    inputs = (TensorInput("ids", ("D",), dtype="index", bound="V"),)
    assert choose_sizes(OpSpec("op", "Op", inputs)) == {"D": 2, "V": 3}


@pytest.mark.parametrize(("size", "allowed"), [(0, False), (2, True), (3, False)])
def test_other_sizes_are_allowed_where_conditions_hold(
    size: int, allowed: bool
) -> None:
    spec = op("H", "G", require=("H % G == 0",))
    assert allows(spec, {"H": 4, "G": size}) is allowed
