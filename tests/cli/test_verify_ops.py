"""`scaffold verify` as a user sees it: which tests of ops pass."""

import json
import os
import pty
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from scaffold.cli.verify import _Line
from tests.cli.projects import SCALE, project
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")

TODO = "[ops.todo]\ninputs = 'x'\n"
PLAIN = "[ops.plain]\ninputs = 'x'\nforward = 'x + 1'\ngrad.x = 'grad_output'\ntest = false\n"


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of an op that is right, one that is not written and one without tests."""
    root = project(tmp_path_factory.mktemp("ops"), SCALE, TODO, PLAIN)
    assert scaffold(root, "sync").code == 0
    return root


@pytest.mark.each_commit
def test_a_skeleton_is_not_a_pass(ops: Path) -> None:
    outcome = scaffold(ops / "tests", "verify")
    assert outcome.code == 1
    scale, todo, plain, counts = outcome.out.splitlines()
    assert scale.split()[0] == "scale" and scale.split()[2:] == ["passed"]
    assert todo == "todo   not implemented: write forward"
    assert plain == "plain  has no tests, as its table says"
    assert counts == "1 passed, 1 not implemented, 1 untested"


def test_what_passes_exits_with_zero(ops: Path) -> None:
    outcome = scaffold(ops, "verify", "tests/test_scale.py", "plain")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1] == "1 passed, 1 untested"


@pytest.mark.each_commit
def test_failures_edits_and_missing_files_are_told(tmp_path: Path) -> None:
    root = project(tmp_path, SCALE, TODO)
    assert scaffold(root, "sync").code == 0
    file = root / "ops/scale.py"
    file.write_text(
        file.read_text().replace("grad_output * ctx", "2 * grad_output * ctx")
    )
    (root / "tests/test_todo.py").unlink()
    outcome = scaffold(root, "verify", "--format", "json")
    assert outcome.code == 1
    scale, todo = json.loads(outcome.out)["tests"]
    assert (scale["name"], scale["status"]) == ("scale", "failed")
    assert scale["counts"]["failed"] == len(scale["failures"]) > 0
    assert scale["files"] == {"ops/scale.py": "edited"}
    assert (todo["status"], todo["test"]) == ("missing", "tests/test_todo.py")
    told = scaffold(root, "verify", "scale").out.splitlines()
    assert told[0].startswith(f"scale  {scale['counts']['failed']} failed, ")
    assert told[0].endswith("  (ops/scale.py: edited)")
    assert told[2] == "tests/test_scale.py"
    assert "test_" in told[3] and ": " in told[3]


@pytest.mark.each_commit
def test_another_interpreter_runs_the_tests(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    options = ("--python", str(python), "--jobs", "2")
    assert scaffold(tmp_path, "verify", "test_a.py", *options).code == 0
    assert "testing.py" in (tmp_path / "ran").read_text()


def test_a_terminal_sees_how_far_it_is() -> None:
    leader, follower = pty.openpty()
    with (
        os.fdopen(leader, "rb", 0) as seen,
        os.fdopen(follower, "w") as terminal,
        patch.object(sys, "stderr", terminal),
    ):
        line = _Line(3)
        line.show(17)
        assert seen.read(100).endswith(b"] 0/3 files, 17 tests")
        line.clear(ended=1)
        assert seen.read(100) == b"\r\x1b[K"
        line.show(17)
        assert seen.read(100).endswith(b"] 1/3 files, 17 tests")
