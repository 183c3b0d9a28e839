"""`scaffold new-op` without arguments: what is asked on a terminal, and what elsewhere is an error."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaffold.cli import dialogue
from scaffold.errors import ScaffoldError
from tests.cli.running import COMMAND, environment, scaffold

PATIENCE = 60  # seconds for an answer


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What somebody types, line by line; then they leave."""
    lines: list[str] = []

    def prompt(question: str) -> str:
        if not lines:
            raise EOFError
        return f"{lines.pop(0)}\n"

    monkeypatch.setattr(dialogue, "prompt", prompt)
    return lines


def test_off_a_terminal_a_name_is_demanded(tmp_path: Path) -> None:
    done = scaffold(tmp_path, "new-op")
    assert done.code == 2
    assert "missing argument 'NAME'" in done.err


def test_an_empty_answer_takes_what_the_forward_tells(
    answers: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    answers += ["swish", "x * torch.sigmoid(x)", "", "y"]
    found = dialogue.asked_arguments()
    assert found == ["swish", "--forward", "x * torch.sigmoid(x)"]
    said = capsys.readouterr().err
    assert "class SwishFunction(Function):" in said
    assert said.endswith(
        "The command that does the same:\n  scaffold new-op swish --forward 'x * torch.sigmoid(x)'\n\n"
    )
    assert not [*tmp_path.iterdir()]


def test_what_cannot_be_is_asked_again(
    answers: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    answers += ["no name", "f", "foo", "x @", "torch.softmax(x, dim)", "", "n"]
    answers += ["x * w", "w, x", ""]
    found = dialogue.asked_arguments()
    assert found == ["foo", "--inputs", "w, x", "--forward", "x * w"]
    said = capsys.readouterr().err
    assert "NAME: " in said
    assert "--forward:1:4: not valid Python" in said
    assert "  'dim' is not a tensor: torch.softmax takes 'dim'\n" in said


def test_a_skeleton_has_no_forward(
    answers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers += ["foo", "", "x, w", ""]
    assert dialogue.asked_arguments() == ["foo", "--inputs", "x, w"]


def test_who_leaves_leaves_nothing(
    answers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers += ["foo", "x * 2"]
    with pytest.raises(ScaffoldError, match="nothing was written"):
        dialogue.asked_arguments()


def conversation(directory: Path, answers: list[str]) -> Iterator[str]:
    """What a run says on a terminal of its own; an answer is typed wherever it waits for one."""
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [*COMMAND, "new-op"],
        cwd=directory,
        env=environment(NO_COLOR="1", COLUMNS="200"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said, end = "", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            piece = os.read(ours, 4096).decode()
        except OSError:  # the other side is closed
            break
        said += piece
        if said.rstrip("\n").endswith(("? ", ": ", "] ")) and answers:
            os.write(ours, f"{answers.pop(0)}\n".encode())
            yield said
            said = ""
    os.close(ours)
    assert run.wait(PATIENCE) == 0, said
    yield said


def test_a_terminal_is_asked_and_the_op_is_written(tmp_path: Path) -> None:
    answers = ["double", "x * 2", "", ""]
    name, forward, inputs, approval, rest = conversation(tmp_path, answers)
    assert "What is the op called" in name
    assert "Its forward" in forward
    assert inputs.endswith("Its inputs, in the order of a call [x]: ")
    assert "class DoubleFunction(Function):" in approval
    assert "scaffold new-op double --forward 'x * 2'" in rest
    assert "create  double.py" in rest
    assert (tmp_path / "test_double.py").exists()
