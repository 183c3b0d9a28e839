"""`new-op` and `derive` of an op that the project's manifest holds: nothing of it need be said again."""

import json
from pathlib import Path

import pytest

from tests.cli.projects import SCALE, SHIFT, contents, project
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")

NORM = """[ops.RMSNorm]
inputs = 'x[..., D]'
forward = '@./maths.py:forward'
derive = false
"""


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    return project(tmp_path, SCALE, SHIFT)


def test_new_op_writes_what_sync_would(listed: Path) -> None:
    manifest = (listed / "ops.toml").read_bytes()
    done = scaffold(listed, "new-op", "scale")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "create  ops/scale.py\ncreate  tests/test_scale.py\ncreate  tests/op_testing.py\n"
    )
    assert (listed / "ops.toml").read_bytes() == manifest
    assert scaffold(listed, "check", "scale").out == "2 ok\n"
    written = contents(listed)
    assert scaffold(listed, "sync").code == 0
    assert contents(listed).items() >= written.items()


def test_derive_prints_what_it_would_of_the_file(listed: Path) -> None:
    named = scaffold(listed, "derive", "scale", "--spec", "ops.toml")
    assert named.code == 0
    assert scaffold(listed, "derive", "scale") == named
    assert scaffold(listed, "derive", "Scale", "--explain").code == 0


def test_files_that_the_op_names_count_from_its_manifest(tmp_path: Path) -> None:
    configuration = '[tool.scaffold]\nmanifest = "specs/ops.toml"\n'
    project(tmp_path, configuration=configuration)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/ops.toml").write_text(NORM)
    (tmp_path / "specs/maths.py").write_text("def forward(x):\n    return x * 2\n")
    done = scaffold(tmp_path / "specs", "new-op", "rms_norm")
    assert (done.code, done.err) == (0, "note: left for you to write: grad_x\n")
    assert "class RMSNormFunction" in (tmp_path / "rms_norm.py").read_text()
    assert (tmp_path / "specs/ops.toml").read_text() == NORM
    assert scaffold(tmp_path, "check").code == 0


def test_what_options_say_is_all_that_is_said(listed: Path) -> None:
    """As of an op that is new; that it contradicts the manifest is a conflict."""
    done = scaffold(listed, "new-op", "scale", "--inputs", "x")
    assert done.code == 1
    assert "is here already, and differs" in done.err
    bare = scaffold(listed, "new-op", "scale", "--doc", "Scale.")
    assert bare.err.startswith("--inputs: the op has no inputs\n")


def test_only_the_manifest_of_a_project_is_looked_into(listed: Path) -> None:
    (listed / "pyproject.toml").unlink()
    done = scaffold(listed, "derive", "scale")
    assert done.err.startswith("NAME: op 'scale' is not defined\n")


def test_an_op_in_no_manifest_is_not_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "swish.py").touch()
    done = scaffold(tmp_path, "show", "swish")
    assert done.err.startswith("NAME: op 'swish' is not defined; 'swish.py' has")
    assert done.err.endswith(
        "of a Function written by hand: scaffold adopt swish.py::CLASS\n"
    )


@pytest.mark.parametrize("command", ["new-op", "derive"])
def test_what_is_wrong_with_it_is_told_at_its_place(
    tmp_path: Path, command: str
) -> None:
    project(tmp_path, SCALE.replace("x * factor", "x * facto"))
    done = scaffold(tmp_path, command, "scale", "--format", "json")
    (problem,) = json.loads(done.out)["problems"]
    assert (problem["source"], problem["line"]) == ("ops.toml", 3)
    (tmp_path / "ops.toml").write_text("[ops.scale\n")
    done = scaffold(tmp_path, command, "scale", "--format", "json")
    (problem,) = json.loads(done.out)["problems"]
    assert (problem["source"], problem["line"]) == ("ops.toml", 1)
