"""`scaffold verify FILE:CLASS` as a user sees it; what the checks find is held by tests/verify/test_functions.py."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from scaffold.cli import verify_functions
from scaffold.cli.verify import names_functions
from scaffold.verify import Failure, Verdict
from scaffold.verify.prover import Checked
from tests.cli.running import ROOT, Outcome, scaffold

TEXT = """
from torch.autograd import Function


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.view(-1)
"""
PASSED = Checked("gradient", "passed")
SKIPPED = Checked("outputs", "skipped", "no --reference")
FAILED = Checked("strided inputs", "failed", "wrong", 12, "mend it")
RIGHT = Verdict(1, checks=(PASSED, SKIPPED), call="x (2, 3)")
WRONG = Verdict(2, None, ("it is slow",), checks=(PASSED, FAILED), call="x (2, 3)")
UNCALLED = Verdict(0, Failure("inputs", "raised ValueError: no"))


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    """A directory with a Function."""
    (tmp_path / "layers.py").write_text(TEXT)
    return tmp_path


def judged(directory: Path, *arguments: str, found: Verdict = RIGHT) -> Outcome:
    """A run in which every Function has this verdict."""

    def judge(questions: Any, *_: Any) -> Iterator[Verdict]:
        return (found for _ in questions)

    with patch.object(verify_functions, "judge", judge):
        return scaffold(directory, "verify", *arguments)


def test_what_passes_is_a_line_and_the_call(layers: Path) -> None:
    outcome = judged(layers, "layers.py")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "layers.py:5  Double  1 checks pass\n  called with x (2, 3)\n"


def test_what_fails_has_its_line_and_a_hint(layers: Path) -> None:
    outcome = judged(layers, "layers.py:Double", found=WRONG)
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out.splitlines() == [
        "layers.py:5  Double  1 of 2 checks fail",
        "  strided inputs  wrong: mend it  layers.py:12",
        "  called with x (2, 3)",
        "  note: it is slow",
    ]


def test_what_cannot_be_called_is_no_pass(layers: Path) -> None:
    outcome = judged(layers, "layers.py", found=UNCALLED)
    assert outcome.code == 2
    words = "not judged: refuses all inputs that were tried: raised ValueError: no"
    assert outcome.out == f"layers.py:5  Double  {words}\n"
    assert outcome.err.startswith("hint: give its inputs: --inputs 'x[N, D]")


def test_a_backward_that_refuses_is_no_pass(layers: Path) -> None:
    refused = Checked("gradient", "skipped", "backward refuses: not yet")
    outcome = judged(layers, "layers.py", found=Verdict(0, checks=(refused,)))
    assert outcome.code == 2
    words = "not judged: backward refuses: not yet"
    assert outcome.out == f"layers.py:5  Double  {words}\n"


def test_a_directory_is_a_table(layers: Path) -> None:
    (layers / "more.py").write_text(TEXT.replace("Double", "Twice"))
    outcome = judged(layers, ".", found=WRONG)
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert lines[:2] == [
        "layers.py:5  Double  1 of 2 checks fail",
        "more.py:5    Twice   1 of 2 checks fail",
    ]
    assert lines[2:4] == ["", "layers.py:5  Double"]
    assert lines[-1] == "2 failed"


def test_programs_get_every_check(layers: Path) -> None:
    outcome = judged(layers, "layers.py", "--format", "json", found=WRONG)
    assert outcome.code == 1
    (function,) = json.loads(outcome.out)["functions"]
    assert (function["name"], function["status"]) == ("Double", "failed")
    assert function["checks"][1] == FAILED._asdict()


def test_github_shows_faults_beside_their_lines(layers: Path) -> None:
    outcome = judged(layers, "layers.py", "--format", "github", found=WRONG)
    assert outcome.out.splitlines() == [
        "::error file=layers.py,line=12,col=1,title=verify::Double: strided inputs: wrong: mend it",
        "::notice file=layers.py,line=5,col=1,title=verify::Double: it is slow",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("layers.py:Nope",), "layers.py:1:1: no Function 'Nope' in the file"),
        (("nope.py",), "error: cannot read 'nope.py': No such file or directory"),
        (("layers.py", "linear"), "error: 'linear' is not a file of Functions"),
        (
            ("linear", "--inputs", "x"),
            "--inputs: the option is for a hand-written Function",
        ),
        (
            ("linear", "--compile"),
            "--compile: the option is for a hand-written Function",
        ),
        (("layers.py", "--inputs", "x["), "--inputs:1:2: '[' is never closed"),
        (("layers.py", "--inputs", "x, y"), "--inputs: 2 inputs are given"),
        (
            ("layers.py", "--reference", "a.py:f"),
            "--reference: there is no file 'a.py'",
        ),
        (("layers.py", "--samples", "@a.py"), "--samples: '@a.py' does not name"),
        (("--format", "github"), "--format: unknown value 'github'"),
    ],
)
def test_what_is_not_so_is_said(
    arguments: tuple[str, ...], message: str, layers: Path
) -> None:
    outcome = scaffold(layers, "verify", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(message)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layers.py", True),
        ("layers.py:Double", True),
        (".", True),
        ("linear", False),
        ("test_layers.py", False),
        ("plain.py", False),
        ("nope.py", False),
    ],
)
def test_which_arguments_name_functions(
    name: str, expected: bool, layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (layers / "test_layers.py").write_text(TEXT)
    (layers / "plain.py").write_text("def test_a(): pass\n")
    monkeypatch.chdir(layers)
    assert names_functions(name) is expected


BASE = """

