"""The file of kernels is kept as the other files of an op are: made, checked, moved, removed."""

from pathlib import Path

import pytest

from tests.cli.projects import project
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")
SWISH = "[ops.swish]\ninputs = 'x'\nforward = 'x * torch.sigmoid(x)'\n"
KERNELS = "kernels = ['triton']\n"


@pytest.fixture
def fused(tmp_path: Path) -> Path:
    """A project with an op that has kernels."""
    project(tmp_path, SWISH + KERNELS)
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code == 0, outcome.err
    assert "create  ops/swish_triton.py" in outcome.out
    return tmp_path


def test_a_second_run_writes_nothing(fused: Path) -> None:
    assert scaffold(fused, "sync").out == "1 identical (3 files)\n"


def test_an_edit_is_seen_and_kept(fused: Path) -> None:
    path = fused / "ops/swish_triton.py"
    text = path.read_text().replace("ELEMENTS = 1024", "ELEMENTS = 512")
    path.write_text(text)
    told = scaffold(fused, "check").out.splitlines()
    assert "edited    ops/swish_triton.py" in told
    assert told[0].startswith("unproven  ops/swish.py")
    scaffold(fused, "sync")
    assert path.read_text() == text


def test_a_lost_file_comes_back(fused: Path) -> None:
    path = fused / "ops/swish_triton.py"
    text = path.read_text()
    path.unlink()
    assert scaffold(fused, "check").code
    scaffold(fused, "sync")
    assert path.read_text() == text


def test_without_the_key_the_file_is_no_part_of_the_op(fused: Path) -> None:
    manifest = fused / "ops.toml"
    manifest.write_text(manifest.read_text().replace(KERNELS, ""))
    outcome = scaffold(fused, "sync")
    assert "ops/swish_triton.py" in outcome.err
    assert "triton" not in (fused / "ops/swish.py").read_text()


def test_a_rename_moves_it(fused: Path) -> None:
    assert scaffold(fused, "rename", "swish", "silu_op").code == 0
    assert not (fused / "ops/swish_triton.py").exists()
    assert "silu_op_triton" in (fused / "ops/silu_op.py").read_text()
    assert (fused / "ops/silu_op_triton.py").exists()


def test_defaults_say_it_for_every_op(tmp_path: Path) -> None:
    project(tmp_path, SWISH)
    path = tmp_path / "pyproject.toml"
    path.write_text(f"{path.read_text()}\n[tool.scaffold.defaults]\n{KERNELS}")
    assert "create  ops/swish_triton.py" in scaffold(tmp_path, "sync").out
