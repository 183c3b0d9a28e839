import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st

from scaffold.workspace.merge import Merged, has_markers, merge
from scaffold.workspace.statements import normal_form
from tests.properties.budgets import searched

ROOT = Path(__file__).parent.parent.parent
LINEAR = (ROOT / "generated_examples/linear/linear.py").read_text()
CONFLICT = """\
<<<<<<< yours
b = 2
||||||| base
b = 1
=======
b = 3
>>>>>>> scaffold
"""


def test_edits_in_different_places_are_both_kept() -> None:
    base = "a = 1\nb = 1\nc = 1\n"
    mine = "a = 2\nb = 1\nc = 1\n"
    new = "a = 1\nb = 1\nc = 3\n"
    assert merge(base, mine, new) == Merged("a = 2\nb = 1\nc = 3\n", 0)


def test_what_both_changed_stands_between_markers() -> None:
    merged = merge("a\nb = 1\nc\n", "a\nb = 2\nc\n", "a\nb = 3\nc\n")
    assert merged == Merged(f"a\n{CONFLICT}c\n", 1)
    assert has_markers(merged.text)


def test_every_conflict_is_counted() -> None:
    base, mine, new = ("".join(f"{x} = {n}\nkeep_{x}\n" for x in "abc") for n in "123")
    merged = merge(base, mine, new)
    assert merged.conflicts == 3
    assert merged.text.count("<<<<<<< yours\n") == 3


def test_the_same_change_on_both_sides_is_none() -> None:
    base = "a = 1\nb = 1\n"
    assert merge(base, "a = 2\nb = 1\n", "a = (2)\nb = 1\n").conflicts == 0
    assert merge(base, "a = 2\n", "a = 2\n") == Merged("a = 2\n", 0)


def test_an_edit_beside_a_removal_is_a_conflict() -> None:
    assert merge("a\nb = 1\nc\n", "a\nb = 2\nc\n", "a\nc\n").conflicts == 1
    assert merge("a\nb = 1\nc\n", "a\nc\n", "a\nb = 2\nc\n").conflicts == 1


def test_a_last_line_without_an_end_leaves_markers_on_their_own_lines() -> None:
    merged = merge("a\nb = 1", "a\nb = 2", "a\nb = 3")
    assert merged == Merged(f"a\n{CONFLICT}", 1)


def test_statements_that_repeat_are_matched() -> None:
    base = "f()\n" * 250
    assert merge(base, f"a\n{base}", f"{base}b\n") == Merged(f"a\n{base}b\n", 0)


def test_arguments_on_lines_of_their_own_are_merged() -> None:
    base = "f(\n    a=1,\n    b=1,\n    c=1,\n)\n"
    mine, new = base.replace("a=1", "a=2"), base.replace("c=1", "c=3")
    assert merge(base, mine, new) == Merged(
        base.replace("a=1", "a=2").replace("c=1", "c=3"), 0
    )


def test_blank_lines_between_statements_are_the_files() -> None:
    base, mine, new = "a\nb\nc\nd\n", "a\n\n\nb\nc\nd\n", "a\nb\nc\nd = 1\n"
    assert merge(base, mine, new) == Merged("a\n\n\nb\nc\nd = 1\n", 0)


def test_a_generator_that_formats_otherwise_is_followed() -> None:
    base, mine, new = "f('a')\nb\nc\n", "f('a')\nb\nd\n", 'f("a")\nb\nc\n'
    assert merge(base, mine, new) == Merged('f("a")\nb\nd\n', 0)


@pytest.mark.parametrize(
    "text", ["{\n  'a': 1\n", "no python (\n", "x = '\n", "a\x0cb (\n", "a\u2028b (\n"]
)
def test_what_is_no_python_is_merged_by_lines(text: str) -> None:
    base = f"{text}one\ntwo\nthree\n"
    mine, new = base.replace("one", "1"), base.replace("three", "3")
    assert merge(base, mine, new) == Merged(f"{text}1\ntwo\n3\n", 0)


