"""Comments that switch rules off on their line."""

from scaffold.lint.noqa import is_off, read_noqa

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
