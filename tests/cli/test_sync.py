"""`scaffold sync`: files follow the manifest, what somebody edited is safe, all of it or nothing."""

import base64
import json
import os
import zlib
from pathlib import Path

import pytest

from tests.cli.projects import (
    CONFIGURATION,
    SCALE,
    SHIFT,
    as_written,
    contents,
    edit,
    in_version_1,
    lose,
    project,
)
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")

FILES = [
    *("ops/scale.py", "ops/shift.py", "tests/test_scale.py", "tests/test_shift.py"),
]


def test_a_first_run_creates_every_file_and_its_record(tmp_path: Path) -> None:
    project(tmp_path, SCALE, SHIFT)
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "create  ops/scale.py",
        "create  tests/test_scale.py",
        "create  ops/shift.py",
        "create  tests/test_shift.py",
        "create  tests/op_testing.py",
        "2 created (5 files)",
    ]
    held = contents(tmp_path)
    assert set(FILES) < held.keys()
    for role, path in (("op", "ops/scale.py"), ("test", "tests/test_scale.py")):
        assert as_written(tmp_path, "scale", role) == held[path].decode()
    assert set(json.loads(held[".scaffold/scale.json"])["files"]) == {"op", "test"}


def test_a_second_run_writes_nothing(synced: Path) -> None:
    before = contents(synced)
    outcome = scaffold(synced, "sync")
    assert (outcome.code, outcome.out) == (0, "2 identical (4 files)\n")
    assert contents(synced) == before


def test_it_can_be_run_from_a_directory_of_the_project(synced: Path) -> None:
    (synced / "ops/scale.py").unlink()
    outcome = scaffold(synced / "tests", "sync")
    assert outcome.out.splitlines()[0] == "create  ../ops/scale.py"


def test_what_changed_in_the_manifest_changes_in_its_files_only(synced: Path) -> None:
    before = contents(synced)
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    outcome = scaffold(synced, "sync")
    assert outcome.code == 0
    assert outcome.out.splitlines()[-1] == "1 updated, 1 identical (4 files)"
    after = contents(synced)
    changed = {path for path in after if after[path] != before.get(path)}
    assert {path for path in changed if "shift" in path} == set()
    assert "ops/scale.py" in changed
    assert b"factor: float = 3.0" in after["ops/scale.py"]


def test_the_form_of_the_manifest_is_no_change(synced: Path) -> None:
    before = contents(synced / "ops")
    text = (synced / "ops.toml").read_text()
    (synced / "ops.toml").write_text(
        f"# our ops\n\n{text.replace('grad.x =', 'grad.x   =')}"
    )
    outcome = scaffold(synced, "sync")
    assert outcome.out == "2 identical (4 files)\n"
    assert contents(synced / "ops") == before


def test_an_edited_file_is_left_alone(synced: Path) -> None:
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    before = contents(synced)
    outcome = scaffold(synced, "sync")
    assert (outcome.code, outcome.out) == (0, "1 edited, 1 identical (4 files)\n")
    assert contents(synced) == before


@pytest.fixture
def stale(synced: Path) -> Path:
    """Of two ops whose tables moved one was edited."""
    with (synced / "ops/scale.py").open("a") as file:
        file.write("# mine\n")
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    edit(synced / "ops.toml", "x + bias", "bias + x")
    return synced


LEFT = (
    "ops/scale.py:1:1: was edited and is out of date; left as it is\n"
    "hint: scaffold upgrade scale\n"
)


def test_an_op_that_was_edited_and_is_out_of_date_is_left(stale: Path) -> None:
    """What nobody edited is written; of the op that is left its tests too stay as they are."""
    before = contents(stale)
    outcome = scaffold(stale, "sync")
    assert (outcome.code, outcome.err) == (1, LEFT)
    assert outcome.out.splitlines() == [
        "update  ops/shift.py",
        "update  tests/test_shift.py",
        "1 updated, 1 left as is (4 files)",
    ]
    after = contents(stale)
    assert {path for path in after if after[path] != before[path]} == {
        *("ops/shift.py", "tests/test_shift.py", ".scaffold/shift.json"),
    }
    again = scaffold(stale, "sync")
    assert (again.code, again.err) == (1, LEFT)
    assert again.out == "1 left as is, 1 identical (4 files)\n"
    assert contents(stale) == after
    assert scaffold(stale, "upgrade", "scale").code == 0
    assert scaffold(stale, "sync").code == scaffold(stale, "check").code == 0


@pytest.mark.parametrize("flags", [(), ("--format", "json")])
def test_a_look_at_what_is_left_ends_as_the_run_does(
    stale: Path, flags: tuple[str, ...]
) -> None:
    before = contents(stale)
    looked = scaffold(stale, "sync", "--dry-run", *flags)
    assert contents(stale) == before
    done = scaffold(stale, "sync", *flags)
    assert (looked.code, looked.err) == (done.code, done.err) == (1, LEFT)
    assert looked.out.replace("false", "true") == done.out
    if flags:
        told = json.loads(done.out)
        assert told["written"] is True
        assert told["ops"] == {"scale": "left", "shift": "update"}
        assert [item["source"] for item in told["problems"]] == ["ops/scale.py"]


