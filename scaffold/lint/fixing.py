"""Applies edits to a text, through LibCST: formatting and comments stay as they are.

In: a text, and for each finding the edits that mend it. Out: the text with them.
Invariant: the edits of a finding are applied together or not at all, and two findings never edit one place; the
statements that no edit names are the same characters as before.
"""

import ast
from collections.abc import Iterable, Sequence

from scaffold.errors import ScaffoldError
from scaffold.lint.model import Edit, Place

BY_LINE = ("decorate", "undecorate", "signature", "drop")  # of a definition


def fix_text(text: str, groups: Iterable[Sequence[Edit]]) -> str:
    """The text with every group of edits that can be applied."""
    try:
        from scaffold.lint.rewriting import Rewriter, places_in
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "libcst":
            raise
        hint = "pip install 'libcst>=1.4', beside scaffold"
        raise ScaffoldError("--fix needs libcst", hint=hint) from None
    lines = text.split("\n")
    placed = [
        tuple(_place(edit, lines) for edit in group)
        for group in groups
        if not any(_swallows(edit, lines) for edit in group)
    ]
    wrapped, known = places_in(text)
    chosen = _compatible(placed, known)
    if not chosen:
        return text
    fixed = wrapped.visit(Rewriter(chosen)).code
    return fixed if _parses(fixed) else text


def _swallows(edit: Edit, lines: list[str]) -> bool:
    """Whether a comment stands inside of what is replaced."""
    first, _, last, _ = edit.span
    return edit.kind == "replace" and any(
        "#" in row for row in lines[first - 1 : last - 1]
    )


def _place(edit: Edit, lines: list[str]) -> Place:
    """The place in characters; ast counts bytes of UTF-8."""
    line, column, end_line, end_column = edit.span
    return Place(
        edit.kind,
        line,
        _characters(lines, line, column),
        end_line,
        _characters(lines, end_line, end_column),
        edit.text,
    )


def _characters(lines: list[str], line: int, column: int) -> int:
    return len(lines[line - 1].encode()[:column].decode(errors="ignore"))


def _compatible(
    groups: Iterable[tuple[Place, ...]], known: "set[tuple[str, int, int, int, int]]"
) -> frozenset[Place]:
    """The places of all groups that can be found and do not touch those of an earlier group."""
    chosen: dict[Place, None] = {}
    taken: list[Place] = []
    for group in groups:
        rest = [place for place in group if place not in chosen]
        if not all(_is_known(place, known) for place in rest):
            continue
        spans = [place for place in rest if place.kind in ("replace", "remove")]
        if any(_overlap(one, other) for one in spans for other in taken):
            continue
        if any(_overlap(a, b) for n, a in enumerate(spans) for b in spans[:n]):
            continue
        chosen.update(dict.fromkeys(rest))
        taken += spans
    return frozenset(chosen)


def _is_known(place: Place, known: "set[tuple[str, int, int, int, int]]") -> bool:
    if place.kind == "import":
        return True
    if place.kind in BY_LINE:
        return (place.kind, place.line, 0, 0, 0) in known
    kind = "statement" if place.kind in ("before", "after", "remove") else "replace"
    kind = "remove" if place.kind == "remove" else kind
    if kind == "statement":
        return (kind, place.line, place.column, 0, 0) in known
    return (kind, place.line, place.column, place.end_line, place.end_column) in known


def _overlap(one: Place, other: Place) -> bool:
    first = (one.line, one.column), (one.end_line, one.end_column)
    second = (other.line, other.column), (other.end_line, other.end_column)
    return first[0] < second[1] and second[0] < first[1]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
