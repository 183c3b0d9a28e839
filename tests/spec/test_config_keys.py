"""`[tool.scaffold.defaults]`: keys of an op, in their order, with values of their kind."""

from typing import Any

import pytest

from scaffold.errors import Location
from scaffold.spec.config_keys import read_defaults
from scaffold.spec.config_values import Stated
from scaffold.spec.problems import Problems


def read(value: dict[str, Any]) -> tuple[tuple[tuple[str, Any], ...], list[str]]:
    problems = Problems(lambda path, *, key=False: Location("pyproject.toml"))
    found = read_defaults(Stated(value, "defaults", problems, ".", "."))
    return found, [problem.message for problem in problems.found]


def test_keys_come_in_their_order() -> None:
    value = {"test": False, "module": False}
    assert read(value) == ((("test", False), ("module", False)), [])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"style": "combined"}, "'style' is not a key of 'defaults'"),
        ({"tests": False}, "unknown key 'tests' in 'defaults'"),
        ({"test": "no"}, "'test' must be true or false"),
    ],
)
def test_what_is_refused(value: dict[str, Any], words: str) -> None:
    (message,) = read(value)[1]
    assert message.startswith(words)
