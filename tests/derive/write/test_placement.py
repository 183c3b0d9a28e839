"""Choices by one test are one choice, where that changes no value."""

import pytest

from scaffold.derive.backward_program import lines_of
from scaffold.derive.write.placement import gathered, place
from scaffold.formula import emit_lines
from tests.formula.parsing import formula


def lines(source: str) -> list[str]:
    parsed = formula(
        source, names="x y p q grad_output", optional="", targets="grad_x grad_y"
    )
    return emit_lines(gathered(parsed.statements))


CHOICE = "if p:\n    a = x * 2\nelse:\n    a = y\n"
AFTER = "grad_x = a + b + c\ngrad_y = c"


@pytest.mark.parametrize(
    ("between", "second", "found"),
    [
        ("c = x - y\n", "if p:\n    b = x\nelse:\n    b = y", "c; p: a b | a b"),
        ("c = x - y\n", "if not p:\n    b = x\nelse:\n    b = y", "c; p: a b | a b"),
        ("c = x - y\n", "if q:\n    b = x\nelse:\n    b = y", "p: a | a; c; q: b | b"),
        ("c = a - y\n", "if p:\n    b = c\nelse:\n    b = y", "p: a | a; c; p: b | b"),
        ("c = a - y\n", "if p:\n    b = x\nelse:\n    b = y", "p: a | a; c; p: b | b"),
        (
            "c = a - y\n",
            "if p:\n    b = x\n    a = y\nelse:\n    b = y",
            "p: a | a; c; p: b a | b",
        ),
    ],
)
def test_choices_are_gathered(between: str, second: str, found: str) -> None:
    text = "\n".join(lines(f"{CHOICE}{between}{second}\n{AFTER}"))
    parts = [part.strip() for part in found.split(";")]
    assert text.count("if ") == sum(":" in part for part in parts)
    first = (
        next(part for part in parts if ":" in part).split(":")[1].split("|")[0].split()
    )
    body = text.partition("if ")[2].split("else:")[0].splitlines()[1:]
    assert [line.split(" = ")[0].strip() for line in body] == first


def test_a_choice_waits_for_another_that_reads_the_lines_between() -> None:
    text = lines(f"{CHOICE}c = x - y\nif p:\n    b = c\nelse:\n    b = y\n{AFTER}")
    assert text[:4] == ["c = x - y", "if p:", "    a = x * 2", "    b = c"]
    assert text.count("if p:") == 1


def test_a_test_that_is_computed_anew_is_another_one() -> None:
    source = "h = x\nif h is None:\n    h = y\nif h is None:\n    h = h * 2\ngrad_x = h"
    assert lines(source).count("if h is None:") == 2


def test_choices_inside_choices_are_gathered() -> None:
    inner = "    if q:\n        {0} = x\n    else:\n        {0} = y\n"
    source = "if p:\n" + inner.format("a") + "    c = y\n" + inner.format("b")
    source += "else:\n    a, b, c = x, y, y\n" + AFTER
    assert sum("if q" in line for line in lines(source)) == 1


def test_what_stands_under_the_opposite_goes_to_the_other_branch() -> None:
    source = f"c = x\n{CHOICE}if not p:\n    b = x\nelse:\n    b = y\n{AFTER}"
    first, second = ["    a = x * 2", "    b = y"], ["    a = y", "    b = x"]
    assert lines(source)[1:7] == ["if p:", *first, "else:", *second]


def blocks(source: str) -> str:
    parsed = formula(
        source, names="x y p q grad_output", optional="", targets="grad_x grad_y"
    )
    placed = place(lines_of(parsed.statements, ("x", "y")))
    return "; ".join(
        f"{''.join(sorted(block.serves))}: {', '.join(emit_lines(block.statements))}"
        for block in placed
    )


def test_what_serves_others_too_goes_ahead_so_that_a_branch_is_one() -> None:
    source = "a = x * 2\nc = p * q\ngrad_x = a * c\ngrad_y = c"
    wanted = "xy: c = p * q; x: a = x * 2, grad_x = a * c; y: grad_y = c"
    assert blocks(source) == wanted


def test_nothing_goes_ahead_of_what_it_reads() -> None:
    source = "b = x * 2\nx = p * q\nc = x + y\ngrad_x = b * c\ngrad_y = c"
    wanted = "x: b = x * 2; xy: x = p * q, c = x + y; x: grad_x = b * c; y: grad_y = c"
    assert blocks(source) == wanted
