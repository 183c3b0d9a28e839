"""A generated test walks over several blocks: a block of rows that a kernel leaves out fails it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.running import ROOT

pytestmark = pytest.mark.triton
EXAMPLE = "fused_rms_norm"
STEP = "tl.num_programs(0) * ROWS"


@pytest.mark.parametrize(("step", "code"), [(STEP, 0), (f"2 * {STEP}", 1)])
def test_every_block_of_rows_counts(tmp_path: Path, step: str, code: int) -> None:
    pytest.importorskip("triton")
    place = shutil.copytree(ROOT / "generated_examples" / EXAMPLE, tmp_path / EXAMPLE)
    kernels = place / f"{EXAMPLE}_triton.py"
    text = kernels.read_text()
    assert STEP in text
    kernels.write_text(text.replace(STEP, step))
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*pytest_, "-k", "gradcheck", f"test_{EXAMPLE}.py"],
        cwd=place,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == code, run.stdout
