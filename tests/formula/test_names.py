"""Names that are free."""

import pytest

from scaffold.formula.names import fresh, numbered, take


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
