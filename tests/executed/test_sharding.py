"""Ops with a rule for DTensor, over two processes: however their inputs are split, outputs and gradients are those of whole tensors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.executed.generation import new_op
from tests.executed.sharded import KERNELS, OPS

LIMIT = 120  # seconds; 13 on a busy machine
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        not torch.distributed.is_available()
        or not torch.distributed.is_gloo_available(),
        reason="two processes meet over gloo, which this PyTorch does not have",
    ),
]


def test_split_tensors_give_what_whole_ones_do(tmp_path: Path) -> None:
    (tmp_path / "norm_kernels.py").write_text(KERNELS)
    for name, (options, _) in OPS.items():
        new_op(tmp_path, name, *options, "--style", "library", "--no-test")
    command = [sys.executable, "-m", "tests.executed.sharded", str(tmp_path)]
    runs = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        (out, err), _ = [run.communicate(timeout=LIMIT) for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert runs[0].returncode == 0, err
    worst = json.loads(out)
    assert worst.keys() == {*OPS, "module"}
    assert max(worst.values()) < 1e-10
