"""What a run finds alike or whole is not compared or unpacked again by the next; what changed since is."""

from pathlib import Path

import pytest

from tests.cli.projects import SCALE, lose, project
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
    (remembered,) = cache.rglob("known-*")
    assert len(remembered.read_text().split()) == 3  # and two records that are whole

    def parse(text: str) -> str:
        raise AssertionError("it was compared before")

    monkeypatch.setattr("scaffold.workspace.cache.normal_form", parse)
    assert scaffold(root, "check", "--strict").code == 0
    monkeypatch.undo()
    op.write_text(
        op.read_text().replace("return ScaleFunction", "return 2 * ScaleFunction")
    )
    assert scaffold(root, "check", "--strict").code == 1


def test_a_record_that_was_whole_is_found_lost(tmp_path: Path, cache: Path) -> None:
    root = project(tmp_path, SCALE)
    scaffold(root, "sync")
    assert scaffold(root, "check").code == 0
    assert list(cache.rglob("known-*"))
    lose(root, "scale", "test", gone=False)
    assert "1 lost" in scaffold(root, "check").out
