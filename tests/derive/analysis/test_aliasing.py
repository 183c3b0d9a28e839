"""Whose memory each name holds, and what changes under several names."""

import pytest

from scaffold.derive.analysis.aliasing import Trace
from scaffold.formula import copied, sharing
from tests.formula.parsing import formula


def trace(source: str) -> Trace:
    return Trace(
        formula(f"{source}\nreturn x", names="x y p", optional="").statements, sharing
    )


def outside(held: Trace, name: str) -> set[str]:
    return {part for part in held.of(name) if not part.startswith("@")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("h = x", {"x"}),
        ("h = x.t()", {"x"}),
        ("h = x\nk = h[0]\nh = k", {"x"}),
        ("h = x + 1", set()),
        ("h = x\nh = h + 1", set()),
        ("a, h = y, x", {"x"}),
        ("a, h = x.chunk(2)", {"x"}),
        ("h = x if p else y", {"x", "y"}),
        ("if p:\n    h = x\nelse:\n    h = y + 1", {"x"}),
        ("h = y + 1\nif p:\n    h = x", {"x"}),
        ("h = x\nh += 1", {"x"}),
        ("h = (x + 1).t()", set()),
    ],
)
def test_memory_from_outside(source: str, expected: set[str]) -> None:
    assert outside(trace(source), "h") == expected


def test_what_is_made_inside_is_told_apart() -> None:
    held = trace("h = x + 1\nk = h.t()\ng = x + 1")
    assert held.of("h") == held.of("k")
    assert not held.of("h") & held.of("g")


@pytest.mark.parametrize(
    ("source", "name", "holders", "from_outside"),
    [
        ("h = x + 1\nh += 1", "h", {"h"}, set()),
        ("h = x + 1\nk = h[0]\nk += 1", "k", {"h", "k"}, set()),
        ("h = x\nh += 1", "h", {"h", "x"}, {"x"}),
        ("h = x.view(-1)\nh.mul_(2)", "h", {"h", "x"}, {"x"}),
        ("x = x + 1\nx += 1", "x", {"x"}, set()),
        ("h = x\nx = y + 1\nh += 1", "h", {"h"}, {"x"}),
        ("h = x + 1\nh[0] = y", "h", {"h"}, set()),
        ("k = x.exp_()", "x", {"x"}, {"x"}),
        ("if p:\n    h = x\nelse:\n    h = y + 1\nh += 1", "h", {"h", "x"}, {"x"}),
    ],
)
def test_a_change_in_place(
    source: str, name: str, holders: set[str], from_outside: set[str]
) -> None:
    (change,) = trace(source).changes
    assert change.name == name
    assert change.holders == holders
    assert change.outside == from_outside


def test_changes_in_branches_count() -> None:
    changes = trace("h = x + 1\nif p:\n    h += 1\nelse:\n    h *= 2").changes
    assert [change.position for change in changes] == [1, 1]


def test_copies_alone() -> None:
    parsed = formula("h = x\nk = x.contiguous()\nreturn h", names="x", optional="")
    held = Trace(parsed.statements, copied)
    assert outside(held, "h") == {"x"}
    assert not outside(held, "k")
