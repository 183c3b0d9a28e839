"""`scaffold check`: each file is classed by what is true of it, and nothing else is drift."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.cli.terminal import VERBS
from scaffold.cli.verify import find_tests
from scaffold.project.file_status import STATUSES
from scaffold.workspace import records
from tests.cli.projects import (
    SCALE,
    SHIFT,
    as_written,
    contents,
    edit,
    interrupted,
    lose,
)
from tests.cli.running import environment, run, scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")

OK = "5 ok\n"


def lines(outcome_text: str) -> list[str]:
    return outcome_text.splitlines()


def test_what_sync_wrote_is_ok(synced: Path) -> None:
    before = contents(synced)
    outcome = scaffold(synced, "check", "--strict")
    assert (outcome.code, outcome.out, outcome.err) == (0, OK, "")
    assert contents(synced) == before


def test_an_edit_is_told_and_fails_only_when_strict(synced: Path) -> None:
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    outcome = scaffold(synced, "check")
    assert (outcome.code, lines(outcome.out)) == (
        0,
        [
            "edited    ops/scale.py",
            "unproven  ops/scale.py: its Function has changed since the proof",
            "4 ok, 1 edited, 1 unproven",
        ],
    )
    assert scaffold(synced, "check", "--strict").code == 1


def test_states_are_coloured_where_colours_are_shown(synced: Path) -> None:
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    (synced / "tests/test_shift.py").unlink()
    shown = run(synced, "check", FORCE_COLOR="1").out
    assert "\x1b[33medited  \x1b[0m  ops/scale.py\n" in shown
    assert "\x1b[1;31mmissing \x1b[0m  tests/test_shift.py" in shown
    listed = run(synced, "list", FORCE_COLOR="1").out
    assert (
        "(\x1b[33medited\x1b[0m)" in listed and "(\x1b[1;31mmissing\x1b[0m)" in listed
    )
    assert {*STATUSES} - {"ok"} <= VERBS.keys()
    assert "\x1b" not in run(synced, "check", FORCE_COLOR="1", NO_COLOR="1").out


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("x + bias", "bias + x", "ops.toml", "the specification changed"),
        (
            'source = "ops"',
            'source = "ops"\nstyle = "combined"',
            "pyproject.toml",
            "the configuration changed",
        ),
    ],
)
def test_a_file_is_stale_where_it_would_be_rendered_otherwise(
    synced: Path, old: str, new: str, path: str, reason: str
) -> None:
    edit(synced / path, old, new)
    outcome = scaffold(synced, "check")
    assert outcome.code == 1
    assert f"stale  ops/shift.py: {reason}" in lines(outcome.out)
    assert outcome.err == "hint: scaffold sync\n"


def test_a_template_that_moves_makes_its_files_stale(synced: Path) -> None:
    templates = synced / "templates"
    templates.mkdir()
    (templates / "op.py.jinja").write_text(
        '{% extends "builtin/op.py.jinja" %}\n'
        "{% block header %}\n# ours\n{{ super() }}{% endblock %}\n"
    )
    edit(synced / "pyproject.toml", "source", 'template-dirs = ["templates"]\nsource')
    outcome = scaffold(synced, "check")
    assert lines(outcome.out) == [
        "stale  ops/scale.py: a template changed",
        "stale  ops/shift.py: a template changed",
        "3 ok, 2 stale",
    ]


def test_a_version_alone_is_no_drift(
    synced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scaffold.project.survey.__version__", "99.0")
    outcome = scaffold(synced, "check", "--strict")
    assert (outcome.code, outcome.out) == (0, OK)


def test_formatting_is_no_edit(synced: Path) -> None:
    for path in [*(synced / "ops").iterdir(), *(synced / "tests").iterdir()]:
        before = path.read_bytes()
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            "format",
            "--line-length",
            "60",
            str(path),
        ]
        subprocess.run(ruff, check=True, capture_output=True)
        assert path.read_bytes() != before
    outcome = scaffold(synced, "check", "--strict")
    assert (outcome.code, outcome.out) == (0, OK)


def test_a_checkout_with_crlf_is_no_edit(synced: Path) -> None:
    for path, data in contents(synced).items():
        (synced / path).write_bytes(data.replace(b"\n", b"\r\n"))
    outcome = scaffold(synced, "check", "--strict")
    assert (outcome.code, outcome.out) == (0, OK)


def test_a_file_that_is_gone_is_missing(synced: Path) -> None:
    (synced / "tests/test_shift.py").unlink()
    outcome = scaffold(synced, "check")
    assert (outcome.code, lines(outcome.out)) == (
        1,
        ["missing  tests/test_shift.py", "4 ok, 1 missing"],
    )


def test_an_op_that_was_never_written_is_missing(synced: Path) -> None:
    with (synced / "ops.toml").open("a") as manifest:
        manifest.write(SCALE.replace("ops.scale", "ops.other"))
    outcome = scaffold(synced, "check")
    assert outcome.code == 1
    assert "missing  ops/other.py" in lines(outcome.out)


def test_an_op_that_no_manifest_lists_is_orphaned(synced: Path) -> None:
    (synced / "ops.toml").write_text(SHIFT)
    outcome = scaffold(synced, "check")
    assert outcome.code == 1
    assert lines(outcome.out) == [
        "orphaned  ops/scale.py: no op 'scale' in ops.toml",
        "orphaned  tests/test_scale.py: no op 'scale' in ops.toml",
        "3 ok, 2 orphaned",
    ]
    assert outcome.err == "hint: scaffold remove scale\n"


def test_conflict_markers_are_told(synced: Path) -> None:
    path = synced / "ops/scale.py"
    path.write_text(f"<<<<<<< yours\n{path.read_text()}=======\n>>>>>>> scaffold\n")
    outcome = scaffold(synced, "check")
    assert (outcome.code, lines(outcome.out)[0]) == (
        1,
        "conflict-markers  ops/scale.py",
    )


def test_only_the_ops_that_are_named(synced: Path) -> None:
    (synced / "ops/scale.py").unlink()
    assert scaffold(synced, "check", "shift").out == "2 ok\n"
    outcome = scaffold(synced, "check", "shfit")
    assert outcome.code == 2
    assert "did you mean 'shift'?" in outcome.err


def test_the_difference_is_shown(synced: Path) -> None:
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    edit(synced / "ops.toml", "x + bias", "bias + x")
    told = scaffold(synced, "check", "--diff").out
    assert "-        return x * factor\n+        return factor * x\n" in told
    assert "-        return x + bias\n+        return bias + x\n" in told


def test_programs_and_github_get_the_same(synced: Path) -> None:
    edit(synced / "ops.toml", "x + bias", "bias + x")
    told = json.loads(scaffold(synced, "check", "--format", "json").out)
    assert {"ok", "stale"} == {file["status"] for file in told["files"]}
    said = scaffold(synced, "check", "--format", "github").out
    assert said.startswith("::error file=ops/shift.py,line=1,")
    assert "stale: the specification changed (scaffold sync)" in said


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *(("{", ":1:2"), ("[]", ":1:1"), ('{"version": 1}', ":1:1")),
        *(
            ('{"version": 3, "files": []}', ":1:1"),
            ('{"version": 2, "reads": []}', ":1:1"),
        ),
        ("[" * 100_000, ":1:1"),
    ],
)
def test_a_broken_record_is_an_error_at_its_place(
    synced: Path, text: str, place: str
) -> None:
    (synced / records.record_path("scale")).write_text(text)
    outcome = scaffold(synced, "check")
    assert outcome.code == 2
    assert outcome.err.startswith(
        f".scaffold/scale.json{place}: is not a valid record of an op"
    )


@pytest.mark.parametrize("outside", ["../precious.py", "{root}/../precious.py"])
@pytest.mark.parametrize(
    "command", [["check"], ["sync"], ["remove", "scale", "--force"]]
)
def test_a_record_names_no_file_outside_of_the_project(
    synced: Path, command: list[str], outside: str
) -> None:
    """It may come from a repository that nobody vouches for, and what it names is moved and removed."""
    precious = synced.parent / "precious.py"
    precious.write_text((synced / "ops/scale.py").read_text())
    record = synced / records.record_path("scale")
    there = outside.format(root=synced)
    record.write_text(record.read_text().replace("ops/scale.py", there))
    outcome = scaffold(synced, *command)
    assert outcome.code == 2
    assert ".scaffold/scale.json:1:1: is not a valid record of an op" in outcome.err
    assert precious.exists()


def test_a_base_that_is_lost_or_wrong_makes_no_file_ok(synced: Path) -> None:
    """What cannot be compared counts as edited: nothing of the user's is written over."""
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    lose(synced, "scale", "op")
    assert "edited    ops/scale.py" in scaffold(synced, "check").out


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("file", ["as written", "formatted", "edited", "missing"])
def test_a_base_that_is_lost_is_told_and_written_again(
    synced: Path, file: str, gone: bool
) -> None:
    op, written = synced / "ops/scale.py", as_written(synced, "scale", "op")
    if file == "missing":
        op.unlink()
    elif file != "as written":
        edit(op, "def scale(x:", "def scale( x:")
        if file == "edited":
            edit(op, "x * factor", "factor * x")
    mine = op.read_text() if op.exists() else None
    lose(synced, "scale", "op", gone=gone)
    outcome = scaffold(synced, "check", "scale")
    told = (
        "does not hold how 'ops/scale.py' was written; a merge of that starts from it"
    )
    assert f".scaffold/scale.json: {told}" in outcome.out
    assert ", 1 lost" in outcome.out
    hints = ["hint: scaffold sync"]
    if file == "edited":
        hints.append("hint: scaffold verify scale")
    assert (outcome.code, lines(outcome.err)) == (1, hints)
    before = contents(synced)
    path = ".scaffold/scale.json"
    note = f"note: '{path}' had lost how 'ops/scale.py' was written: it says so again\n"
    assert scaffold(synced, "sync", "--dry-run").err == note
    assert contents(synced) == before
    outcome = scaffold(synced, "sync")
    assert (outcome.code, outcome.err) == (0, note)
    assert as_written(synced, "scale", "op") == written
    assert op.read_text() == (mine or written)
    checked = scaffold(synced, "check").out
    edited = "4 ok, 1 edited, 1 unproven\n"
    assert checked.endswith(edited if file == "edited" else OK)
    assert scaffold(synced, "sync").err == ""


