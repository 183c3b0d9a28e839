"""What a run of tests comes to, from what its process tells."""

from typing import Any

import pytest

from scaffold.verify.reports import Failed, Report, Telling


def told(*answers: dict[str, Any], said: str = "") -> Report:
    telling = Telling()
    for answer in answers:
        telling.hear(answer)
    assert telling.ended
    return telling.report(said)


def outcome_of(test: str, outcome: str, words: str = "") -> dict[str, Any]:
    return {"test": test, "outcome": outcome, "words": words}


END: tuple[dict[str, Any], ...] = ({"finished": 0}, {"ended": 0})


def test_a_run_to_the_end_with_a_test_that_passed() -> None:
    report = told(outcome_of("a", "passed"), outcome_of("b", "skipped"), *END)
    assert (report.status, report.words) == ("passed", "1 passed, 1 skipped")


def test_a_failure_stays_one_when_the_test_is_torn_down() -> None:
    report = told(
        outcome_of("a", "failed", "no"), outcome_of("a", "failed", "torn"), *END
    )
    assert (report.status, report.words) == ("failed", "1 failed")
    assert report.failures == (Failed("a", "no"),)


def test_parts_that_are_left_to_write() -> None:
    answers = [outcome_of(test, "xfailed", "foo: write grad_x") for test in "ab"]
    report = told(*answers, outcome_of("c", "passed"), *END)
    assert report.status == "not implemented"
    assert report.words == "not implemented: write grad_x"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([*END], "no tests"),
        ([outcome_of("a", "skipped"), *END], "no test passed (1 skipped)"),
        (
            [{"broken": "No module named 'a'"}, {"finished": 2}, {"ended": 2}],
            "cannot be imported: No module named 'a'",
        ),
        ([{"finished": 2}, {"ended": 2}], "was interrupted"),
        (
            [outcome_of("a", "passed"), {"began": "b"}, {"ended": -11}],
            "killed by SIGSEGV, in b (1 passed)",
        ),
        ([{"ended": 7}], "ended with exit code 7 before its tests did"),
    ],
)
def test_a_run_that_did_not_come_to_its_end(
    answers: list[dict[str, Any]], words: str
) -> None:
    report = told(*answers)
    assert report.words == words
    assert report.status == ("no tests" if words.startswith("no test") else "failed")


def test_the_last_lines_of_what_was_said_and_no_dots() -> None:
    report = told({"ended": 1}, said="...F\n" + "".join(f"{n}\n" for n in range(9)))
    assert report.said == ("3", "4", "5", "6", "7", "8")


def test_a_run_that_takes_too_long() -> None:
    telling = Telling()
    telling.hear({"began": "slow"})
    telling.late(600)
    assert telling.report("").words == "still running after 600 seconds, in slow"
