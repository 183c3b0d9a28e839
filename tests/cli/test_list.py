"""The ops of a project, and how they stand."""

import json
from pathlib import Path

import pytest

from tests.cli.projects import (
    COMMENTED,
    SHIFT,
    edit,
    project,
)
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")


@pytest.fixture
def synced(tmp_path: Path) -> Path:
    project(tmp_path, COMMENTED)
    assert scaffold(tmp_path, "sync").code == 0
    return tmp_path


def test_list_says_how_ops_stand(synced: Path) -> None:
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    (synced / "tests/test_shift.py").unlink()
    new = "\n[ops.todo]\ninputs = 'x'\n\n[ops.later]\ninputs = 'x'\n"
    (synced / "ops.toml").write_text(COMMENTED + new)
    assert scaffold(synced, "upgrade", "todo").code == 0
    outcome = scaffold(synced, "list")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "scale  ops.toml:4   ops/scale.py (edited), tests/test_scale.py",
        "shift  ops.toml:11  ops/shift.py, tests/test_shift.py (missing)",
        "todo   ops.toml:17  ops/todo.py, tests/test_todo.py; skeleton",
        "later  ops.toml:20  not written yet: scaffold sync",
    ]
    (synced / "ops.toml").write_text(SHIFT)
    *_, gone = json.loads(scaffold(synced, "list", "--format", "json").out)["ops"]
    assert gone["op"] == "todo"
    assert gone["status"] == ["in no manifest any more: scaffold remove todo"]
