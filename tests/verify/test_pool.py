"""Work over processes: the same results in the same order, and no process for little of it."""

import os

from scaffold.verify.pool import WORTHWHILE, cores, over, processes_for


def with_process(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def test_one_process_is_this_one() -> None:
    assert list(over(with_process, [1, 2], 1)) == [(2, os.getpid()), (4, os.getpid())]


def test_results_of_several_come_in_the_order_of_the_items() -> None:
    found = list(over(with_process, range(20), 2))
    assert [value for value, _ in found] == [2 * number for number in range(20)]
    assert os.getpid() not in {process for _, process in found}


def test_little_work_is_worth_one_process_and_much_no_more_than_there_are_cores() -> (
    None
):
    assert processes_for(0) == processes_for(WORTHWHILE) == 1
    assert processes_for(WORTHWHILE * 10_000) == cores()
