"""Comments that switch rules off on their line, and findings that a baseline allows."""

import pytest

from scaffold.errors import ScaffoldError
from scaffold.lint.model import UNREAD, Finding
from scaffold.lint.suppressions import (
    is_off,
    read_baseline,
    read_noqa,
    without_known,
    write_baseline,
)

TEXT = """\
a = 1
b = 2  # noqa
c = 3  # NOQA: af08, AF11
d = 4  # noqa: E501
"""


def test_a_comment_counts_on_its_line() -> None:
    off = read_noqa(TEXT)
    assert sorted(off) == [2, 3, 4]
    assert not is_off("AF08", 1, off)
    assert is_off("AF08", 2, off) and is_off("AF35", 2, off)
    assert is_off("AF08", 3, off) and is_off("AF11", 3, off)
    assert not is_off("AF09", 3, off)


def test_codes_of_other_tools_switch_nothing_of_ours_off() -> None:
    assert not is_off("AF08", 4, read_noqa(TEXT))


def test_without_the_word_nothing_is_off() -> None:
    assert read_noqa("a = 1\n") == {}


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
