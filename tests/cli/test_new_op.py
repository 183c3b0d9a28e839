"""`new-op`: what it says, writes and returns, with and without files in its way."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.projects import interrupted
from tests.cli.running import QUICK, Outcome, listing, new_op

PAIR = ("--inputs", "x", "--no-module")
VERBS = {"ask": "conflict", "abort": "conflict", "skip": "skip", "overwrite": "update"}


@pytest.fixture
def occupied(tmp_path: Path) -> Path:
    """A directory in which one of the two files exists and differs."""
    (tmp_path / "foo.py").write_text("mine\n")
    return tmp_path


def stable(directory: Path, *arguments: str) -> Outcome:
    """Run, and hold that nothing was written."""
    before = listing(directory)
    outcome = new_op(directory, *arguments)
    assert listing(directory) == before
    return outcome


def test_two_files_are_created_and_then_identical(tmp_path: Path) -> None:
    outcome = new_op(tmp_path, *PAIR)
    assert outcome.out == "create  foo.py\ncreate  test_foo.py\n"
    assert outcome.err == "note: left for you to write: forward, grad_x\n"
    assert list(listing(tmp_path)) == ["foo.py", "test_foo.py"]
    again = stable(tmp_path, *PAIR)
    assert (again.code, again.out) == (
        0,
        "identical  foo.py\nidentical  test_foo.py\n",
    )


@pytest.mark.parametrize("policy", ["ask", "abort"])
def test_off_a_terminal_conflicts_stop_the_run(occupied: Path, policy: str) -> None:
    (occupied / "test_foo.py").write_text("mine\n")
    outcome = stable(occupied, *PAIR, "--on-conflict", policy)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines()[:2] == [
        "error: 'foo.py', 'test_foo.py' exist and differ; nothing was written",
        "hint: see the difference with --diff; then use --on-conflict skip or overwrite",
    ]


def test_the_default_policy_is_to_ask(occupied: Path) -> None:
    assert stable(occupied, *PAIR) == stable(occupied, *PAIR, "--on-conflict", "ask")


def test_skip_keeps_the_file_and_creates_the_other(occupied: Path) -> None:
    outcome = new_op(occupied, *PAIR, "--on-conflict", "skip")
    assert outcome.code == 0
    assert outcome.out == "skip    foo.py\ncreate  test_foo.py\n"
    assert listing(occupied)["foo.py"] == b"mine\n"


def test_overwrite_replaces_it(occupied: Path) -> None:
    outcome = new_op(occupied, *PAIR, "--on-conflict", "overwrite")
    assert outcome.code == 0
    assert outcome.out == "update  foo.py\ncreate  test_foo.py\n"
    assert b"class FooFunction" in listing(occupied)["foo.py"]


@pytest.mark.parametrize("policy", VERBS)
@pytest.mark.parametrize("look", ["--dry-run", "--diff"])
def test_a_look_writes_nothing_and_tells_the_truth(
    occupied: Path, policy: str, look: str
) -> None:
    """Same verbs and exit code as the real run; a run that stops has no verbs to show."""
    arguments = (*PAIR, "--on-conflict", policy)
    seen = stable(occupied, *arguments, look)
    real = new_op(occupied, *arguments)
    assert seen.code == real.code
    if look == "--dry-run":
        verbs = [line.split()[0] for line in seen.out.splitlines()]
        assert verbs == [VERBS[policy], "create"]
        assert real.out in ("", seen.out)


@pytest.mark.parametrize("policy", ["skip", "overwrite"])
def test_the_difference_is_what_the_run_changes(occupied: Path, policy: str) -> None:
    """Applied by git, it gives what the run gives."""
    arguments = (*PAIR, "--on-conflict", policy)
    difference = stable(occupied, *arguments, "--diff").out
    before = listing(occupied)
    new_op(occupied, *arguments)
    written = listing(occupied)
    for name in written:
        (occupied / name).unlink()
    for name, data in before.items():
        (occupied / name).write_bytes(data)
    subprocess.run(
        ["git", "apply"], cwd=occupied, input=difference.encode(), check=True
    )
    assert listing(occupied) == written


def test_a_conflict_is_shown_by_diff(occupied: Path) -> None:
    outcome = stable(occupied, *QUICK, "--diff")
    assert outcome.code == 1
    assert "--- a/foo.py\n+++ b/foo.py\n" in outcome.out
    assert "\n-mine\n" in outcome.out


def test_stdout_prints_what_would_be_written(tmp_path: Path) -> None:
    outcome = stable(tmp_path, *PAIR, "--stdout", "--out-dir", "src", "--doc", "Größe.")
    assert outcome.code == 0
    new_op(tmp_path, *PAIR, "--out-dir", "src", "--doc", "Größe.")
    texts = {name: data.decode() for name, data in listing(tmp_path).items()}
    assert outcome.out == "".join(f"# {name}\n{text}" for name, text in texts.items())


def test_stdout_of_one_file_is_that_file(occupied: Path) -> None:
    outcome = stable(occupied, *QUICK, "--stdout")
    new_op(occupied, *QUICK, "--on-conflict", "overwrite")
    assert outcome.out == (occupied / "foo.py").read_text()


@pytest.mark.parametrize("other", ["--diff", "--dry-run"])
def test_stdout_with_another_look_is_an_error(tmp_path: Path, other: str) -> None:
    outcome = stable(tmp_path, *QUICK, "--stdout", other)
    assert outcome.code == 2
    assert outcome.err.startswith(f"{other}: ")


def for_programs(directory: Path, *arguments: str) -> tuple[Outcome, dict[str, Any]]:
    outcome = new_op(directory, *arguments, "--format", "json")
    result = json.loads(outcome.out)
    assert list(result) == [
        *("version", "written", "files", "missing"),
        *("proven", "notes", "problems"),
    ]
    assert result["version"] == 1
    return outcome, result


def test_json_of_a_run(tmp_path: Path) -> None:
    outcome, result = for_programs(tmp_path, *PAIR)
    assert (outcome.code, outcome.err) == (0, "")
    assert result == {
        "version": 1,
        "written": True,
        "files": [
            {"path": "foo.py", "verb": "create"},
            {"path": "test_foo.py", "verb": "create"},
        ],
        "missing": ["forward", "grad_x"],
        "proven": False,
        "notes": ["left for you to write: forward, grad_x"],
        "problems": [],
    }


def test_json_of_a_conflict(occupied: Path) -> None:
    outcome, result = for_programs(occupied, *PAIR)
    assert outcome.code == 1
    assert not result["written"]
    assert [item["verb"] for item in result["files"]] == ["conflict", "create"]
    (problem,) = result["problems"]
    assert problem["message"] == "'foo.py' exists and differs; nothing was written"
    assert outcome.err.startswith(f"error: {problem['message']}\nhint: ")
    assert list(listing(occupied)) == ["foo.py"]


@pytest.mark.parametrize("policy", ["ask", "abort"])
@pytest.mark.parametrize("flag", ["--dry-run", "--diff"])
def test_json_of_a_look_tells_what_a_run_would_stop_at(
    occupied: Path, flag: str, policy: str
) -> None:
    chosen = (*PAIR, "--on-conflict", policy)
    looked, found = for_programs(occupied, *chosen, flag)
    done, told = for_programs(occupied, *chosen)
    assert (looked.code, found["problems"]) == (done.code, told["problems"])
    assert found["problems"] and looked.err == ""
    settled = for_programs(occupied, *PAIR, "--on-conflict", "skip", flag)
    assert settled[1]["problems"] == []


def test_json_of_bad_input(tmp_path: Path) -> None:
    said = ("--inputs", "x", "--grad", "x=\n  q + r", "--format", "json")
    outcome = new_op(tmp_path, *said)
    result = json.loads(outcome.out)
    assert outcome.code == 2
    places = [(item["source"], item["line"]) for item in result["problems"]]
    assert places == [("--grad", 2), ("--grad", 2)]
    assert [item["column"] for item in result["problems"]] == [3, 7]
    assert result["problems"][0]["message"] == "unknown name 'q'"
    assert result["problems"][0]["hint"]
    first, hint, *_ = outcome.messages
    assert first == "--grad:2:3: unknown name 'q'" and hint.startswith("hint: ")


def test_json_with_the_difference_and_with_the_texts(occupied: Path) -> None:
    _, looked = for_programs(occupied, *QUICK, "--diff")
    assert looked["files"][0]["verb"] == "conflict"
    assert looked["files"][0]["diff"] == new_op(occupied, *QUICK, "--diff").out
    _, printed = for_programs(occupied, *QUICK, "--stdout")
    text = new_op(occupied, *QUICK, "--stdout").out
    assert printed["files"] == [{"path": "foo.py", "text": text}]


def test_all_problems_of_a_run_are_reported(tmp_path: Path) -> None:
    """Of the options, of the configuration, of places, of values and of the op; in the order of their places."""
    (tmp_path / "a-file").touch()
    outcome = stable(
        *(tmp_path, "--inputs", "x, x", "--tolerance", "eps", "--style", "none"),
        *("--format", "xml", "--out-dir", "a-file", "--grad", "=weight"),
    )
    assert outcome.code == 2
    places = [
        line.split(": ")[0]
        for line in outcome.messages
        if not line.startswith("hint: ")
    ]
    assert places == [
        *("--format", "--grad", "--inputs:1:4", "--out-dir"),
        *("--style", "--tolerance"),
    ]


def test_a_bad_configuration_does_not_hide_a_bad_option(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\nsorce = 'src'\n")
    outcome = stable(tmp_path, "--inputs", "x[")
    assert "--inputs:1:2: '[' is never closed" in outcome.err
    assert "pyproject.toml:2:1: unknown key 'sorce'" in outcome.err
    assert outcome.code == 2


def test_an_interrupted_run_is_undone_first(tmp_path: Path) -> None:
    new_op(tmp_path, *PAIR)
    interrupted(tmp_path, "foo.py", before=b"mine\n")
    outcome = new_op(tmp_path, *PAIR, "--on-conflict", "skip")
    assert "note: undid what an interrupted run had begun: foo.py" in outcome.err
    assert outcome.out == "skip       foo.py\nidentical  test_foo.py\n"
    assert listing(tmp_path)["foo.py"] == b"mine\n"


def test_messages_name_files_as_seen_from_here(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.scaffold]\nsource = 'src'\ntests = 'tests'\n"
    )
    below = tmp_path / "docs"
    below.mkdir()
    assert new_op(below, *PAIR).out == (
        "create  ../src/foo.py\n"
        "create  ../tests/test_foo.py\n"
        "create  ../tests/op_testing.py\n"
        "create  ../ops.toml\n"
    )
    again = new_op(below, *PAIR, "--style", "combined")
    assert again.code == 1
    assert again.err.startswith("../ops.toml:1:6: op 'foo' is here already, and")
    (tmp_path / "ops.toml").unlink()
    shutil.rmtree(tmp_path / ".scaffold")
    (tmp_path / "src/foo.py").write_text("mine = 1\n")
    again = new_op(below, *PAIR)
    assert again.err.startswith("../src/foo.py:1:1: exists and differs")


def test_what_a_surrogate_is_the_derivative_of_may_read_the_locals_of_the_forward(
    tmp_path: Path,
) -> None:
    done = new_op(
        tmp_path,
        *("--forward", "y = x * 4\nz = y.clamp(-1, 1)\nreturn torch.round(z)"),
        *(
            "--surrogate-forward",
            "z + 0 * x",
            "--grad",
            "x=4 * grad_output * (y.abs() <= 1)",
        ),
        *("--no-module", "--verify"),
    )
    assert done.code == 0, done.err
    test = (tmp_path / "test_foo.py").read_text()
    shown = "y = x * 4\n        z = y.clamp(-1, 1)\n        return z + 0 * x\n"
    assert shown in test
