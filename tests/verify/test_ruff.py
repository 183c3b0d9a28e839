"""Ruff formats in place of black: by the project's configuration, and where there is none it says so."""

from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify import ruff
from scaffold.verify.ruff import format_with_ruff

LONG = "def f(first_parameter, second_parameter, third_parameter):\n    return 'x'\n"


def test_each_file_is_formatted(tmp_path: Path) -> None:
    files = {f"ops/f{number}.py": f"x  =  {number}\n" for number in range(9)}
    done = format_with_ruff(files, 88, tmp_path)
    assert done == {f"ops/f{number}.py": f"x = {number}\n" for number in range(9)}
    assert not list(tmp_path.iterdir())


def test_the_length_of_lines_is_that_of_the_project(tmp_path: Path) -> None:
    short, long = (
        format_with_ruff({"f.py": LONG}, length, tmp_path)["f.py"]
        for length in (40, 88)
    )
    assert short.count("\n") > long.count("\n") == 2


def test_the_configuration_of_the_project_holds(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.ruff.format]\nquote-style = 'single'\n"
    )
    assert "return 'x'" in format_with_ruff({"f.py": LONG}, 88, tmp_path)["f.py"]


def test_what_is_no_python_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match=r"ruff does not format 'a/f\.py': "):
        format_with_ruff({"a/f.py": "def (:\n"}, 88, tmp_path)


def test_a_missing_ruff_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ruff, "_executable", lambda: str(tmp_path / "ruff"))
    with pytest.raises(ScaffoldError, match="cannot run ruff") as raised:
        format_with_ruff({"f.py": LONG}, 88, tmp_path)
    assert raised.value.hint and "formatter = 'black'" in raised.value.hint
    assert raised.value.exit_code == 2
