"""All rules, one file each, in the order of their ids."""

from pathlib import Path

import pytest

from scaffold.errors import Location
from scaffold.lint import registry
from scaffold.lint.registry import (
    CALLED,
    RULES,
    check_codes,
    ignored_in,
    select,
    split_codes,
)


def test_every_file_of_a_rule_is_listed_under_its_id() -> None:
    rules = Path(registry.__file__).with_name("rules")
    files = sorted(path.stem.upper() for path in rules.glob("af*.py"))
    assert files == list(RULES)
    assert [rule.id for rule in RULES.values()] == list(RULES)


def test_every_rule_has_something_that_looks() -> None:
    unchecked = [
        rule.id for rule in RULES.values() if rule.each is None and rule.whole is None
    ]
    assert unchecked == ["AF00"]  # files that no rule can look at


def ids(selected: tuple[str, ...], ignored: tuple[str, ...] = ()) -> list[str]:
    return [rule.id for rule in select(selected, ignored)]


def test_nothing_selected_are_the_rules_that_are_on() -> None:
    assert ids(()) == [rule.id for rule in RULES.values() if rule.default]
    assert ids(("ALL",)) == list(RULES)


def test_prefixes_select_and_ignoring_wins() -> None:
    assert ids(("AF1",), ("AF12",)) == [
        name for name in RULES if name.startswith("AF1") and name != "AF12"
    ]
    assert ids(("AF01",), ("ALL",)) == []


def test_codes_are_split_at_commas() -> None:
    assert split_codes(["af01, AF02,", "AF1"]) == ("AF01", "AF02", "AF1")


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("AF7", "did you mean 'AF07'?"),
        ("XF07", "did you mean 'AF07'?"),
        ("E501", CALLED),
    ],
)
def test_an_unknown_code_is_a_problem(code: str, hint: str) -> None:
    found = check_codes([code, "AF01", "ALL", "AF"], Location("--select"))
    assert [problem.message for problem in found] == [f"unknown rule '{code}'"]
    assert found[0].hint == hint


def test_patterns_are_of_a_whole_path_or_of_a_name() -> None:
    per_file = [("tests/*", ("AF01",)), ("*_old.py", ("AF02", "AF03"))]
    assert ignored_in("tests/a_old.py", per_file) == ("AF01", "AF02", "AF03")
    assert ignored_in("src/a_old.py", per_file) == ("AF02", "AF03")
    assert ignored_in("src/a.py", per_file) == ()
