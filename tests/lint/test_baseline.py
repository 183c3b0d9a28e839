"""A baseline holds findings by what they say, so that lines may move; a second one of the same is new."""

import pytest

from scaffold.errors import ScaffoldError
from scaffold.lint.baseline import read_baseline, without_known, write_baseline
from scaffold.lint.model import UNREAD, Finding


def finding(
    line: int, message: str = "it is kept, line 7", rule: str = "AF01"
) -> Finding:
    return Finding("ops.py", line, 1, rule, "error", message, "F", line)


def test_a_finding_that_has_moved_is_known() -> None:
    known = read_baseline(write_baseline([finding(7)]), "base.json")
    moved = finding(9, "it is kept, line 9")
    assert without_known([moved], known) == ()
    assert without_known([moved, moved], known) == (moved,)


def test_other_words_or_another_rule_are_new() -> None:
    known = read_baseline(write_baseline([finding(7)]), "base.json")
    others = (finding(7, "it is lost"), finding(7, rule="AF02"))
    assert without_known(others, known) == others


def test_what_cannot_be_read_is_known_in_the_words_of_any_python() -> None:
    known = read_baseline(write_baseline([finding(1, "bad", UNREAD)]), "base.json")
    assert without_known([finding(5, "worse", UNREAD)], known) == ()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 0}', '{"version": 1, "findings": [1]}']
)
def test_what_is_no_baseline_is_an_error_at_its_file(text: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        read_baseline(text, "base.json")
    assert str(caught.value.location) == "base.json:1:1"
