"""What the tables of other tools say; what they say wrongly is their affair."""

from typing import Any

import pytest

from scaffold.spec.other_tools import Surroundings, read_surroundings, table_of


def test_nothing_said_is_nothing_known() -> None:
    assert read_surroundings({}, ".") == Surroundings()
    assert read_surroundings({"tool": 3, "build-system": {}}, ".").installed


@pytest.mark.parametrize("below", [True, False])
def test_what_pytest_is_told(below: bool) -> None:
    said: dict[str, Any] = {
        "pythonpath": "src lib/..",
        "addopts": ["--import-mode=importlib"],
    }
    pytest_table = {"ini_options": said} if below else said
    found = read_surroundings({"tool": {"pytest": pytest_table}}, "root")
    assert found.pythonpath == ("root/src", "root")
    assert not found.prepends


@pytest.mark.parametrize(
    ("tools", "length", "key"),
    [
        ({"black": {"line-length": 100}, "ruff": {"line-length": 120}}, 100, "black"),
        ({"ruff": {"line-length": 120}}, 120, "ruff"),
        ({"black": {"line-length": 10}}, 88, None),
        ({"black": {"line-length": True}}, 88, None),
    ],
)
def test_the_line_length_of_a_formatter(
    tools: dict[str, Any], length: int, key: str | None
) -> None:
    found = read_surroundings({"tool": tools}, ".")
    assert found.line_length == length
    assert found.line_length_key == (("tool", key, "line-length") if key else None)


@pytest.mark.parametrize(
    "tools",
    [
        {"ruff": {"lint": {"isort": {"force-single-line": True}}}},
        {"ruff": {"isort": {"force-single-line": True}}},
        {"isort": {"force_single_line": True}},
    ],
)
def test_one_name_an_import(tools: dict[str, Any]) -> None:
    assert read_surroundings({"tool": tools}, ".").single_line_imports


def test_a_table_that_is_none_is_empty() -> None:
    assert table_of({"a": {"b": 1}}, "a") == {"b": 1}
    assert table_of({"a": {"b": 1}}, "a", "b") == {}
    assert table_of({}, "a", "b") == {}
