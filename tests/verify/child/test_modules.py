"""Modules from text: imported by name, and a traceback shows their lines."""

import sys
import traceback

import pytest

from scaffold.verify.child.modules import load, one_way


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", sys.modules.copy())


def test_others_import_it_by_its_name() -> None:
    load("a_made_up_op", "TWO = 2\n")
    other = load("its_checks", "from a_made_up_op import TWO\nFOUR = TWO * 2\n")
    assert other.FOUR == 4


def test_a_later_text_takes_the_place_of_an_earlier_one() -> None:
    load("a_made_up_op", "TWO = 2\n")
    assert load("a_made_up_op", "TWO = 'two'\n").TWO == "two"
    assert sys.modules["a_made_up_op"].TWO == "two"


def test_a_traceback_shows_the_line() -> None:
    module = load("a_made_up_op", "def fail():\n    return 1 / 0  # here\n")
    with pytest.raises(ZeroDivisionError) as caught:
        module.fail()
    assert "return 1 / 0  # here" in "".join(traceback.format_exception(caught.value))


def test_the_tests_that_came_out_one_way_are_known() -> None:
    text = """
def watched(x):
    if x > 3:
        raise ValueError
    y = 1 if x > 0 else 2 if x > -5 else 3
    if x is None:
        y = 4
    return y if True else 5

def other(x):
    return 1 if x else 2
"""
    module = load("some_checks", text, ("watched",))
    assert one_way(module) == {}
    assert [module.watched(x) for x in (1, -1)] == [1, 2]
    assert module.other(1) == 1
    assert one_way(module) == {"x > -5": True, "x is None": False}
