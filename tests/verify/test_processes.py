"""A process that is asked and answers: what it says, how it ends, and that nobody waits for it in vain."""

import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from scaffold.verify.pool import cores
from scaffold.verify.processes import ChildProcess, end_in_words, work_through

pytestmark = pytest.mark.usefixtures("cold_processes")

ECHO = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    exec(request.get("do", ""))
    print(json.dumps({"said": request["say"]}), flush=True)
"""


@pytest.fixture
def echo(tmp_path: Path) -> str:
    file = tmp_path / "echo.py"
    file.write_text(ECHO)
    return str(file)


def test_a_request_has_its_answer(echo: str) -> None:
    with closing(ChildProcess(sys.executable, echo)) as process:
        for word in ("a", "b"):
            process.ask({"say": word, "do": "print('talk', file=sys.stderr)"})
            assert process.answer(30) == {"said": word}
        process.ask({"say": "x" * 200_000})
        answer = process.answer(30)
        assert answer is not None and len(answer["said"]) == 200_000
        assert process.code is None


def test_what_is_said_beside_an_answer_counts_since_it_was_asked(echo: str) -> None:
    with closing(ChildProcess(sys.executable, echo)) as process:
        for word in ("first", "second"):
            do = f"sys.stderr.write({word!r}); sys.stderr.flush()"
            process.ask({"say": "", "do": do})
            assert process.answer(30) == {"said": ""}
            until = time.monotonic() + 10
            while not process.said and time.monotonic() < until:
                process.hear()
            assert process.said == word


@pytest.mark.parametrize(
    ("do", "code"), [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)]
)
def test_one_that_ends_says_how_and_keeps_nobody_waiting(
    echo: str, do: str, code: int
) -> None:
    with closing(ChildProcess(sys.executable, echo)) as process:
        began = time.monotonic()
        for _ in range(3):  # whoever asks again hears it too
            process.ask({"say": "", "do": do})
            assert process.answer(60) is None
            assert process.code == code
        assert time.monotonic() - began < 30


def test_one_that_closes_its_standard_error_does_not_spin(echo: str) -> None:
    """That stream is readable for ever; to look at it again and again would take a core."""
    with closing(ChildProcess(sys.executable, echo)) as process:
        process.ask({"say": "", "do": "os.close(2)"})
        assert process.answer(30) is not None
        process.ask({"say": "late", "do": "time.sleep(1)"})
        began = time.process_time()
        assert process.answer(30) == {"said": "late"}
        assert time.process_time() - began < 0.5


def test_one_that_takes_too_long_has_no_answer_and_no_end(echo: str) -> None:
    with closing(ChildProcess(sys.executable, echo)) as process:
        process.ask({"say": "", "do": "time.sleep(60)"})
        assert process.answer(0.5) is None
        assert process.code is None


def test_one_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ChildProcess(str(tmp_path / "none"), "any.py")


class Squares:
    """A worker that needs no process: its results come in the order of how large they are."""

    process = None
    made = 0

    def __init__(self) -> None:
        self.result: int | None = None
        self.deadline = 0.0
        self.closed = False
        type(self).made += 1

    def ask(self, request: int) -> None:
        self.result, self._request, self._rounds = None, request, request

    def hear(self) -> None:
        self._rounds -= 1
        if self._rounds <= 0:
            self.result = self._request**2

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("processes", [1, 2, 9])
def test_results_come_in_the_order_of_the_requests(processes: int) -> None:
    Squares.made = 0
    found = work_through([5, 1, 3, 2], Squares, processes)
    assert list(found) == [25, 1, 9, 4]
    assert Squares.made == min(processes, 4)


def test_workers_are_closed_when_nobody_wants_more() -> None:
    workers: list[Squares] = []

    def worker() -> Squares:
        workers.append(Squares())
        return workers[-1]

    found = work_through(iter(range(1, 100)), worker, 2)
    assert next(found) == 1
    found.close()
    assert len(workers) == 2 and all(one.closed for one in workers)


def test_an_end_in_words() -> None:
    assert end_in_words(3) == "ended with exit code 3"
    assert end_in_words(-11) == "killed by SIGSEGV"
    assert end_in_words(-1000) == "killed by signal 1000"


def test_there_is_a_core() -> None:
    assert cores() >= 1
