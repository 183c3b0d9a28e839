"""Recordings: what the tests of a project call its Functions with, however they end."""

import sys
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.recordings import Tensor, record

OPS = """
from torch.autograd import Function

class Double(Function):
    @staticmethod
    def forward(ctx, x, mask, labels, note, other=None):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad, None, None, None, None

double = Double.apply
"""
CALLS = """
import torch
from ops import double

def test_calls():
    x = torch.rand(3, 1, dtype=torch.bfloat16, requires_grad=True).expand(3, 2)
    for _ in range(2):  # the same call
        double(x, torch.rand(3) > 2, torch.tensor([7, 9]), "mean", None)
    double(x, torch.rand(3) > 2, torch.tensor([7, 9]), object())  # nobody can write it

def test_torch_func():
    torch.func.grad(lambda x: double(x, None, None, 1.5).sum())(torch.rand(2))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "test_ops.py").write_text(CALLS)
    return tmp_path


def test_what_a_function_is_called_with(project: Path) -> None:
    found = record(sys.executable, project, "test_ops.py", 60)
    assert not found.trouble
    ((file, name),) = found.calls
    assert (file, name) == (str(project / "ops.py"), "Double")
    (call,) = found.calls[file, name]
    x, mask, labels, *values = call
    assert x == Tensor((3, 2), (1, 0), "bfloat16", True)
    assert isinstance(x, Tensor) and (x.size, x.dense_stride) == (6, (2, 1))
    assert mask == Tensor((3,), (1,), "bool", False)
    assert labels == Tensor((2,), (1,), "int64", False, (7, 9))
    assert values == ["'mean'", "None"]


def test_values_are_told_as_code(project: Path) -> None:
    called = """
import torch
from ops import double

def test_calls():
    x = torch.rand(2)
    double(x, None, None, (float("-inf"), x.shape), [1, "a"])
    double(x, None, None, {1: 2})  # as of any object
"""
    (project / "test_ops.py").write_text(called)
    (project / "pytest.ini").write_text("[pytest]\naddopts = -n 2\n")  # one reports
    ((call,),) = record(sys.executable, project, "test_ops.py", 60).calls.values()
    values = [eval(item) for item in call if isinstance(item, str)]
    assert values == [None, None, (float("-inf"), (2,)), [1, "a"]]


@pytest.mark.each_commit
def test_what_was_called_before_the_end_counts(project: Path) -> None:
    for name, ends, words in (
        ("dies", "os._exit(5)", "ended the process"),
        ("hangs", "time.sleep(60)", "still running after 6 seconds"),
    ):
        text = f"{CALLS}\ndef test_{name}():\n    import os, time\n    {ends}\n"
        (project / f"test_{name}.py").write_text(text)
        found = record(sys.executable, project, f"test_{name}.py", 6)
        assert words in found.trouble
        assert len(found.calls) == 1


def test_an_interpreter_without_pytest_is_refused(project: Path) -> None:
    python = project / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(ScaffoldError, match="cannot import pytest: ModuleNotFound"):
        record(str(python), project, "test_ops.py", 60)
