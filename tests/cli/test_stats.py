"""`scaffold stats`: how many Functions there are, and how they are written."""

import json
from pathlib import Path

import pytest

from tests.cli.running import scaffold
from tests.cli.test_lint import SHORT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(SHORT)
    return tmp_path


def test_functions_are_counted(project: Path) -> None:
    (project / "test_ops.py").write_text("from ops import Scale\n\nScale.apply(1, 2)\n")
    outcome = scaffold(project, "stats")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "     1  Functions in 2 files"
    assert "     1  named by a test                  100%" in lines
    assert "     0  once differentiable                0%" in lines


RECORDER = """\
import pytest
from ops import Scale


class Watched(Scale):
    @staticmethod
    def backward(ctx, grad_output):
        return Scale.backward(ctx, grad_output)
"""


@pytest.mark.parametrize("path", ["test_ops.py", "checks/ops_check.py", "tests/a.py"])
def test_count_no_function_of_a_test_that_watches_another(
    project: Path, path: str
) -> None:
    """What is derived in code that is no test is a Function of its own."""
    (project / path).parent.mkdir(exist_ok=True)
    (project / path).write_text(RECORDER)
    data = json.loads(scaffold(project, "stats", "--format", "json").out)
    assert [item["name"] for item in data["functions"]] == ["Scale"]
    (project / path).write_text(RECORDER + SHORT.replace("Scale", "Own"))
    data = json.loads(scaffold(project, "stats", "--format", "json").out)
    assert {item["name"] for item in data["functions"]} == {"Scale", "Own"}
    (project / "more.py").write_text(RECORDER.replace("import pytest\n", ""))
    data = json.loads(scaffold(project, "stats", "--format", "json").out)
    assert "Watched" in [item["name"] for item in data["functions"]]


def test_of_an_op_count_one_function(tmp_path: Path) -> None:
    made = ("new-op", "scale", "--inputs", "x", "--forward", "x * 2", "--no-verify")
    assert scaffold(tmp_path, *made).code == 0
    assert "Recorder" in (tmp_path / "test_scale.py").read_text()
    assert scaffold(tmp_path, "stats").out.startswith("     1  Functions in 2 files\n")


def test_for_programs(project: Path) -> None:
    data = json.loads(scaffold(project, "stats", "--format", "json").out)
    assert data["totals"]["functions"] == 1 and data["totals"]["tested"] == 0
    (function,) = data["functions"]
    assert function == {
        "path": "ops.py",
        "line": 4,
        "name": "Scale",
        "traits": ["combined"],
    }


def test_name_what_they_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("import torch.autograd\nprint 'x'\n")
    outcome = scaffold(tmp_path, "stats")
    assert outcome.code == 0 and "cannot be parsed" in outcome.err
