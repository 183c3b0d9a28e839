"""A run goes on where nobody listens, and shows paths as they are best read."""

from pathlib import Path

import pytest

from scaffold.project.console import SILENT, from_here


def test_nobody_answers_and_nothing_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert SILENT.ask is None
    with SILENT.progress(3) as update, SILENT.proving(["a"]) as proven:
        update(1)
        proven(1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("here", "shown"),
    [(".", "ops/a.py"), ("ops", "a.py"), ("tests/unit", "../../ops/a.py")],
)
def test_a_path_is_shown_from_here(
    here: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / here).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / here)
    assert from_here(tmp_path, "ops/a.py") == shown
