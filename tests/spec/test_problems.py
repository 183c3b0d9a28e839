"""Places that are searched for only when an error needs them."""

import pickle

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.problems import KeyPath, Problems, Sought


def test_a_place_is_searched_for_when_it_is_read() -> None:
    searched: list[int] = []

    def find() -> Location:
        searched.append(1)
        return Location("ops.toml", 3, 10)

    place = Sought(find).shifted(0, 4)
    below = place.shifted(2, 1)
    assert not searched
    assert str(place) == "ops.toml:3:14"
    assert (below.line, below.column) == (5, 2)
    assert place == Location("ops.toml", 3, 14) and searched
    assert type(pickle.loads(pickle.dumps(place))) is Location


def test_problems_are_raised_in_the_order_of_their_places() -> None:
    def locate(path: KeyPath, *, key: bool = False) -> Location:
        return Location("ops.toml", int(path[0]), 1 if key else 9)

    def fail() -> None:
        raise ScaffoldError("second", problems.within(("2",)).shifted(0, 1))

    problems = Problems(locate)
    problems.at(("3",), "third", "a hint")
    problems.attempt(fail)
    problems.at_key(("1",), "first")
    problems.add(None)
    with pytest.raises(ScaffoldError) as caught:
        problems.raise_found()
    assert str(caught.value) == (
        "ops.toml:1:1: first\n"
        "ops.toml:2:10: second\n"
        "ops.toml:3:9: third\nhint: a hint"
    )
    assert all(type(item.location) is Location for item in caught.value.problems)


def test_without_problems_nothing_is_raised() -> None:
    problems = Problems(lambda path, *, key=False: Location("", 1, 1))
    assert problems.attempt(lambda: 3) == 3
    problems.raise_found()
