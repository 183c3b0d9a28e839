"""`scaffold upgrade`: what the manifest says now, and what was written by hand, both in the file."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from black.mode import Mode, TargetVersion

from scaffold.render import formatting
from scaffold.workspace.statements import normal_form
from tests.cli.projects import (
    CONFIGURATION,
    SCALE,
    SHIFT,
    as_written,
    contents,
    edit,
    lose,
    project,
)
from tests.cli.running import scaffold
from tests.sweeps import pairs_in_every_run
from tests.verify.test_external_tools import git

pytestmark = pytest.mark.usefixtures("proven_at_once")

OP, TEST = "ops/scale.py", "tests/test_scale.py"
DEFAULT = ("factor: float = 2.0", "factor: float = 3.0")
HELPER = "\n\ndef by_hand() -> int:\n    return 1\n"
MARKED = ("<<<<<<< yours", "||||||| base", "=======", ">>>>>>> scaffold")


def respecify(root: Path) -> None:
    """Another default of `factor`, which shows in both files."""
    edit(root / "ops.toml", *DEFAULT)


def append(path: Path, text: str = HELPER) -> None:
    path.write_text(path.read_text() + text)


def collide(root: Path) -> None:
    """An edit by hand where the manifest changes too."""
    respecify(root)
    edit(root / OP, "factor: float = 2.0", "factor: float = 7.0")


def resolved(text: str) -> str:
    """What scaffold says, at each place that is marked."""
    lines, keep = [], True
    for line in text.splitlines():
        if line in MARKED:
            keep = line in ("=======", ">>>>>>> scaffold")
        elif keep:
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("names", [(), ("--all",)])
def test_without_names_all_are_meant(synced: Path, names: tuple[str, ...]) -> None:
    append(synced / OP)
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    edit(synced / "ops.toml", "x + bias", "bias + x")
    outcome = scaffold(synced, "upgrade", *names)
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "2 updated (4 files)")
    assert scaffold(synced, "check").code == 0


def test_where_nothing_moved_nothing_is_written(synced: Path) -> None:
    append(synced / OP)
    before = contents(synced)
    outcome = scaffold(synced, "upgrade", "--all")
    assert (outcome.code, outcome.out) == (0, "1 edited, 1 identical (4 files)\n")
    assert contents(synced) == before


def test_an_edit_elsewhere_is_kept(synced: Path) -> None:
    append(synced / OP)
    respecify(synced)
    outcome = scaffold(synced, "upgrade", "scale")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        f"update  {OP}",
        f"update  {TEST}",
        "1 updated (2 files)",
    ]
    text = (synced / OP).read_text()
    assert text.endswith(HELPER)
    assert DEFAULT[1] in text
    assert DEFAULT[0] not in text
    checked = scaffold(synced, "check")
    assert (checked.code, checked.out) == (0, f"edited  {OP}\n4 ok, 1 edited\n")
    edit(synced / OP, HELPER, "")  # the base is the new rendering: without the edit, ok
    assert scaffold(synced, "check", "--strict").code == 0


def test_only_the_ops_that_are_named(synced: Path) -> None:
    respecify(synced)
    edit(synced / "ops.toml", "x + bias", "bias + x")
    before = contents(synced)
    assert scaffold(synced, "upgrade", "shift").code == 0
    after = contents(synced)
    changed = {path for path in after if after[path] != before.get(path)}
    assert changed
    assert all("shift" in path for path in changed)
    assert "stale  ops/scale.py" in scaffold(synced, "check").out


def test_a_collision_is_marked_and_told_until_it_is_resolved(synced: Path) -> None:
    collide(synced)
    outcome = scaffold(synced, "upgrade", "scale")
    assert outcome.code == 1
    assert f"conflict  {OP}" in outcome.out.splitlines()
    assert outcome.out.splitlines()[-1] == "1 in conflict (2 files)"
    text = (synced / OP).read_text()
    lines = text.splitlines()
    assert [line for line in lines if line in MARKED] == [*MARKED] * (
        lines.count(MARKED[0])
    )
    mine = text.split(MARKED[0])[1].split(MARKED[1])[0]
    base = text.split(MARKED[1])[1].split(MARKED[2])[0]
    new = text.split(MARKED[2])[1].split(MARKED[3])[0]
    assert [part.count("factor: float = ") > 0 for part in (mine, base, new)] == (
        [True] * 3
    )
    assert ("7.0" in mine, "2.0" in base, "3.0" in new) == (True, True, True)

    checked = scaffold(synced, "check")
    assert checked.code == 1
    assert f"conflict-markers  {OP}" in checked.out.splitlines()

    before = contents(synced)
    edit(synced / "ops.toml", "factor: float = 3.0", "factor: float = 4.0")
    again = scaffold(synced, "upgrade", "scale")
    assert (again.code, again.out) == (1, "")
    assert again.err == (
        f"{OP}:1:1: holds conflict markers; nothing was written\nhint: resolve them first\n"
    )
    edit(synced / "ops.toml", "factor: float = 4.0", "factor: float = 3.0")
    assert contents(synced) == before

    (synced / OP).write_text(resolved(text))
    assert scaffold(synced, "check", "--strict").code == 0
    assert scaffold(synced, "upgrade", "--all").out == "2 identical (4 files)\n"


def test_while_markers_are_left_nothing_says_that_all_is_well(synced: Path) -> None:
    collide(synced)
    assert scaffold(synced, "upgrade", "scale").code == 1
    edit(synced / "ops.toml", "x + bias", "bias + x")  # nothing of that is written
    before = contents(synced)
    for run in (["upgrade", "scale"], ["sync", "--on-conflict", "overwrite"]):
        again = scaffold(synced, *run)
        assert (again.code, again.out) == (1, ""), run
        assert f"{OP}:1:1: holds conflict markers; nothing was written" in again.err
        assert contents(synced) == before


def test_sync_writes_the_others_while_markers_are_left(synced: Path) -> None:
    collide(synced)
    assert scaffold(synced, "upgrade", "scale").code == 1
    edit(synced / "ops.toml", "x + bias", "bias + x")
    marked = (synced / OP).read_bytes()
    looked = scaffold(synced, "sync", "--dry-run", "--format", "json")
    assert [item["source"] for item in json.loads(looked.out)["problems"]] == [OP]
    for code, verb in ((1, "updated"), (1, "identical")):
        outcome = scaffold(synced, "sync")
        assert outcome.code == looked.code == code
        assert f"1 {verb}" in outcome.out
        assert outcome.err == (
            f"{OP}:1:1: holds conflict markers; left as it is\nhint: resolve them\n"
        )
    assert (synced / OP).read_bytes() == marked


def test_other_ops_can_be_synced_where_that_is_said(synced: Path) -> None:
    collide(synced)
    assert scaffold(synced, "upgrade", "scale").code == 1
    marked = (synced / OP).read_bytes()
    edit(synced / "ops.toml", "x + bias", "bias + x")
    assert scaffold(synced, "sync", "--on-conflict", "skip").code == 0
    assert "bias + x" in (synced / "ops/shift.py").read_text()
    assert (synced / OP).read_bytes() == marked


def test_one_collision_keeps_no_other_op_from_its_upgrade(synced: Path) -> None:
    collide(synced)
    append(synced / "ops/shift.py")
    edit(synced / "ops.toml", "x + bias", "bias + x")
    outcome = scaffold(synced, "upgrade", "--all")
    assert outcome.code == 1
    assert outcome.out.splitlines() == [
        f"conflict  {OP}",
        f"update    {TEST}",
        "update    ops/shift.py",
        "update    tests/test_shift.py",
        "1 updated, 1 in conflict (4 files)",
    ]
    text = (synced / "ops/shift.py").read_text()
    assert text.endswith(HELPER)
    assert "return bias + x" in text
    assert MARKED[0] in (synced / OP).read_text()


def test_to_abort_writes_nothing(synced: Path) -> None:
    collide(synced)
    edit(synced / "ops.toml", "x + bias", "bias + x")
    before = contents(synced)
    outcome = scaffold(synced, "upgrade", "--all", "--on-conflict", "abort")
    assert (outcome.code, outcome.out) == (1, "")
    assert f"{OP}:1:1: was edited and is out of date; nothing was written" in (
        outcome.err
    )
    assert contents(synced) == before


def test_to_skip_leaves_the_file_and_says_so_ever_after(synced: Path) -> None:
    collide(synced)
    mine = (synced / OP).read_bytes()
    outcome = scaffold(synced, "upgrade", "--all", "--on-conflict", "skip")
    assert outcome.code == 0
    assert f"skip    {OP}" in outcome.out.splitlines()
    assert (synced / OP).read_bytes() == mine
    test = (synced / TEST).read_text()
    assert as_written(synced, "scale", "test") == test
    assert "3.0" in test
    assert f"stale  {OP}" in scaffold(synced, "check").out
    assert scaffold(synced, "upgrade", "--all").code == 1  # it is merged yet


def test_to_overwrite_takes_the_edit_away(synced: Path) -> None:
    collide(synced)
    assert scaffold(synced, "upgrade", "--all", "--on-conflict", "overwrite").code == 0
    assert "7.0" not in (synced / OP).read_text()
    assert scaffold(synced, "check", "--strict").code == 0


def nothing(root: Path) -> None:
    """No edit."""


def kept(root: Path) -> None:
    append(root / OP)
    respecify(root)


CHANGES = [nothing, respecify, kept, collide]
LOOKS = [*product(CHANGES, ["merge", "abort", "skip", "overwrite"])]


# Each policy where there is something to decide, and each change under one of them.
@pytest.mark.parametrize(
    ("change", "policy"),
    pairs_in_every_run(LOOKS, [*LOOKS[-4:], *LOOKS[:-4:4]], pytest.mark.each_commit),
)
def test_a_look_tells_what_a_run_does(
    synced: Path, change: Callable[[Path], None], policy: str
) -> None:
    change(synced)
    before = contents(synced)
    options = ("upgrade", "--all", "--format", "json", "--on-conflict", policy)
    looked = scaffold(synced, *options, "--dry-run")
    shown = scaffold(synced, *options, "--diff")
    assert contents(synced) == before
    done = scaffold(synced, *options)
    said, told = json.loads(looked.out), json.loads(done.out)
    assert said.pop("written") is False
    refused = bool(told["problems"])
    assert told.pop("written") is not refused
    assert {item["source"] for item in told["problems"]} <= {OP}
    assert (looked.code, said) == (done.code, told)
    after = contents(synced)
    changed = {
        path
        for path in after
        if after[path] != before.get(path) and not path.startswith(".scaffold/")
    }
    if refused:
        assert (changed, done.code) == (set(), 1)
        return
    verbs = {item["path"]: item["verb"] for item in told["files"]}
    assert changed == {
        path for path, verb in verbs.items() if verb in ("update", "conflict")
    }
    with_diff = {
        item["path"] for item in json.loads(shown.out)["files"] if item["diff"]
    }
    assert changed == with_diff


def test_the_difference_is_the_one_that_is_made(synced: Path) -> None:
    append(synced / OP)
    respecify(synced)
    shown = scaffold(synced, "upgrade", "scale", "--diff").out
    assert "-def scale(x: Tensor, factor: float = 2.0) -> Tensor:\n" in shown
    assert "+def scale(x: Tensor, factor: float = 3.0) -> Tensor:\n" in shown
    assert not [line for line in shown.splitlines() if "by_hand" in line[:12]]


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "another text"])
def test_without_the_base_nothing_is_merged(synced: Path, lost: bool) -> None:
    append(synced / OP)
    respecify(synced)
    lose(synced, "scale", "op", gone=lost)
    before = contents(synced)
    outcome = scaffold(synced, "upgrade", "--all")
    assert outcome.code == 1
    assert "there is no record of its generated text" in outcome.err
    assert "--on-conflict skip or overwrite" in outcome.err
    assert contents(synced) == before
    assert scaffold(synced, "upgrade", "--all", "--on-conflict", "overwrite").code == 0
    assert scaffold(synced, "check", "--strict").code == 0


def test_a_base_that_is_lost_is_written_anew_where_the_file_tells(synced: Path) -> None:
    lose(synced, "scale", "op")
    respecify(synced)
    assert scaffold(synced, "upgrade", "--all").code == 0
    assert scaffold(synced, "check", "--strict").code == 0


def test_a_checkout_with_crlf_stays_one(synced: Path) -> None:
    append(synced / OP)
    for path, data in contents(synced).items():
        (synced / path).write_bytes(data.replace(b"\n", b"\r\n"))
    manifest = synced / "ops.toml"
    manifest.write_bytes(manifest.read_bytes().replace(b"= 2.0", b"= 3.0"))
    assert scaffold(synced, "upgrade", "--all").code == 0
    for path in (OP, TEST, "ops/shift.py"):
        data = (synced / path).read_bytes()
        assert data.count(b"\n") == data.count(b"\r\n") > 0, path
    text = (synced / OP).read_bytes()
    assert b"by_hand" in text
    assert b"factor: float = 3.0" in text
    assert scaffold(synced, "check").out == f"edited  {OP}\n4 ok, 1 edited\n"


RUFF = """
[tool.ruff]
line-length = 120
[tool.ruff.lint]
select = ["I"]
[tool.ruff.lint.isort]
force-single-line = true
"""


def formatted_by_ruff(root: Path) -> None:
    """What the team's hooks do to every file."""
    for arguments in (("check", "--fix"), ("format",)):
        ruff = (sys.executable, "-m", "ruff", *arguments, "-qn", "ops", "tests")
        subprocess.run(ruff, cwd=root, check=True, capture_output=True)


