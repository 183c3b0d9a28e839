"""Ops that leave a project: all of it goes, and nobody's work is lost."""

import json
from pathlib import Path

import pytest

from tests.cli.projects import (
    COMMENTED,
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


@pytest.fixture
def synced(tmp_path: Path) -> Path:
    project(tmp_path, COMMENTED)
    assert scaffold(tmp_path, "sync").code == 0
    return tmp_path


def test_an_op_goes_with_all_that_is_its_own(synced: Path) -> None:
    outcome = scaffold(synced, "remove", "scale")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "update  ops.toml",
        "remove  ops/scale.py",
        "remove  tests/test_scale.py",
        "1 removed (2 files)",
    ]
    assert not [path for path in contents(synced) if "scale" in path]
    assert (
        synced / "ops.toml"
    ).read_text() == f"# all of our ops\n\n# how far\n{SHIFT}"
    clean(synced)


def test_the_last_op_takes_the_directories_along(synced: Path) -> None:
    assert scaffold(synced, "remove", "scale", "shift").code == 0
    assert set(contents(synced)) == {"pyproject.toml", "ops.toml"}
    assert not (synced / "ops").exists()


@pytest.mark.parametrize("name", ["ops/scale.py", "tests/test_scale.py"])
def test_what_was_edited_goes_by_force_alone(synced: Path, name: str) -> None:
    edit(synced / name, "scale", "stretch")
    before = contents(synced)
    outcome = scaffold(synced, "remove", "shift", "scale")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f"{name}:1:1: was edited; nothing was removed\n"
        "hint: scaffold remove scale --force removes it all the same\n"
    )
    assert contents(synced) == before
    assert scaffold(synced, "remove", "shift", "scale", "--force").code == 0
    assert set(contents(synced)) == {"pyproject.toml", "ops.toml"}


def test_formatting_is_no_edit(synced: Path) -> None:
    edit(synced / "ops/scale.py", "return x * factor", "return (x * factor)")
    assert scaffold(synced, "remove", "scale").code == 0


def test_what_no_manifest_lists_any_more_goes_too(synced: Path) -> None:
    (synced / "ops.toml").write_text(SHIFT)
    assert scaffold(synced, "remove", "scale").code == 0
    assert not [path for path in contents(synced) if "scale" in path]
    clean(synced)


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
def test_a_look_writes_nothing(synced: Path, flag: str, move: tuple[str, ...]) -> None:
    before = contents(synced)
    looked = scaffold(synced, *move, flag)
    assert (looked.code, contents(synced)) == (0, before)
    done = scaffold(synced, *move)
    assert contents(synced) != before
    if flag == "--dry-run":
        assert looked == Outcome(0, done.out, "")


@pytest.mark.parametrize("move", [("remove", "scale"), ("rename", "scale", "stretch")])
def test_what_an_interrupted_run_began_is_undone_and_told(
    synced: Path, move: tuple[str, ...]
) -> None:
    whole = (synced / "ops/shift.py").read_bytes()
    interrupted(synced, "ops/shift.py", before=b"mine\n")
    outcome = scaffold(synced, *move)
    told = "note: undid what an interrupted run had begun: ops/shift.py\n"
    assert (outcome.code, outcome.err) == (0, told)
    assert (synced / "ops/shift.py").read_bytes() == b"mine\n" != whole


def test_programs_hear_of_a_removal(synced: Path) -> None:
    outcome = scaffold(synced, "remove", "scale", "--format", "json")
    told = json.loads(outcome.out)
    assert (told["written"], told["ops"]) == (True, {"scale": "remove"})
    assert [file["verb"] for file in told["files"]] == ["update", "remove", "remove"]
    failed = json.loads(scaffold(synced, "remove", "nope", "--format", "json").out)
    assert not failed["written"] and len(failed["problems"]) == 1
