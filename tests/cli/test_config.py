"""`scaffold config`: the values that hold, and who says so."""

import json
from pathlib import Path

import pytest

from scaffold.spec import load_configuration
from scaffold.spec.config import read_configuration
from scaffold.spec.config_keys import KEYS
from tests.cli.running import new_op, scaffold

PROJECT = """[tool.black]
line-length = 100

[tool.scaffold]
style = 'combined'
names.test = '{op}_test.py'
exports = true
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "src").mkdir()
    return tmp_path


def test_outside_of_a_project_it_shows_the_defaults(tmp_path: Path) -> None:
    outcome = scaffold(tmp_path, "config", "--show-origin")
    assert (outcome.code, outcome.err) == (0, "")
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert {origin for origin, _ in rows} == {"default"}
    names = [text.removeprefix("# ").split()[0] for _, text in rows]
    assert names == list(KEYS)


def test_what_it_prints_is_a_configuration(project: Path) -> None:
    printed = scaffold(project, "config").out
    found = read_configuration(f"[tool.scaffold]\n{printed}", "", str(project))
    assert found == load_configuration(project)


def test_the_origin_is_a_line_a_variable_or_the_default(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFOLD_EXPORTS", "false")
    keys = ("style", "line-length", "exports", "names", "header", "tests")
    outcome = scaffold(project / "src", "config", *keys, "--show-origin")
    assert sorted(outcome.out.splitlines()) == sorted(
        [
            '../pyproject.toml:5\tstyle = "combined"',
            "../pyproject.toml:2\tline-length = 100",
            "SCAFFOLD_EXPORTS\texports = false",
            '../pyproject.toml:6\tnames = { test = "{op}_test.py" }',
            "default\theader = true",
            "default\t# tests is not set",
        ]
    )


def test_programs_get_an_object(project: Path) -> None:
    printed = scaffold(project, "config", "style", "licence", "--format", "json").out
    assert json.loads(printed) == {
        "version": 1,
        "settings": [
            {"key": "style", "value": "combined", "origin": "pyproject.toml:5"},
            {"key": "licence", "value": None, "origin": "default"},
        ],
    }


def test_the_line_length_of_a_file_without_the_table_has_its_place(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 88\n")
    outcome = scaffold(tmp_path, "config", "line-length", "--show-origin")
    assert outcome.out == "pyproject.toml:2\tline-length = 88\n"


def test_the_environment_holds_for_a_run_and_an_option_goes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--inputs", "x", "--stdout", "--no-test")
    assert "def setup_context" in new_op(tmp_path, *arguments).out
    monkeypatch.setenv("SCAFFOLD_STYLE", "combined")
    assert "def setup_context" not in new_op(tmp_path, *arguments).out
    stated = new_op(tmp_path, *arguments, "--style", "setup-context")
    assert "def setup_context" in stated.out