class Base(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        \"\"\"Say how steep it is.\"\"\"
        raise NotImplementedError("a subclass says it")
"""
WITHIN = """
from torch.autograd import Function


def made():
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2
"""


def test_a_base_that_leaves_backward_to_subclasses_is_passed_over(layers: Path) -> None:
    (layers / "layers.py").write_text(TEXT + BASE)
    outcome = judged(layers, "layers.py")
    assert outcome.code == 0 and "Base" not in outcome.out
    note = "skipped: Base, whose backward only raises NotImplementedError"
    assert note in outcome.err


@pytest.mark.parametrize("text", [TEXT.split("class")[0] + BASE, WITHIN])
def test_a_file_with_nothing_to_judge_is_not_judged(layers: Path, text: str) -> None:
    (layers / "layers.py").write_text(text)
    outcome = judged(layers, "layers.py")
    assert (outcome.code, outcome.out) == (2, "")
    assert "skipped: " in outcome.err


MODULES = """
import os
import time

import torch
from torch.autograd import Function


class First(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


class Hanging(First):
    @staticmethod
    def forward(ctx, x):
        time.sleep(600)
        return x * 2


class Leaving(First):
    @staticmethod
    def forward(ctx, x):
        os._exit(3)


class Last(First):
    @staticmethod
    def forward(ctx, x):
        return x * 2 + 1


class Double(torch.nn.Module):
    def forward(self, x):
        return x * 2


def calls():
    return (torch.full((4, 5), 0.5),)
"""


def test_a_function_that_hangs_or_ends_its_process_stops_no_other(
    tmp_path: Path,
) -> None:
    """A real run, with each option: the reference is a module, the samples give the shapes, the limit ends the one that hangs."""
    (tmp_path / "layers.py").write_text(MODULES)
    options = ("--reference", "layers.py:Double", "--samples", "@layers.py:calls")
    command = ("verify", "layers.py", *options, "--limit", "30", "--format", "json")
    outcome = scaffold(tmp_path, *command)
    found = json.loads(outcome.out)["functions"]
    first, hanging, leaving, last = found
    statuses = [(one["name"], one["status"]) for one in found]
    assert statuses == [
        ("First", "passed"),
        ("Hanging", "not judged"),
        ("Leaving", "not judged"),
        ("Last", "failed"),
    ]
    assert "still running after 30 seconds" in hanging["words"]
    assert "exit" in leaving["words"], leaving
    assert first["call"] == last["call"] == "x (4, 5)"
    passed = [x["name"] for x in first["checks"] if x["status"] == "passed"]
    assert "outputs" in passed
    failed = [x["name"] for x in last["checks"] if x["status"] == "failed"]
    assert failed == ["outputs"] and outcome.code == 1


def test_the_own_file_of_a_generated_op_is_judged() -> None:
    path = "generated_examples/linear/linear.py"
    outcome = scaffold(ROOT, "verify", path)
    assert outcome.code == 0, outcome.out + outcome.err
    assert outcome.out.startswith(f"{path}:10  LinearFunction  ")
    assert "  called with input (2, 3), weight (4, 3), bias (4,)" in outcome.out
