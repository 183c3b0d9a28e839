"""Workflow commands, as GitHub reads them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from scaffold.annotations import annotation

# How GitHub's runner reads a line: properties between commas, then the message.
COMMAND = re.compile(
    r"::(?P<level>\w+) (?P<properties>.*?)::(?P<message>.*)", re.DOTALL
)
TEXTS = st.text(st.one_of(st.sampled_from("a:,%\r\n=;é"), st.characters()), max_size=12)


def unescaped(text: str) -> str:
    for code, letter in (("3A", ":"), ("2C", ","), ("0D", "\r"), ("0A", "\n")):
        text = text.replace(f"%{code}", letter)
    return text.replace("%25", "%")


def test_a_command_is_one_line() -> None:
    written = annotation("error", "a,b:c.py", 3, 5, "100% wrong:\nmend it", "AF01")
    assert written == (
        "::error file=a%2Cb%3Ac.py,line=3,col=5,title=AF01::100%25 wrong:%0Amend it"
    )
    assert annotation("warning", "a.py", 1, 1, "x") == (
        "::warning file=a.py,line=1,col=1::x"
    )


@given(path=TEXTS.filter(bool), message=TEXTS)
def test_whatever_it_holds_is_read_back(path: str, message: str) -> None:
    written = annotation("notice", path, 1, 2, message)
    assert "\n" not in written and "\r" not in written
    found = COMMAND.fullmatch(written)
    assert found is not None
    properties = dict(item.split("=", 1) for item in found["properties"].split(","))
    assert unescaped(properties["file"]) == path
    assert unescaped(found["message"]) == message
