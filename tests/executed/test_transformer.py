"""A transformer of generated ops learns as the one of PyTorch's own does, however it is run.

In: the settings of `transformer.py`, each in a process of its own, two for DDP and FSDP2. Out: the losses of 50 steps agree.
It takes two minutes, most of them the compiler's, so it is exhaustive; `.ci/run` plays the whole of it.

    pytest -m exhaustive tests/executed/test_transformer.py
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.executed.generation import new_op
from tests.executed.transformer import OPS, SETTINGS, STEPS

LIMIT = 300  # seconds; the compiler takes 60 on a quiet machine
EXACT = 1e-5
gloo = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="two processes meet over gloo, which this PyTorch does not have",
)
compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")),
    reason="inductor compiles C++, and there is no compiler",
)
pytestmark = pytest.mark.exhaustive


def made(directory: Path, *options: str) -> Path:
    """The directory with the ops in it."""
    for name, (inputs, forward) in OPS.items():
        maths = ("--inputs", inputs, "--forward", forward)
        new_op(directory, name, *maths, "--no-test", *options)
    return directory


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("ops"))


def trained(name: str, ops: Path, store: Path) -> dict[str, Any]:
    count = SETTINGS[name].processes
    command = [sys.executable, "-m", "tests.executed.transformer", name, str(ops)]
    runs = [
        subprocess.Popen(
            [*command, *((str(rank), str(count), str(store)) if count > 1 else ())],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        printed = [run.communicate(timeout=LIMIT) for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert [run.returncode for run in runs] == [0] * count, printed
    found: dict[str, Any] = json.loads(printed[0][0])
    return found


def distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert len(one["losses"]) == len(other["losses"]) == STEPS
    pairs = zip(one["losses"], other["losses"], strict=True)
    return max(float(abs(x - y)) for x, y in pairs)


@pytest.fixture(scope="module")
def plain(ops: Path) -> dict[str, Any]:
    return trained("float32", ops, ops)


def test_it_learns(plain: dict[str, Any]) -> None:
    first, *_, last = plain["generated"]["losses"]
    assert first > 4 and last < 0.2


def settings() -> Iterator[Any]:
    """The settings, each with what it needs of the machine."""
    for name, setting in SETTINGS.items():
        marks = [gloo] if setting.processes > 1 else []
        marks += [compiler] if setting.backend == "inductor" else []
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [*settings()])
def test_losses_agree(
    name: str, ops: Path, plain: dict[str, Any], tmp_path: Path
) -> None:
    found = plain if name == "float32" else trained(name, ops, tmp_path / "store")
    allowed = EXACT
    if SETTINGS[name].autocast:
        allowed = 2 * distance(found["native"], plain["native"])
    assert distance(found["generated"], found["native"]) <= allowed


# Of the bytes of PyTorch's own layers: inputs and outputs alone, and what is dear as well.
SAVED = {"recompute": 0.6, "balanced": 0.9}


@pytest.mark.parametrize("policy", SAVED)
def test_less_is_saved(policy: str, tmp_path: Path) -> None:
    found = trained("float32", made(tmp_path, "--save-policy", policy), tmp_path)
    assert found["generated"]["saved"] < SAVED[policy] * found["native"]["saved"]
