"""The dialogue on a terminal: a real one, in a process of its own."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.cli.running import COMMAND, Outcome, environment, listing
from tests.sweeps import in_every_run

QUESTION = "overwrite {}? [n]o/[y]es/[d]iff/[m]erge/[a]ll/[q]uit (no): "
PAIR = ("new-op", "foo", "--inputs", "x", "--no-module")
END = "\x04"  # what a terminal takes for the end of the input
PATIENCE = 60  # seconds for an answer or an end, on a busy machine


class Terminal:
    """A command whose standard streams are a terminal; `stdout` is a pipe, to tell results from talk."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.near, far = pty.openpty()
        modes = termios.tcgetattr(far)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(far, termios.TCSANOW, modes)
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=directory,
            env=environment(),
            stdin=far,
            stdout=subprocess.PIPE,
            stderr=far,
            text=True,
            start_new_session=True,
        )
        os.close(far)
        self.said = ""

    def expect(self, text: str) -> None:
        """Read until the terminal shows a text that it has not shown before."""
        seen, deadline = len(self.said), time.monotonic() + PATIENCE
        while text not in self.said[seen:]:
            assert time.monotonic() < deadline, f"no {text!r} in {self.said!r}"
            ready, _, _ = select.select([self.near], [], [], 0.5)
            if ready:
                self.said += self._read()

    def _read(self) -> str:
        try:
            return os.read(self.near, 65536).decode().replace("\r\n", "\n")
        except OSError:  # the other end is closed
            return ""

    def type(self, text: str) -> None:
        os.write(self.near, text.encode())

    def interrupt(self) -> None:
        """Interrupt the command once it waits for an answer.

        A signal between the question and the read that follows it would be seen after that read
        alone, so each later one is for a command that the one before reached too early.
        """
        for _ in range(3):
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE / 3)
                return

    def finish(self) -> Outcome:
        out, _ = self.process.communicate(timeout=PATIENCE)
        while select.select([self.near], [], [], 0)[0]:
            more = self._read()
            if not more:
                break
            self.said += more
        os.close(self.near)
        return Outcome(self.process.returncode, out, self.said)


@pytest.fixture
def occupied(tmp_path: Path) -> Path:
    for name in ("foo.py", "test_foo.py"):
        (tmp_path / name).write_text("mine\n")
    return tmp_path


def converse(directory: Path, *answers: str) -> Outcome:
    """Answer the questions about `foo.py` and `test_foo.py`, one answer each; none ends early."""
    terminal = Terminal(directory, *PAIR)
    for name, answer in zip(("foo.py", "test_foo.py"), answers, strict=False):
        terminal.expect(QUESTION.format(name))
        terminal.type(answer)
    return terminal.finish()


ASKED = {
    "enter": (("\n", "n\n"), ("skip", "skip")),
    "first": (("y\n", "No\n"), ("update", "skip")),
    "second": (("n\n", "yes\n"), ("skip", "update")),
    "all": (("a\n",), ("update", "update")),
    "no-then-all": (("n\n", "a\n"), ("skip", "update")),
}


# Which answer means what is asked in tests/workspace/test_conflicts.py, without a terminal.
@pytest.mark.parametrize("case", in_every_run(ASKED, ["second"]))
def test_each_file_is_asked_about(occupied: Path, case: str) -> None:
    answers, verbs = ASKED[case]
    outcome = converse(occupied, *answers)
    assert outcome.code == 0
    assert [line.split() for line in outcome.out.splitlines()] == [
        [verbs[0], "foo.py"],
        [verbs[1], "test_foo.py"],
    ]
    for verb, data in zip(verbs, listing(occupied).values(), strict=True):
        assert (data == b"mine\n") == (verb == "skip")


@pytest.mark.parametrize(
    "answers",
    in_every_run([("q\n",), ("y\n", "q\n"), (END,), ("y\n", END)], [("y\n", END)]),
    ids=repr,
)
def test_to_quit_is_to_write_nothing(occupied: Path, answers: tuple[str, ...]) -> None:
    outcome = converse(occupied, *answers)
    assert (outcome.code, outcome.out) == (1, "")
    assert "exist and differ; nothing was written\n" in outcome.err
    assert set(listing(occupied).values()) == {b"mine\n"}


def test_the_difference_is_shown_and_the_question_repeated(occupied: Path) -> None:
    terminal = Terminal(occupied, *PAIR)
    question = QUESTION.format("foo.py")
    terminal.expect(question)
    terminal.type("d\n")
    terminal.expect(question)
    assert "--- a/foo.py\n+++ b/foo.py\n" in terminal.said
    assert "\n-mine\n" in terminal.said
    terminal.type("perhaps\n")
    terminal.expect(question)
    assert "'perhaps' is not an answer: n, y, d, m, a or q\n" in terminal.said
    terminal.type("q\n")
    assert terminal.finish().code == 1


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_at_the_question_writes_nothing(occupied: Path) -> None:
    terminal = Terminal(occupied, *PAIR)
    terminal.expect(QUESTION.format("foo.py"))
    terminal.type("y\n")
    terminal.expect(QUESTION.format("test_foo.py"))
    terminal.interrupt()
    outcome = terminal.finish()
    assert (outcome.code, outcome.out) == (130, "")
    assert "Traceback" not in outcome.err
    assert set(listing(occupied).values()) == {b"mine\n"}


def test_nothing_is_asked_where_nothing_is_in_the_way(tmp_path: Path) -> None:
    outcome = Terminal(tmp_path, *PAIR).finish()
    assert outcome.code == 0
    assert "overwrite" not in outcome.err
    assert list(listing(tmp_path)) == ["foo.py", "test_foo.py"]


def test_a_policy_is_an_answer(occupied: Path) -> None:
    outcome = Terminal(occupied, *PAIR, "--on-conflict", "abort").finish()
    assert (outcome.code, outcome.out) == (1, "")
    assert "overwrite foo.py?" not in outcome.err
