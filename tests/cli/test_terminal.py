"""What a terminal is shown otherwise than a pipe."""

import io

import pytest

from scaffold.cli import terminal


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "40")


LONG = "hint: to name the dims of both say --inputs 'x[N, D], y[N, D], weight[D]' or leave y as it is"


def test_a_message_fits_the_width_and_its_quotations_stay_whole() -> None:
    lines = terminal.message(LONG, Screen()).split("\n")
    assert lines[0].startswith("\x1b[36mhint:\x1b[0m ")
    assert lines[1:] == [
        "      --inputs",
        "      'x[N, D], y[N, D], weight[D]' or",
        "      leave y as it is",
    ]


def test_a_pipe_gets_the_message_as_it_is() -> None:
    assert terminal.message(LONG, io.StringIO()) == LONG
    assert terminal.message(LONG, None) == LONG


@pytest.mark.parametrize(
    ("variables", "on_a_terminal", "in_a_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_who_has_the_say_about_colours(
    variables: dict[str, str],
    on_a_terminal: bool,
    in_a_pipe: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal.has_colours(Screen()) == on_a_terminal
    assert terminal.has_colours(io.StringIO()) == in_a_pipe


def test_an_apostrophe_is_no_quotation() -> None:
    text = "note: the op's name is what it is, and the user's file stays as it was"
    assert terminal.wrapped(text, 40).split("\n") == [
        "note: the op's name is what it is, and",
        "      the user's file stays as it was",
    ]


def test_a_bar_grows_and_fits() -> None:
    assert terminal.bar(0, 4, "0/4") == f"[{' ' * 24}] 0/4"
    assert terminal.bar(4, 4, "4/4") == f"[{'=' * 24}] 4/4"
    assert len(terminal.bar(1, 2, "words " * 9)) < 40


def test_a_difference_is_coloured_line_by_line() -> None:
    shown = terminal.difference("--- a\n+b\n c\n", Screen())
    assert shown == "\x1b[31m--- a\x1b[0m\n\x1b[32m+b\x1b[0m\n c\n"
    assert terminal.verb("create", 7, Screen()) == "\x1b[32mcreate \x1b[0m"
    assert terminal.verb("same", 7, Screen()) == "same   "