def test_a_merge_that_is_no_python_is_a_conflict() -> None:
    """Each side closes the brackets that it opens; together they cross."""
    lines = [f"    {letter},\n" for letter in "abcdefg"]
    base = "".join(["start\n", "x = (\n", *lines, ")\n", "end\n"])
    mine = base.replace("    a,", "    (a,").replace("    e,", "    e),")
    new = base.replace("    c,", "    [c,").replace("    g,", "    g],")
    merged = merge(base, mine, new)
    assert merged.conflicts == 1
    assert merged.text.startswith("start\nx = (\n<<<<<<< yours\n    (a,\n")
    assert merged.text.endswith("    g],\n>>>>>>> scaffold\n)\nend\n")


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize(
    "line",
    ["<<<<<<< yours", "||||||| base", ">>>>>>> scaffold", "<<<<<<< HEAD", "<<<<<<<"],
)
def test_a_marker_is_a_whole_line(line: str, end: str) -> None:
    assert has_markers(f"a\n{line}{end}")
    assert has_markers(f"a\r\n{line}\r\nb")
    assert not has_markers(f"a\n {line}{end}")
    assert not has_markers(f"a\n{line[0]}{line}{end}")


def test_a_title_in_a_docstring_is_no_marker() -> None:
    assert not has_markers('"""Title\n=======\n"""\n>>> x\n>>>>>>>> y\n')


FORMATTERS: dict[str, list[tuple[str, ...]]] = {
    "wide": [("format", "--line-length", "120")],
    "narrow": [("format", "--line-length", "60")],
    "quotes": [("format", "--config", "format.quote-style='single'")],
    "imports": [
        ("check", "--fix", "-q", "--select", "I001")
        + ("--config", "lint.isort.force-single-line=true"),
        ("format", "--line-length", "120"),
    ],
}


