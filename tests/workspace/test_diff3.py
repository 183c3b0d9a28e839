"""What two descendants of a sequence have in common with it, and that nothing of the three is lost."""

import pytest
from hypothesis import strategies as st

from scaffold.workspace.merge import BASE, OURS, YOURS, Hunk, diff3, has_markers, merge
from tests.properties.budgets import searched

TEXTS = st.lists(st.sampled_from("abcde\n"), max_size=12)
LINES = st.lists(st.sampled_from("abcde )"), max_size=12).map(
    lambda letters: "".join(f"{letter}(\n" for letter in letters)  # no Python: by lines
)


@searched(100, TEXTS, TEXTS, TEXTS)
def test_the_hunks_cover_all_three_in_their_order(
    base: list[str], mine: list[str], new: list[str]
) -> None:
    hunks = list(diff3(base, mine, new))
    for side in ("base", "mine", "new"):
        whole = {"base": base, "mine": mine, "new": new}[side]
        parts = [whole[getattr(hunk, side)] for hunk in hunks]
        assert [item for part in parts for item in part] == whole
    for hunk in hunks:
        sides = base[hunk.base], mine[hunk.mine], new[hunk.new]
        assert any(sides)
        assert not hunk.stable or sides[0] == sides[1] == sides[2]


def test_frequent_lines_are_compared_as_well() -> None:
    """difflib takes what is frequent in a long text for junk, unless it is told not to."""
    base = ["}"] * 300
    hunks = list(diff3(base, ["a", *base], [*base, "b"]))
    assert [hunk.stable for hunk in hunks] == [False, True, False]


def test_two_insertions_in_one_place_are_a_hunk() -> None:
    assert list(diff3("ab", "axb", "ayyb")) == [
        Hunk(True, slice(0, 1), slice(0, 1), slice(0, 1)),
        Hunk(False, slice(1, 1), slice(1, 2), slice(1, 3)),
        Hunk(True, slice(1, 2), slice(2, 3), slice(3, 4)),
    ]


@searched(100, LINES, LINES, LINES)
def test_markers_are_balanced_and_no_line_is_lost(
    base: str, mine: str, new: str
) -> None:
    """Every line that a side has and the base has not is in the result, and every conflict shows all three."""
    merged = merge(base, mine, new)
    lines = merged.text.splitlines()
    marks = [line for line in lines if line[:7] in ("<" * 7, "|" * 7, "=" * 7, ">" * 7)]
    assert marks == merged.conflicts * [
        *(f"<<<<<<< {YOURS}", f"||||||| {BASE}", "=======", f">>>>>>> {OURS}")
    ]
    assert has_markers(merged.text) == bool(merged.conflicts)
    for side in (mine, new):
        added = {
            line
            for line in side.splitlines()
            if side.splitlines().count(line) > base.splitlines().count(line)
        }
        assert added <= set(lines)


@pytest.mark.parametrize("text", ["", "a\n", "a\nb\n"])
def test_a_text_merged_with_itself_is_itself(text: str) -> None:
    assert merge(text, text, text) == (text, 0)
    assert merge("b\n", text, text) == (text, 0)