def test_the_difference_that_is_shown_is_that_of_the_run(stale: Path) -> None:
    looked = scaffold(stale, "sync", "--diff")
    assert (looked.code, looked.err) == (1, LEFT)
    assert "+++ b/ops/shift.py" in looked.out
    assert "scale.py" not in looked.out


def test_that_a_run_would_stop_is_said_by_a_look(tmp_path: Path) -> None:
    project(tmp_path, SCALE, SHIFT)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/shift.py").write_text("mine = 1\n")
    looked, done = scaffold(tmp_path, "sync", "--dry-run"), scaffold(tmp_path, "sync")
    assert (looked.code, looked.err) == (done.code, done.err)
    assert "conflict  ops/shift.py\n" in looked.out


@pytest.mark.parametrize("place", [".", ".scaffold"])
def test_a_look_knows_what_cannot_be_written(
    synced: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    edit(synced / "ops.toml", "x + bias", "bias + x")
    access, closed = os.access, str(synced / place)
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: os.fspath(path) != closed and access(path, mode),
    )
    before = contents(synced)
    looked, done = scaffold(synced, "sync", "--dry-run"), scaffold(synced, "sync")
    assert looked.code == 2
    if place == ".scaffold":  # who is root may write all the same
        assert (done.code, done.err) == (looked.code, looked.err)
        assert contents(synced) == before


def test_exports_of_an_op_that_is_left_stay_as_they_are(tmp_path: Path) -> None:
    """It defines what it defined: an import of its new class would break the package."""
    configuration = CONFIGURATION + "exports = true\n"
    project(tmp_path, SCALE, SHIFT, configuration=configuration)
    assert scaffold(tmp_path, "sync").code == 0
    edit(tmp_path / "ops/scale.py", "x * factor", "factor * x")
    for op, name in (("scale", "Stretch"), ("shift", "Move")):
        table = f"[ops.{op}]\n"
        edit(tmp_path / "ops.toml", table, f"{table}class-name = '{name}'\n")
    assert scaffold(tmp_path, "sync").code == 1
    exported = (tmp_path / "ops/__init__.py").read_text()
    assert "from .scale import Scale, ScaleFunction, scale" in exported
    assert "from .shift import Move, MoveFunction, shift" in exported
    for _ in range(2):
        checked = scaffold(tmp_path, "check")
        for hint in checked.err.splitlines():
            scaffold(tmp_path, *hint.removeprefix("hint: scaffold ").split())
    assert scaffold(tmp_path, "check").code == 0


def test_the_others_are_written_where_it_is_skipped(synced: Path) -> None:
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    mine = (synced / "ops/scale.py").read_bytes()
    outcome = scaffold(synced, "sync", "--on-conflict", "skip")
    assert outcome.code == 0
    assert (synced / "ops/scale.py").read_bytes() == mine
    assert "3.0" in (synced / "tests/test_scale.py").read_text()
    assert scaffold(synced, "sync").code == 1  # it is still out of date


def test_overwriting_takes_the_edit_away(synced: Path) -> None:
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    assert scaffold(synced, "sync", "--on-conflict", "overwrite").code == 0
    assert "factor * x" not in (synced / "ops/scale.py").read_text()
    assert scaffold(synced, "check", "--strict").code == 0


def test_a_file_that_is_not_ours_stops_the_run(tmp_path: Path) -> None:
    project(tmp_path, SCALE, SHIFT)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/shift.py").write_text("mine = 1\n")
    before = contents(tmp_path)
    outcome = scaffold(tmp_path, "sync")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("ops/shift.py:1:1: exists and differs; nothing was ")
    assert contents(tmp_path) == before


def test_a_file_that_says_the_same_is_taken_over(tmp_path: Path, synced: Path) -> None:
    for path in (synced / ".scaffold").iterdir():
        path.unlink()
    outcome = scaffold(synced, "sync")
    assert (outcome.code, outcome.out) == (0, "2 identical (4 files)\n")
    assert scaffold(synced, "check", "--strict").code == 0


@pytest.mark.parametrize("flag", ["--dry-run", "--diff"])
def test_a_look_tells_what_a_run_does(tmp_path: Path, flag: str) -> None:
    project(tmp_path, SCALE)
    before = contents(tmp_path)
    looked = scaffold(tmp_path, "sync", flag)
    assert contents(tmp_path) == before
    done = scaffold(tmp_path, "sync")
    assert looked.code == done.code == 0
    if flag == "--dry-run":
        assert looked.out == done.out
    else:
        assert "+++ b/ops/scale.py\n" in looked.out
        assert ".scaffold" not in looked.out


def test_for_programs_it_is_one_object(synced: Path) -> None:
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    told = json.loads(scaffold(synced, "sync", "--format", "json").out)
    assert told["written"] is True
    assert told["ops"] == {"scale": "update", "shift": "identical"}
    assert {"path": "ops/scale.py", "verb": "update"} in told["files"]
    assert told["problems"] == []


