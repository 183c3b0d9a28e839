"""Ops that leave a project: all of it goes, and nobody's work is lost."""

import json
from pathlib import Path

import pytest

from tests.cli.projects import (
    SCALE,
    SHIFT,
    clean,
    contents,
    edit,
    interrupted,
    project,
)
from tests.cli.running import Outcome, scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")


def test_an_op_goes_with_all_that_is_its_own(commented: Path) -> None:
    outcome = scaffold(commented, "remove", "scale")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "update  ops.toml",
        "remove  ops/scale.py",
        "remove  tests/test_scale.py",
        "1 removed (2 files)",
    ]
    assert not [path for path in contents(commented) if "scale" in path]
    assert (
        commented / "ops.toml"
    ).read_text() == f"# all of our ops\n\n# how far\n{SHIFT}"
    clean(commented)


def test_the_last_op_takes_the_directories_along(commented: Path) -> None:
    assert scaffold(commented, "remove", "scale", "shift").code == 0
    assert set(contents(commented)) == {"pyproject.toml", "ops.toml"}
    assert not (commented / "ops").exists()


@pytest.mark.parametrize("name", ["ops/scale.py", "tests/test_scale.py"])
def test_what_was_edited_goes_by_force_alone(commented: Path, name: str) -> None:
    edit(commented / name, "scale", "stretch")
    before = contents(commented)
    outcome = scaffold(commented, "remove", "shift", "scale")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f"{name}:1:1: was edited; nothing was removed\n"
        "hint: to remove it anyway: scaffold remove scale --force\n"
    )
    assert contents(commented) == before
    assert scaffold(commented, "remove", "shift", "scale", "--force").code == 0
    assert set(contents(commented)) == {"pyproject.toml", "ops.toml"}


def test_formatting_is_no_edit(commented: Path) -> None:
    edit(commented / "ops/scale.py", "return x * factor", "return (x * factor)")
    assert scaffold(commented, "remove", "scale").code == 0


def test_what_no_manifest_lists_any_more_goes_too(commented: Path) -> None:
    (commented / "ops.toml").write_text(SHIFT)
    assert scaffold(commented, "remove", "scale").code == 0
    assert not [path for path in contents(commented) if "scale" in path]
    clean(commented)


@pytest.mark.parametrize("record", [True, False])
def test_a_file_of_somebody_else_stays(tmp_path: Path, record: bool) -> None:
    project(tmp_path, SCALE)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/scale.py").write_text("mine = 1\n")
    if record:
        assert scaffold(tmp_path, "sync", "--on-conflict", "skip").code == 0
    before = contents(tmp_path)
    outcome = scaffold(tmp_path, "remove", "scale")
    if record:  # the record tells of the test file alone
        assert outcome.code == 0
        assert (tmp_path / "ops/scale.py").read_text() == "mine = 1\n"
    else:
        assert outcome.code == 1
        assert contents(tmp_path) == before


@pytest.mark.parametrize("flag", ["--dry-run", "--diff"])
@pytest.mark.parametrize("move", [("remove", "scale"), ("rename", "scale", "stretch")])
def test_a_look_writes_nothing(
    commented: Path, flag: str, move: tuple[str, ...]
) -> None:
    before = contents(commented)
    looked = scaffold(commented, *move, flag)
    assert (looked.code, contents(commented)) == (0, before)
    done = scaffold(commented, *move)
    assert contents(commented) != before
    if flag == "--dry-run":
        assert looked == Outcome(0, done.out, "")


@pytest.mark.parametrize("move", [("remove", "scale"), ("rename", "scale", "stretch")])
def test_what_an_interrupted_run_began_is_undone_and_told(
    commented: Path, move: tuple[str, ...]
) -> None:
    whole = (commented / "ops/shift.py").read_bytes()
    interrupted(commented, "ops/shift.py", before=b"mine\n")
    outcome = scaffold(commented, *move)
    told = "note: undid what an interrupted run had begun: ops/shift.py\n"
    assert (outcome.code, outcome.err) == (0, told)
    assert (commented / "ops/shift.py").read_bytes() == b"mine\n" != whole


def test_programs_hear_of_a_removal(commented: Path) -> None:
    outcome = scaffold(commented, "remove", "scale", "--format", "json")
    told = json.loads(outcome.out)
    assert (told["written"], told["ops"]) == (True, {"scale": "remove"})
    assert [file["verb"] for file in told["files"]] == ["update", "remove", "remove"]
    failed = json.loads(scaffold(commented, "remove", "nope", "--format", "json").out)
    assert not failed["written"] and len(failed["problems"]) == 1