def test_the_team_s_formatter_is_no_drift_and_stays(tmp_path: Path) -> None:
    project(tmp_path, SCALE, SHIFT, configuration=CONFIGURATION)
    assert scaffold(tmp_path, "sync").code == 0
    with (tmp_path / "pyproject.toml").open("a") as configuration:
        configuration.write(RUFF)
    written = contents(tmp_path / "tests")
    formatted_by_ruff(tmp_path)
    assert contents(tmp_path / "tests") != written
    assert scaffold(tmp_path, "check", "--strict").out == "5 ok\n"
    append(tmp_path / OP)
    respecify(tmp_path)
    assert scaffold(tmp_path, "upgrade", "--all").code == 0
    merged = contents(tmp_path)
    formatted_by_ruff(tmp_path)
    assert contents(tmp_path) == merged, "it is in the team's formatting already"
    text = merged[OP].decode()
    assert "by_hand" in text
    assert "factor: float = 3.0" in text
    assert scaffold(tmp_path, "check").out == f"edited  {OP}\n4 ok, 1 edited\n"


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Format anew, as another process does."""
    kept: dict[tuple[str, int], str] = {}
    monkeypatch.setattr(formatting, "_KEPT", kept)


@pytest.mark.parametrize(
    "style",
    [
        pytest.param({"line_length": 60}, id="shorter lines"),
        pytest.param(
            {"line_length": 120}, id="longer lines", marks=pytest.mark.each_commit
        ),
    ],
)
def test_another_version_of_black_is_no_drift(
    synced: Path, monkeypatch: pytest.MonkeyPatch, style: dict[str, Any]
) -> None:
    """Played by a black of another style; the version of the tool is another too, so that all is rendered."""
    before = contents(synced)
    _forget(monkeypatch)
    other = Mode(target_versions={TargetVersion.PY311}, **style)
    monkeypatch.setattr(formatting, "_mode", lambda length: other)
    monkeypatch.setattr("scaffold.project.survey.__version__", "99.0")
    assert scaffold(synced, "check", "--strict").out == "5 ok\n"
    assert scaffold(synced, "sync").out == "2 identical (4 files)\n"
    sources = [path for path in before if path.endswith(".py")]
    anew = {path: formatting.format_source(before[path].decode()) for path in sources}
    assert any(anew[path].encode() != before[path] for path in sources), "it is another"
    assert all((synced / path).read_bytes() == before[path] for path in sources)
    append(synced / OP)
    respecify(synced)
    assert scaffold(synced, "upgrade", "--all").code == 0
    merged, old = (synced / OP).read_text(), before[OP].decode()
    assert normal_form(merged) == normal_form(old.replace(*DEFAULT) + HELPER)
    assert scaffold(synced, "check").out == f"edited  {OP}\n4 ok, 1 edited\n"


def test_edits_that_are_not_committed_are_worth_a_note(synced: Path) -> None:
    """What is merged into them could not be undone."""
    git(synced, "init", "-q")
    git(synced, "add", ".")
    git(synced, "commit", "-q", "-m", "all")
    append(synced / OP)
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    note = f"note: not committed: '{OP}'; git could not undo this\n"
    assert scaffold(synced, "upgrade", "--dry-run").err == note
    assert scaffold(synced, "upgrade", "shift").err == ""
    git(synced, "commit", "-q", "-a", "-m", "mine")
    assert scaffold(synced, "upgrade", "--dry-run").err == ""
    append(synced / OP)
    assert scaffold(synced, "upgrade").err == note


PRODUCT = """[ops.product]
inputs = 'x[..., D], scale[D]'
forward = 'x * scale'
"""
CHECK = "if scale.shape != (x.shape[-1],):"
OFF = CONFIGURATION + "shape-checks = false\n"


def test_the_checks_of_declared_shapes_come_into_an_op_of_an_earlier_version(
    tmp_path: Path,
) -> None:
    """What was written without them is stale; the lines go into a file that was edited by hand."""
    project(tmp_path, PRODUCT, configuration=OFF)
    assert scaffold(tmp_path, "sync", "--no-verify").code == 0
    op = tmp_path / "ops/product.py"
    assert "ValueError" not in op.read_text()
    append(op)
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION)
    assert "ops/product.py" in scaffold(tmp_path, "check").out
    assert scaffold(tmp_path, "upgrade", "product", "--no-verify").code == 0
    text = op.read_text()
    assert text.endswith(HELPER)
    assert text.count(CHECK) == 1
    assert text.index("def forward") < text.index(CHECK) < text.index("x * scale")