def test_every_problem_of_every_op_is_told(tmp_path: Path) -> None:
    project(
        tmp_path,
        SCALE.replace("x * factor", "x * facto"),
        SHIFT.replace("bias[D]", "bias[D"),
    )
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code == 2
    assert "ops.toml:3:16: unknown name 'facto'" in outcome.err
    assert "ops.toml:7:26: '[' is never closed" in outcome.err
    assert not (tmp_path / "ops").exists()


def test_the_same_op_in_two_manifests_is_an_error(tmp_path: Path) -> None:
    configuration = '[tool.scaffold]\nmanifest = ["a.toml", "b.toml"]\n'
    project(tmp_path, configuration=configuration)
    (tmp_path / "a.toml").write_text(SCALE)
    (tmp_path / "b.toml").write_text(SHIFT + "\n" + SCALE)
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code == 2
    assert outcome.messages == [
        "b.toml:7:6: op 'scale' is listed a second time",
        "hint: the first one: a.toml:1:6",
    ]


def test_outside_of_a_project_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "ops.toml").write_text(SCALE)
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code == 0
    assert set(contents(tmp_path)) == {"ops.toml", "scale.py", "test_scale.py"}
    assert scaffold(tmp_path, "sync").out == "1 identical (2 files)\n"
    edit(tmp_path / "scale.py", "x * factor", "factor * x")
    assert scaffold(tmp_path, "sync").code == 1


def test_without_tests_the_file_is_left_and_told(synced: Path) -> None:
    edit(
        synced / "ops.toml",
        "grad.x = 'grad_output * factor'\n",
        "grad.x = 'grad_output * factor'\ntest = false\n",
    )
    outcome = scaffold(synced, "sync")
    assert outcome.code == 0
    assert "scaffold upgrade scale" in outcome.err
    assert (synced / "tests/test_scale.py").exists()
    assert "orphaned  tests/test_scale.py" in scaffold(synced, "check").out
    assert scaffold(synced, "upgrade", "scale").code == 0
    assert not (synced / "tests/test_scale.py").exists()
    assert scaffold(synced, "check").code == 0


def test_a_directory_that_moves_takes_its_files_along(synced: Path) -> None:
    edit(synced / "ops/shift.py", "x + bias", "bias + x")
    edit(synced / "pyproject.toml", '"ops"', '"kernels"')
    outcome = scaffold(synced, "sync")
    assert (outcome.code, outcome.err.splitlines()[-1]) == (
        1,
        "hint: scaffold upgrade shift",
    )
    assert {"kernels/scale.py", "ops/shift.py"} < contents(synced).keys()
    assert scaffold(synced, "upgrade").code == 0
    held = set(contents(synced))
    assert {"kernels/scale.py", "kernels/shift.py"} < held
    assert not {"ops/scale.py", "ops/shift.py"} & held
    assert "bias + x" in (synced / "kernels/shift.py").read_text()
    assert scaffold(synced, "check").code == 0


def test_records_of_an_earlier_version_are_taken_over(synced: Path) -> None:
    """Each text stood in a file of its own; a run that has nothing else to do writes them into the record."""
    before = contents(synced)
    in_version_1(synced)
    assert scaffold(synced, "check", "scale", "shift", "--strict").code == 0
    outcome = scaffold(synced, "sync")
    assert (outcome.code, outcome.err) == (0, "")
    assert contents(synced) == before


def test_records_of_an_earlier_version_are_merged_from(synced: Path) -> None:
    in_version_1(synced)
    op, manifest = synced / "ops/scale.py", synced / "ops.toml"
    op.write_text(f"{op.read_text()}\n\ndef by_hand() -> None: ...\n")
    manifest.write_text(manifest.read_text().replace("= 2.0", "= 3.0"))
    assert scaffold(synced, "upgrade", "scale").code == 0
    assert "by_hand" in op.read_text() and "3.0" in op.read_text()
    assert not list(synced.glob(".scaffold/scale.*.base"))


def test_a_record_weighs_less_than_what_it_describes(synced: Path) -> None:
    held = contents(synced)
    code = sum(len(held[path]) for path in held if path.endswith(".py"))
    assert sum(len(held[path]) for path in held if ".scaffold/" in path) < 0.7 * code


def test_the_same_text_stays_packed_as_it_was(synced: Path) -> None:
    """Another build of zlib packs in another way; that alone is no change of a record."""
    path = synced / ".scaffold/scale.json"
    record = json.loads(path.read_text())
    text = as_written(synced, "scale", "op")
    assert text is not None
    other = base64.b85encode(zlib.compress(text.encode(), 1)).decode()
    assert other != record["files"]["op"]["base"]
    record["files"]["op"]["base"] = other
    path.write_text(json.dumps(record, indent=2) + "\n")
    lose(synced, "scale", "test")
    assert scaffold(synced, "sync").code == 0
    assert json.loads(path.read_text())["files"]["op"]["base"] == other
    assert as_written(synced, "scale", "test") is not None
