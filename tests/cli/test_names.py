"""Names by the patterns of a project: files where they say, classes that the tests find."""

from pathlib import Path

import pytest

from tests.cli.running import listing, new_op
from tests.executed.suites import Suites

TABLE = """[tool.scaffold]
source = "src/team/ops"
tests = "tests"
package = "team.ops"

[tool.scaffold.names]
file = "{op}_op.py"
test = "{op}/{op}_test.py"
function = "_{Op}"
module = "{Op}Layer"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(TABLE)
    return tmp_path


def test_files_and_classes_are_called_as_the_project_says(
    project: Path, suites: Suites
) -> None:
    outcome = new_op(
        project,
        *("--inputs", "x[..., D], weight[D]", "--forward", "x * weight"),
        "--no-verify",
        name="RMSNorm",
    )
    assert outcome.code == 0, outcome.err
    written = {path for path in listing(project) if path.endswith(".py")}
    assert written == {
        "src/team/ops/rms_norm_op.py",
        "tests/op_testing.py",
        "tests/rms_norm/rms_norm_test.py",
    }
    code = (project / "src/team/ops/rms_norm_op.py").read_text()
    assert "class _RMSNorm(Function):" in code
    assert "class RMSNormLayer(nn.Module):" in code
    tests = (project / "tests/rms_norm/rms_norm_test.py").read_text()
    assert "from team.ops.rms_norm_op import" in tests
    assert set(suites.run(project, "-k", "forward").counts) == {"passed"}


def test_class_name_is_what_the_patterns_are_about(project: Path) -> None:
    arguments = ("--inputs", "x[..., D], weight[D]", "--class-name", "Odd", "--stdout")
    code = new_op(project, *arguments, "--no-test").out
    assert "class _Odd(Function):" in code
    assert "class OddLayer(nn.Module):" in code


@pytest.mark.parametrize("name", ["copy", "select"])
def test_the_file_and_not_the_op_hides_a_module(tmp_path: Path, name: str) -> None:
    table = "[tool.scaffold.names]\nfile = '{op}_op.py'\n"
    assert new_op(tmp_path, "--inputs", "x", "--dry-run", name=name).code == 2
    (tmp_path / "pyproject.toml").write_text(table)
    assert new_op(tmp_path, "--inputs", "x", "--dry-run", name=name).code == 0


def test_a_file_may_hide_a_module_because_of_its_pattern(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.scaffold.names]\nfile = '{op}lib.py'\n"
    )
    outcome = new_op(tmp_path, "--inputs", "x", "--dry-run", name="path")
    assert "pathlib.py would hide the standard library's module" in outcome.err
