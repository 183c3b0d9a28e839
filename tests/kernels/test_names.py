"""An op keeps its names; the file of its kernels takes others for its own things."""

import pytest

from scaffold.kernels.names import FIXED, OTHER, Own, own_names


def test_the_usual_names_are_taken_where_an_op_has_none_of_them() -> None:
    assert own_names(["x", "weight"]) == Own()


@pytest.mark.parametrize("name", Own._fields)
def test_a_name_of_the_op_is_left_to_it(name: str) -> None:
    found = own_names(["x", name])
    assert getattr(found, name) == getattr(OTHER, name)
    assert len({*found, "x", name}) == len(found) + 2


def test_a_third_name_is_found() -> None:
    found = own_names(["mask", OTHER.mask])
    assert found.mask not in ("mask", OTHER.mask)
    assert found._replace(mask="mask") == Own()


def test_no_other_name_is_one_of_the_file_already() -> None:
    assert not {*OTHER} & (FIXED | {*Own()})
    assert not {*Own()} & FIXED