def formatted(text: str, style: str) -> str:
    for arguments in FORMATTERS[style]:
        command = [sys.executable, "-m", "ruff", *arguments, "--isolated", "-"]
        text = subprocess.run(
            command, input=text, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    return text


MINE = LINEAR.replace("grad_output @ weight\n", "grad_output.matmul(weight)  # mine\n")
NEW = (
    LINEAR.replace('"""Compute ``', '"""Computes ``')
    .replace("uniform_(self.weight, -0.1, 0.1)", "zeros_(self.weight)")
    .replace("import Any\n", "import Any, Final\n")
    .replace("DIFFERENTIABLE", "NAMES")
)


@pytest.mark.parametrize("style", FORMATTERS)
def test_a_formatter_neither_conflicts_nor_gets_lost(style: str) -> None:
    """A file that its team reformatted and edited takes what is new, in its own style."""
    mine = formatted(MINE, style)
    assert mine != MINE
    merged = merge(LINEAR, mine, NEW)
    both = MINE
    for old, new in (
        ('"""Compute ``', '"""Computes ``'),
        ("uniform_(self.weight, -0.1, 0.1)", "zeros_(self.weight)"),
        ("import Any\n", "import Any, Final\n"),
    ):
        both = both.replace(old, new)
    assert merged.conflicts == 0
    assert normal_form(merged.text) == normal_form(both)
    assert merged.text == formatted(merged.text, style)


STATEMENTS = st.sampled_from(
    ["x = 1\n", "f(a, b)\n", "# note\n", "\n\ny = 'a'\n", "import a\n", "def g():\n    return 1\n", ")\n"]
)  # fmt: skip
TEXTS = st.lists(STATEMENTS, max_size=8).map("".join)


@searched(75, TEXTS, TEXTS, TEXTS)
def test_what_one_side_alone_changed_is_taken(base: str, mine: str, new: str) -> None:
    assert merge(base, base, new) == Merged(new, 0)
    assert merge(base, mine, base) == Merged(mine, 0)
    assert merge(base, new, new) == Merged(new, 0)
    merged = merge(base, mine, new)
    assert has_markers(merged.text) == bool(merged.conflicts)
    assert merged.text.count("<<<<<<< yours\n") == merged.conflicts


@searched(40, st.integers(5, 40), st.data())
def test_edits_that_do_not_touch_both_survive(size: int, data: st.DataObject) -> None:
    """Changes, additions and removals on either side, a statement that stays between any two."""
    base = [f"x{number} = {number}\n" for number in range(size)]
    mine, new, both = list(base), list(base), list(base)
    edits = st.sampled_from(["x{} = 'changed'\n", "", "x{0} = {0}\nadded{0}\n"])
    number = data.draw(st.integers(0, 3))
    while number < size:
        side = data.draw(st.sampled_from([mine, new]))
        edit = data.draw(edits).format(number)
        side[number] = both[number] = edit
        number += data.draw(st.integers(2, 6))
    merged = merge("".join(base), "".join(mine), "".join(new))
    assert merged == Merged("".join(both), 0)


# A file that its generator writes in another form now.

FORMER = '''"""Tests of op."""

import pytest
import torch
from collections.abc import Callable

from op import op

CASES = {"base": {}}


def make(size: int = 3) -> object:
    """The inputs."""
    return CASES, size


@pytest.fixture(params=CASES)
def case(request: object) -> object:
    return request


def test_one(case: object) -> None:
    assert op(make(case))


def test_two() -> None:
    assert op(torch.ones(2))
'''
LATTER = '''"""Tests of op."""

from op import op
from op_testing import OpTests


class TestOp(OpTests):
    """The inputs."""

    cases = {"base": {}}
'''
OWN = """

def test_ours() -> None:
    with pytest.raises(ValueError):
        op(torch.ones(3))
"""


def test_what_was_added_to_a_file_of_another_form_comes_along() -> None:
    """With the imports that it needs, and without what the generator wrote."""
    merged = merge(FORMER, FORMER + OWN, LATTER)
    text = LATTER.replace(
        "from op import", "import pytest\nimport torch\n\nfrom op import"
    )
    assert merged == Merged(text + OWN, 0)
    assert merge(LATTER, merged.text, LATTER) == merged


def defines(text: str, name: str) -> bool:
    return re.search(rf"^(def )?{name}\b", text, re.MULTILINE) is not None


@pytest.mark.parametrize(
    ("own", "needed"),
    [
        ("def test_ours() -> None:\n    make()\n", {"CASES", "make"}),
        ("def test_ours(case: object) -> None: ...\n", {"CASES", "case"}),
    ],
)
def test_what_it_reads_comes_along_too(own: str, needed: set[str]) -> None:
    merged = merge(FORMER, f"{FORMER}\n\n{own}", LATTER)
    assert merged.conflicts == 0
    assert merged.text.endswith(own)
    names = {"CASES", "make", "case"}
    assert {name for name in names if defines(merged.text, name)} == needed
    assert "test_one" not in merged.text


def test_a_definition_that_was_edited_and_is_no_more_is_a_conflict_of_itself() -> None:
    mine = FORMER.replace("size: int = 3", "size: int = 5") + OWN
    merged = merge(FORMER, mine, LATTER)
    assert merged.conflicts == 1
    first, second = merged.text.index("<<<<<<<"), merged.text.index(">>>>>>>")
    marked = merged.text[first:second]
    assert marked.count("def make") == 2 and "test_" not in marked
    assert merged.text.endswith(OWN) and "class TestOp" in merged.text


def test_a_definition_that_was_removed_stays_removed() -> None:
    latter = f"{LATTER}\n\nprint('new')\n\n\ndef test_two() -> None:\n    assert op(torch.ones(2))\n"
    mine = FORMER[: FORMER.index("\n\ndef test_two")] + OWN
    merged = merge(FORMER, mine, latter)
    assert merged.conflicts == 0
    assert "test_two" not in merged.text and merged.text.endswith(OWN)


def test_what_stands_before_a_definition_stays_there() -> None:
    latter = f"{LATTER}\n\ndef test_two() -> None:\n    assert op(torch.ones(2))\n"
    at = FORMER.index("\n\ndef test_two")
    merged = merge(FORMER, FORMER[:at] + OWN + FORMER[at:], latter)
    assert merged.conflicts == 0
    assert merged.text.index("TestOp") < merged.text.index("test_ours")
    assert merged.text.index("test_ours") < merged.text.index("test_two")


def test_a_statement_without_a_name_that_both_changed_is_a_conflict() -> None:
    mine = FORMER.replace("Tests of op.", "Our tests of op.") + OWN
    assert merge(FORMER, mine, LATTER.replace("Tests of op.", "Of op.")).conflicts
    merged = merge(FORMER, mine, LATTER)
    assert merged.conflicts == 0
    assert merged.text.startswith('"""Our tests of op."""\n')
    assert merged.text.count('"""') == 4


def test_a_statement_without_a_name_comes_along() -> None:
    own = """

if __name__ == "__main__":
    pytest.main()
"""
    merged = merge(FORMER, FORMER + own, LATTER.replace("Tests of op.", "Of op."))
    assert merged.conflicts == 0
    assert merged.text.endswith(own) and "import pytest\n" in merged.text
