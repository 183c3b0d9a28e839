"""What a run finds alike is not compared again by the next."""

from pathlib import Path

import pytest

from tests.cli.projects import SCALE, project
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")


def test_a_reformatted_file_is_parsed_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(tmp_path, SCALE)
    scaffold(root, "sync")
    op = root / "ops/scale.py"
    op.write_text(op.read_text().replace("def scale(", "def scale (  "))
    assert scaffold(root, "check", "--strict").code == 0
    (remembered,) = cache.rglob("alike-*")
    assert len(remembered.read_text().split()) == 1

    def parse(text: str) -> str:
        raise AssertionError("it was compared before")

    monkeypatch.setattr("scaffold.workspace.cache.normal_form", parse)
    assert scaffold(root, "check", "--strict").code == 0
    monkeypatch.undo()
    op.write_text(op.read_text().replace("return apply", "return 2 * apply"))
    assert scaffold(root, "check", "--strict").code == 1
