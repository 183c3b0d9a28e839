"""What `scaffold verify` puts on record: of whose files, and for which specification, a pass is a proof."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from scaffold.cli import verify as command
from scaffold.verify.suites import Report, Suite
from tests.cli.projects import SCALE, contents, edit, project
from tests.cli.running import scaffold

SKELETON = "[ops.later]\ninputs = 'x[..., D]'\n"
PASSED = Report((("passed", 1),), torch="0.0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project(tmp_path, SCALE)
    assert scaffold(tmp_path, "sync", "--no-verify").code == 0
    return tmp_path


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Tests that pass without being run; which ones they are."""
    ran: list[Path] = []

    def run(found: list[Suite], *_: object):  # type: ignore[no-untyped-def]
        for suite in found:
            ran.append(suite.file)
            yield PASSED

    monkeypatch.setattr(command, "run_suites", run)
    return ran


def check(root: Path) -> str:
    return scaffold(root, "check").out


@pytest.mark.each_commit
def test_what_somebody_wrote_is_proven_by_its_tests(tmp_path: Path) -> None:
    """An edit, and a skeleton that was filled in: the tests ran on what stands there."""
    root = project(tmp_path, SCALE, SKELETON)
    assert scaffold(root, "sync", "--no-verify").code == 0
    edit(root / "ops/scale.py", "return x * factor", "return factor * x")
    outcome = scaffold(root, "verify", "scale")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads((root / ".scaffold/scale.json").read_text())["proof"]
    assert (found["by"], found["torch"]) == ("tests", version("torch"))
    assert "unproven  ops/scale.py" not in check(root)
    before = contents(root)
    edit(root / "ops/scale.py", "return factor * x", "return factor * x * 1")
    assert "unproven  ops/scale.py" in check(root)
    edit(root / "ops/scale.py", "return factor * x * 1", "return factor * x")
    assert contents(root) == before
    path = root / "ops/later.py"
    edit(path, 'raise NotImplementedError("later: write forward")', "return 2 * x")
    edit(
        path,
        'raise NotImplementedError("later: write grad_x")',
        "grad_x = 2 * grad_output",
    )
    assert scaffold(root, "verify", "later").code == 0
    assert "unpro" not in check(root)


def test_a_pass_is_recorded_once(root: Path, passing: list[Path]) -> None:
    assert scaffold(root, "verify").code == 0
    assert check(root) == "3 ok\n"
    before = (root / ".scaffold/scale.json").stat().st_mtime_ns
    assert scaffold(root, "verify").code == 0
    assert (root / ".scaffold/scale.json").stat().st_mtime_ns == before
    assert len(passing) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("tests/test_scale.py", "import torch", "import torch as torch"), "changed"),
        (
            ("tests/op_testing.py", "def test_gradcheck", "def _gradcheck"),
            "tests share was changed",
        ),
        (("ops.toml", "x * factor", "factor * x"), "out of date"),
    ],
)
def test_a_pass_that_proves_nothing_is_told(
    root: Path, passing: list[Path], change: tuple[str, str, str], why: str
) -> None:
    edit(root / change[0], *change[1:])
    before = contents(root)
    outcome = scaffold(root, "verify")
    assert outcome.code == 0
    assert outcome.err.startswith("note: scale passed, unproven: ")
    assert why in outcome.err
    told = json.loads(scaffold(root, "verify", "--format", "json").out)
    assert why in told["tests"][0]["unproven"]
    assert contents(root) == before


def test_tests_beside_the_generated_ones_are_welcome(
    root: Path, passing: list[Path]
) -> None:
    path = root / "tests/test_scale.py"
    path.write_text(f"{path.read_text()}\n\ndef test_ours() -> None:\n    pass\n")
    outcome = scaffold(root, "verify")
    assert (outcome.code, outcome.err) == (0, "")
    assert "unproven" not in check(root)


def test_a_file_that_changes_meanwhile_was_not_proven(
    root: Path, passing: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object):  # type: ignore[no-untyped-def]
        edit(root / "ops/scale.py", "return x * factor", "return x * factor * 2")
        yield PASSED

    monkeypatch.setattr(command, "run_suites", run)
    outcome = scaffold(root, "verify")
    assert (
        outcome.err == "note: scale passed, unproven: it changed while its tests ran\n"
    )
    assert "unproven" in check(root)


def test_what_fails_is_not_recorded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object):  # type: ignore[no-untyped-def]
        yield Report((("failed", 1), ("passed", 3)), torch="0.0")

    monkeypatch.setattr(command, "run_suites", run)
    before = contents(root)
    assert scaffold(root, "verify").code == 1
    assert contents(root) == before
