"""What a function may take of time and memory, in a process of its own."""

import os
import signal
import time

import pytest

from scaffold.verify import limits
from scaffold.verify.limits import LimitReached, limited
from scaffold.verify.pool import over


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    monkeypatch.setattr(limits, "GRACE", 1)


def test_the_result_is_of_a_process_of_its_own() -> None:
    assert limited(os.getpid) != os.getpid()


def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        limited(lambda: 1 // 0)


def test_work_ends_after_its_time() -> None:
    def endless() -> None:
        while True:
            pass

    with pytest.raises(TimeoutError, match=r"more than 0\.2 seconds of work"):
        limited(endless)


@pytest.mark.each_commit
def test_a_single_call_without_end_is_killed() -> None:
    with pytest.raises(LimitReached):
        limited(lambda: sum(range(10**13)))


def test_memory_ends() -> None:
    with pytest.raises(MemoryError):
        limited(lambda: len("x" * 2 * limits.BYTES))


def _spent(seconds: float) -> float:
    def work() -> float:
        begin = time.process_time()
        while time.process_time() - begin < seconds:
            pass
        return seconds

    return limited(work)


def test_each_item_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.3)
    assert list(over(_spent, [0.1] * 4, 1, limited=True)) == [0.1] * 4
    with pytest.raises(TimeoutError):
        list(over(_spent, [0.1, 5.0], 1, limited=True))


def _killed(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_was_killed_is_told() -> None:
    with pytest.raises(LimitReached):
        list(over(_killed, [1], 1, limited=True))
