"""What a value of each kind is; what is none is told at its place."""

from typing import Any

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.spec import kinds
from scaffold.spec.kinds import Kind, check_value
from scaffold.spec.problems import KeyPath, Problems

COLOUR = kinds.choice("a colour", ("red", "green"))
COLOURS = kinds.choices("a list of colours", ("red", "green"))
RIGHT: list[tuple[Kind, Any]] = [
    *((kinds.TEXT, "x"), (kinds.TEXT, "a\nb\tc"), (kinds.SWITCH, False)),
    *((kinds.EITHER, True), (kinds.EITHER, "x"), (kinds.NUMBER, 3)),
    *((kinds.TEXTS, []), (kinds.TEXTS, ["a"]), (kinds.TEXT_OR_TEXTS, ["a"])),
    *((kinds.TABLE, {"a": "b"}), (kinds.NUMBERS, {"a": 1, "b": 0.5})),
    *((kinds.TABLES, [{}]), (COLOUR, "red"), (COLOURS, ["green", "red"])),
]
WRONG: list[tuple[Kind, Any, str]] = [
    (kinds.TEXT, 1, "'key' must be a string"),
    (kinds.SWITCH, 0, "'key' must be true or false"),
    (kinds.NUMBER, True, "'key' must be a number"),
    (kinds.TEXTS, ["a", 1], "'key' must be a list of strings"),
    (kinds.TABLE, {"a": 1}, "'key' must be a table of strings"),
    (kinds.NUMBERS, {"a": "1"}, "'key' must be a table of numbers"),
    (COLOUR, ["red"], "'key' must be a colour"),
]


def check(kind: Kind, value: Any) -> tuple[bool, list[ScaffoldError]]:
    """Whether it passes, and what is said of it."""

    def locate(path: KeyPath, *, key: bool = False) -> Location:
        return Location(".".join(path))

    problems = Problems(locate)
    sound = check_value(("key",), value, kind, problems)
    return sound, list(problems.found)


@pytest.mark.parametrize(("kind", "value"), RIGHT, ids=[kind.what for kind, _ in RIGHT])
def test_a_value_of_its_kind(kind: Kind, value: Any) -> None:
    sound, problems = check(kind, value)
    assert sound and not problems


@pytest.mark.parametrize(
    ("kind", "value", "words"), WRONG, ids=[words for _, _, words in WRONG]
)
def test_a_value_of_another_kind(kind: Kind, value: Any, words: str) -> None:
    sound, problems = check(kind, value)
    assert not sound
    assert [problem.message for problem in problems] == [words]


@pytest.mark.parametrize(
    ("kind", "value"), [(COLOUR, "rod"), (COLOURS, ["rod"])], ids=["one", "list"]
)
def test_a_word_that_is_none_is_answered_with_the_one_that_is_like_it(
    kind: Kind, value: Any
) -> None:
    sound, problems = check(kind, value)
    assert not sound
    (problem,) = problems
    assert "rod" in problem.message and "red" in (problem.hint or "")


def test_a_character_that_an_editor_would_lose() -> None:
    sound, problems = check(kinds.TEXT, "a\x00b")
    assert not sound and len(problems) == 1
