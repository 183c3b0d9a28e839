"""`[tool.scaffold.lint]`: codes as they stand, and a problem for each value of another kind."""

from typing import Any

import pytest

from scaffold.errors import Location
from scaffold.spec.config_values import Stated
from scaffold.spec.lint_settings import NOTHING_SAID, LintConfiguration, read_lint
from scaffold.spec.problems import Problems


def read(value: dict[str, Any]) -> tuple[LintConfiguration, list[str]]:
    problems = Problems(lambda path, *, key=False: Location("pyproject.toml"))
    found = read_lint(Stated(value, "lint", problems, ".", "."))
    return found, [problem.message for problem in problems.found]


def test_what_is_said() -> None:
    value = {
        "select": ["af1"],
        "ignore": ["AF12"],
        "per-file-ignores": {"t/*": ["af02"]},
    }
    expected = LintConfiguration(("AF1",), ("AF12",), (("t/*", ("AF02",)),))
    assert read(value) == (expected, [])
    assert read({}) == (NOTHING_SAID, [])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"select": "AF01"}, "'select' must be a list of rules"),
        ({"ignore": [1]}, "'ignore' must be a list of rules"),
        ({"per-file-ignores": []}, "'per-file-ignores' must be a table"),
        ({"selects": []}, "unknown key 'selects' in [tool.scaffold.lint]"),
    ],
)
def test_what_is_refused(value: dict[str, Any], message: str) -> None:
    assert read(value) == (NOTHING_SAID, [message])


def test_a_pattern_without_codes_is_refused_by_its_name() -> None:
    assert read({"per-file-ignores": {"t/*": 1}})[1] == [
        "'t/*' must be a list of rules"
    ]
