"""Names that are free."""

import ast

import pytest

from scaffold.formula.names import (
    bound_names,
    fresh,
    names_in,
    numbered,
    reads,
    stored,
    stores,
    take,
)


@pytest.mark.parametrize(
    ("taken", "name"), [(set(), "h"), ({"h"}, "h_2"), ({"h", "h_2"}, "h_3")]
)
def test_a_name_that_is_free(taken: set[str], name: str) -> None:
    assert fresh("h", taken) == name
    assert fresh("h", taken, sign="") in ("h", "h2")


def test_a_second_one_is_numbered_as_by_hand() -> None:
    assert numbered("mask", {"mask"}) == "mask2"
    assert numbered("grad_x1", {"grad_x1", "grad_x1_2"}) == "grad_x1_3"


def test_a_name_that_is_given_away_is_taken() -> None:
    taken = {"mean"}
    found = [take(taken, "mean", "norm_mean") for _ in range(3)]
    assert found == ["norm_mean", "norm_mean_2", "norm_mean_3"]
    assert taken == {"mean", *found}


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def test_names_that_are_read_and_bound() -> None:
    found = body("a = b\ndef f():\n    c = 1\nfor i in a:\n    d = i\ng = lambda: e")
    assert stored(found) == ["a", "i", "d"]
    assert bound_names(found) == ["a", "f", "i", "d", "g"]
    assert [node.id for node in stores(found)] == ["a", "c", "i", "d", "g"]
    assert {"b", "e"} <= names_in(found)


def test_what_is_read_in_a_loop_is_read_often() -> None:
    assert reads(body("a = x + x"), "x") == 2
    assert reads(body("for i in y:\n    a = x"), "x") > 1
