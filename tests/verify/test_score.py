"""The mutation score: poor tests let mistakes live, and nothing that a mutant does stops the count."""

from contextlib import chdir
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.score import Outcome, planted, score
from tests.cli.running import listing
from tests.verify.written import KILLED, RELU, VALUES


def outcomes(
    directory: Path, test: str, op: str = RELU, limit: int = 60
) -> list[Outcome]:
    """The score of a test file in the directory; no file there changes."""
    (directory / "ops.py").write_text(op)
    (directory / "test_ops.py").write_text(test)
    before = listing(directory)
    with chdir(directory):
        path = Path("ops.py")
        found = list(score(Path("test_ops.py"), path, planted(path), limit))
    assert listing(directory) == before
    return found


def test_what_a_test_does_not_look_at_lives(tmp_path: Path) -> None:
    found = outcomes(tmp_path, VALUES.format(module="ops"))
    assert {item.mistake: item.killed for item in found} == KILLED
    assert {item.by for item in found if item.killed} == {"test_ops.py::test_values"}


LOADED = """\
import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location("any_name", Path(__file__).parent / "ops.py")
ops = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ops)
"""


def test_a_project_that_runs_tests_in_parallel_and_loads_by_path(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\naddopts = '-n 2'\n"
    )
    (tmp_path / "conftest.py").write_text("assert True\n")
    test = LOADED + VALUES.format(module="ops").replace(
        "from ops import Relu", "Relu = ops.Relu"
    )
    found = outcomes(tmp_path, test)
    assert {item.mistake: item.killed for item in found} == KILLED


def test_a_mutant_that_ends_or_stops_its_process_is_killed(tmp_path: Path) -> None:
    ends = (
        "    import os, signal, time\n"
        "    if x.grad[0, 0] == 4:\n        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if x.grad[0, 0] == -2:\n        time.sleep(600)\n"
    )
    text = VALUES.format(module="ops")
    cut = text.index("    assert")
    found = outcomes(tmp_path, text[:cut] + ends + text[cut:], limit=8)
    ended = {item.mistake: item.by for item in found}
    assert ended["factor_2"] == "killed by SIGSEGV"
    assert ended["sign"] == "out of time"
    assert {item.mistake: item.killed for item in found} == KILLED


def test_tests_that_fail_as_they_are_have_no_score(tmp_path: Path) -> None:
    wrong = VALUES.format(module="ops").replace("8.0", "9.0")
    with pytest.raises(ScaffoldError) as caught:
        outcomes(tmp_path, wrong)
    assert str(caught.value) == (
        "error: the tests of 'test_ops.py' do not pass as they are: "
        "test_ops.py::test_values\nhint: mend them, then plant mistakes"
    )


def test_a_file_without_tests_has_no_score(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="do not pass as they are: no tests"):
        outcomes(tmp_path, "import ops\n")


def test_a_process_without_pytest_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['pytest'] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(
        ScaffoldError, match="the process that runs the tests has ended"
    ):
        outcomes(tmp_path, VALUES.format(module="ops"))
