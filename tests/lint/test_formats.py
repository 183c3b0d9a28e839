"""Findings as text: how many, which can be fixed, and nothing where nobody looked."""

import json

import pytest

from scaffold.lint.formats import FORMATS, as_json, as_text, explain
from scaffold.lint.model import Edit, Finding, Unreadable
from scaffold.lint.registry import RULES

EDIT = Edit("remove", (1, 0, 1, 4))
ERROR = Finding("a.py", 3, 5, "AF01", "error", "is wrong", "Op", 3, (EDIT,))
ADVICE = Finding("b.py", 1, 1, "AF02", "advice", "could be", "Op", 1)
UNREAD = Unreadable("c.py", 2, 1, "invalid syntax")


def test_people_get_a_line_each_and_the_sum() -> None:
    assert as_text([ERROR, ADVICE], []).splitlines() == [
        "a.py:3:5: AF01 is wrong",
        "b.py:1:1: AF02 (advice) could be",
        "Found 1 error, 1 of advice. 1 can be fixed with --fix.",
    ]


@pytest.mark.parametrize(
    ("unread", "said"),
    [
        ([], "All checks passed."),
        ([UNREAD], "No findings, but 1 file could not be read."),
        ([UNREAD] * 2, "No findings, but 2 files could not be read."),
    ],
)
def test_no_findings_is_a_pass_only_of_what_was_read(
    unread: list[Unreadable], said: str
) -> None:
    assert as_text([], unread) == f"{said}\n"


def test_people_see_the_line_and_the_place_in_it() -> None:
    shown = ERROR._replace(shown="\tctx.y = y\n\t^^^^^^^^^")
    assert as_text([shown], []).splitlines()[:3] == [
        "a.py:3:5: AF01 is wrong",
        "    3 | \tctx.y = y",
        "      | \t^^^^^^^^^",
    ]


def test_colours_are_of_the_level() -> None:
    def paint(text: str, style: str) -> str:
        return f"<{style} {text}>"

    shown = ADVICE._replace(shown="x\n^")
    assert as_text([shown], [], paint=paint).splitlines()[:3] == [
        "<place b.py:1:1:> <note AF02> (advice) could be",
        "    1 | x",
        "      | <note ^>",
    ]


def test_programs_are_told_what_can_be_fixed() -> None:
    answer = json.loads(as_json([ERROR, ADVICE], [UNREAD]))
    assert [item["fixable"] for item in answer["findings"]] == [True, False]
    assert answer["unread"] == [UNREAD._asdict()]


def test_a_code_scanning_service_gets_each_rule_once() -> None:
    (run,) = json.loads(FORMATS["sarif"]([ERROR, ADVICE, ERROR], []))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["AF01", "AF02"]
    assert [item["level"] for item in run["results"]] == ["error", "note", "error"]


def test_github_shows_advice_as_a_notice() -> None:
    error, advice = FORMATS["github"]([ERROR, ADVICE], []).splitlines()
    assert error.startswith("::error ") and "line=3" in error
    assert advice.startswith("::notice ")


@pytest.mark.parametrize("rule", RULES)
def test_an_explanation_has_both_examples(rule: str) -> None:
    text = explain(RULES[rule])
    assert text.startswith(f"{rule}: {RULES[rule].title} (")
    assert text.index("\nBad:\n") < text.index("\nGood:\n")
    assert RULES[rule].why in text
