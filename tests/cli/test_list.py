"""The ops of a project, and how they stand."""

import json
from pathlib import Path

import pytest

from tests.cli.projects import (
    COMMENTED,
    SHIFT,
    edit,
)
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")


def test_list_says_how_ops_stand(commented: Path) -> None:
    edit(commented / "ops/scale.py", "x * factor", "factor * x")
    (commented / "tests/test_shift.py").unlink()
    new = "\n[ops.todo]\ninputs = 'x'\n\n[ops.later]\ninputs = 'x'\n"
    (commented / "ops.toml").write_text(COMMENTED + new)
    assert scaffold(commented, "upgrade", "todo").code == 0
    outcome = scaffold(commented, "list")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "scale  ops.toml:4   ops/scale.py (edited), tests/test_scale.py",
        "shift  ops.toml:11  ops/shift.py, tests/test_shift.py (missing)",
        "todo   ops.toml:17  ops/todo.py, tests/test_todo.py; skeleton",
        "later  ops.toml:20  not written yet: scaffold sync",
    ]
    (commented / "ops.toml").write_text(SHIFT)
    *_, gone = json.loads(scaffold(commented, "list", "--format", "json").out)["ops"]
    assert gone["op"] == "todo"
    assert gone["status"] == ["in no manifest any more: scaffold remove todo"]


def test_list_ends_as_check_does_where_a_table_is_wrong(commented: Path) -> None:
    (commented / "ops.toml").write_text(COMMENTED.replace("forward", "foward", 1))
    for format_ in ("text", "json"):
        outcome = scaffold(commented, "list", "--format", format_)
        assert "scale" in outcome.out and outcome.code == 2
        assert outcome.err.startswith(
            "ops.toml:6:1: unknown key 'foward' in op 'scale'"
        )
    assert scaffold(commented, "check").err == outcome.err
