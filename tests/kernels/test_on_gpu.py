"""The script for a day with a GPU runs, here in the interpreter and on small sizes."""

import os
import subprocess
import sys

import pytest

from tests.kernels.running import ROOT

pytestmark = pytest.mark.triton


def test_a_row_is_printed_for_each_op_and_its_gradients_are_right() -> None:
    pytest.importorskip("triton")
    words = ("--device", "cpu", "--rows", "3", "--columns", "20", "--no-tests")
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.on_gpu", *words, "rms_norm", "smoothed"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert [line.split()[1] for line in run.stdout.splitlines()[2:]] == [
        "rms_norm",
        "smoothed",
    ]