def test_a_base_that_is_lost_is_nothing_to_say_of_tests(
    synced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(synced, "scale", "op")
    monkeypatch.chdir(synced)
    (found,) = find_tests(("scale",))
    assert (found.there, found.standing) == (True, ())


def test_a_base_that_only_the_team_still_has_is_told(synced: Path) -> None:
    """The file is edited and out of date: nothing here says what it was."""
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    lose(synced, "scale", "op")
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    outcome = scaffold(synced, "check", "scale", "--format", "json")
    found = {item["path"]: item for item in json.loads(outcome.out)["files"]}
    told = found[".scaffold/scale.json"]
    assert (told["op"], told["status"]) == ("scale", "lost")
    back = "take '.scaffold/scale.json' from version control"
    assert told["hint"] == f"{back}, then scaffold upgrade scale"
    before = contents(synced)
    outcome = scaffold(synced, "sync")
    assert outcome.code == 1
    assert "it says so again" not in outcome.err
    assert contents(synced) == before


def test_without_a_project_it_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ops.toml").write_text(SCALE)
    outcome = scaffold(tmp_path, "check")
    assert outcome.code == 2
    assert "scaffold init" in outcome.err


@pytest.mark.parametrize("command", ["check", "sync"])
def test_what_renders_and_proves_is_not_imported_where_nothing_changed(
    synced: Path, command: str
) -> None:
    script = (
        f"import sys; sys.argv = ['scaffold', '{command}']\n"
        "from scaffold.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "heavy = {'torch', 'jinja2', 'black', 'scaffold.formula', 'scaffold.inspect'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=synced,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("\n[]\n"), done.stdout + done.stderr


def append(path: Path) -> None:
    path.write_text(path.read_text() + "# mine\n")


def move_spec(root: Path) -> None:
    edit(root / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")


def take_out(root: Path) -> None:
    edit(root / "ops.toml", SCALE, "")


def without_test(root: Path) -> None:
    gradient = "grad.x = 'grad_output * factor'\n"
    edit(root / "ops.toml", gradient, f"{gradient}test = false\n")


def dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def finished(root: Path) -> None:
    """What a run leaves that was killed after it was done."""
    interrupted(root, "ops/scale.py", b"before")
    with (root / ".scaffold-journal.tmp").open("a") as journal:
        journal.write("done")


OP, TEST, RECORD = "ops/scale.py", "tests/test_scale.py", ".scaffold/scale.json"
STATES: dict[str, list[Callable[[Path], object]]] = {
    "stale": [move_spec],
    "stale, edited": [move_spec, lambda root: append(root / OP)],
    "stale, edited, without its test": [
        *(move_spec, lambda root: append(root / OP)),
        lambda root: (root / TEST).unlink(),
    ],
    "stale, the test edited, the op gone": [
        *(move_spec, lambda root: append(root / TEST)),
        lambda root: (root / OP).unlink(),
    ],
    "no record": [lambda root: shutil.rmtree(root / ".scaffold")],
    "no record, edited": [
        lambda root: append(root / OP),
        lambda root: shutil.rmtree(root / ".scaffold"),
    ],
    "no record, stale": [move_spec, lambda root: shutil.rmtree(root / ".scaffold")],
    "orphaned": [take_out],
    "orphaned, edited": [take_out, lambda root: append(root / TEST)],
    "no test any more": [without_test],
    "no test any more, edited": [without_test, lambda root: append(root / TEST)],
    "lost": [lambda root: lose(root, "scale", "op")],
    "lost, stale": [move_spec, lambda root: lose(root, "scale", "op")],
    "a link": [lambda root: dangle(root / OP)],
    "a link, stale": [move_spec, lambda root: dangle(root / TEST)],
    "interrupted": [
        lambda root: append(root / OP),
        lambda root: interrupted(
            root, OP, (as_written(root, "scale", "op") or "").encode()
        ),
    ],
    "interrupted after all was done": [finished],
    "a temporary file of nobody": [
        lambda root: (root / "ops/.scaffold-12ab-0.old.tmp").touch()
    ],
}


@pytest.mark.parametrize("name", STATES)
def test_its_hints_work_when_they_are_followed(synced: Path, name: str) -> None:
    """Each is a command, as it stands; with them, and nothing else, all is well in the end."""
    for change in STATES[name]:
        change(synced)
    outcome = scaffold(synced, "check")
    assert outcome.code == 1
    for _ in range(3):
        for line in outcome.err.splitlines():
            hint = line.removeprefix("hint: ")
            if hint.startswith("scaffold "):
                run = scaffold(synced, *shlex.split(hint)[1:])
                assert run.code == 0, (hint, run)
            else:
                assert hint.startswith("rm ")
                subprocess.run(["sh", "-ec", hint], cwd=synced, check=True)
        outcome = scaffold(synced, "check")
    assert outcome.code == 0, outcome
    assert not [path for path in contents(synced) if path.endswith(".tmp")]


def test_what_a_merge_needs_and_is_lost_comes_from_version_control(
    synced: Path,
) -> None:
    move_spec(synced)
    append(synced / OP)
    record = (synced / RECORD).read_bytes()
    lose(synced, "scale", "op")
    assert scaffold(synced, "check", "scale").err.splitlines()[0] == (
        f"hint: take '{RECORD}' from version control, then scaffold upgrade scale"
    )
    (synced / RECORD).write_bytes(record)
    assert scaffold(synced, "upgrade", "scale").code == 0
    assert scaffold(synced, "check", "scale").code == 0


def test_what_is_in_the_way_of_a_file_that_moves_is_told(synced: Path) -> None:
    edit(synced / "pyproject.toml", '"ops"', '"kernels"')
    (synced / "kernels").mkdir()
    (synced / "kernels/scale.py").write_text("mine = 1\n")
    outcome = scaffold(synced, "check")
    assert (
        "ops/scale.py: the configuration changed; 'kernels/scale.py' is in"
        in outcome.out
    )
    assert "hint: move 'kernels/scale.py' away\n" in outcome.err
    assert "kernels/scale.py:1:1: exists and differs" in scaffold(synced, "sync").err
