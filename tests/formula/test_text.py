"""Text with its place, and what a place in it is to the user."""

import ast

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.formula.text import (
    DEEPEST,
    Refusal,
    Text,
    dedented,
    parse_source,
    place_in,
    with_plain_newlines,
)


def test_a_text_maps_its_positions() -> None:
    text = Text("a\nb", Location("ops.toml", 3, 8), indent=4)
    assert text.place(0, 2) == Location("ops.toml", 3, 10)
    assert text.place(1, 2) == Location("ops.toml", 4, 7)


def test_the_place_of_a_node_counts_characters() -> None:
    text = Text("é = x", Location("ops.py", 7, 5))
    (item,) = parse_source(text).body
    assert isinstance(item, ast.Assign)
    assert place_in(text, item.value) == Location("ops.py", 7, 9)


def test_common_indentation_is_cut_and_counted() -> None:
    text = dedented(Text("\n    a = x\n      b\n", Location("ops.toml", 3, 1)))
    assert text.value == "a = x\n  b\n" and text.indent == 4
    assert text.place(1, 2) == Location("ops.toml", 5, 7)


def test_newlines_are_those_of_python() -> None:
    assert with_plain_newlines(Text("a\r\nb\rc", Location("f"))).value == "a\nb\nc"


def test_what_is_nested_too_deeply_is_said_with_a_hint() -> None:
    with pytest.raises(ScaffoldError) as caught:
        parse_source(Text("-" * DEEPEST + "x", Location("f")))
    assert caught.value.hint


def test_a_refusal_gets_its_place_from_its_text() -> None:
    text = Text("a + b", Location("ops.py", 2, 3))
    refusal = Refusal(parse_source(text).body[0], "no", "write it otherwise")
    assert refusal.within(text).location == Location("ops.py", 2, 3)


@pytest.mark.parametrize("number", ["9" * 5000, "1_" * 4300 + "0"])
def test_a_number_that_is_too_long_for_python_has_a_place(number: str) -> None:
    text = Text(f"y = x\ny * {number}", Location("--forward"))
    with pytest.raises(ScaffoldError) as raised:
        parse_source(text)
    (found,) = raised.value.problems
    assert str(found).startswith("--forward:2:5: the number is larger than any float")
