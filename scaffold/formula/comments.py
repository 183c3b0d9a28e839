"""The comments of a formula: which statement each belongs to.

In: source text and its statements. Out: first line of a statement -> the comments above it or at its end.
"""

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterable, Sequence


def comments_inside(
    source: str, bodies: Iterable[Sequence[ast.stmt]]
) -> dict[int, tuple[str, ...]]:
    """Those of some bodies in a text, each with what stands right above its first statement."""
    lines = source.split("\n")
    found: dict[int, tuple[str, ...]] = {}
    for body in bodies if "#" in source else ():
        first, last = lines_of(body, lines)
        blank = "\n" * first
        found |= comments_above(
            blank + textwrap.dedent("\n".join(lines[first:last])), body
        )
    return found


def lines_of(
    body: Sequence[ast.stmt], lines: Sequence[str], least: int = 0
) -> tuple[int, int]:
    """Where a body begins and ends, counted from 0, with the comments right above it that stand below `least`."""
    first = body[0].lineno - 1
    while first > least and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return first, body[-1].end_lineno or body[-1].lineno


def comments_above(source: str, body: Sequence[ast.stmt]) -> dict[int, tuple[str, ...]]:
    """Comments by the line (from 1) of the statement that they stand above or end."""
    if "#" not in source:
        return {}
    spans = [
        (item.lineno, item.end_lineno or item.lineno) for item in _statements(body)
    ]
    found: dict[int, list[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = _owner(token.start[0], spans)
            if line is not None:
                found.setdefault(line, []).append(token.string.lstrip("#").strip())
    return {line: tuple(texts) for line, texts in found.items()}


def _owner(line: int, spans: list[tuple[int, int]]) -> int | None:
    """The innermost statement around the comment's line, else the next one below."""
    around = [first for first, last in spans if first <= line <= last]
    below = [first for first, _ in spans if first > line]
    if not around:
        return min(below, default=None)
    inner = max(around)
    inside = below and _is_compound(inner, spans) and min(below) <= _end(inner, spans)
    return min(below) if inside and line > inner else inner


def _end(first: int, spans: list[tuple[int, int]]) -> int:
    return max(last for start, last in spans if start == first)


def _is_compound(first: int, spans: list[tuple[int, int]]) -> bool:
    """Whether other statements lie inside the one that starts at `first`."""
    return any(first < start <= _end(first, spans) for start, _ in spans)


def _statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    return [
        node for item in body for node in ast.walk(item) if isinstance(node, ast.stmt)
    ]
