"""Formulas from text, for tests."""

import ast
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Formula, Graph, Scope, Text, emit, emit_lines, parse
from scaffold.formula.text import Meanings

NAMES = "x y w bias scale p"
OPTIONAL = "bias scale"


def formula(
    source: str,
    *,
    names: str = NAMES,
    optional: str = OPTIONAL,
    targets: str | None = None,
    graph: Graph | None = None,
    place: Location | None = None,
    imports: Mapping[str, str] = MappingProxyType({}),
    kept: bool = False,
) -> Formula:
    """The formula of a text that reads well; `kept` where it is a forward."""
    scope = Scope(
        frozenset(names.split()),
        frozenset(optional.split()),
        None if targets is None else tuple(targets.split()),
        meanings=Meanings(imports),
        kept=kept,
    )
    text = Text(source, place or Location("--forward"))
    return parse(text, scope, graph or Graph())


def text_of(parsed: Formula) -> str:
    """Its code again, with the return."""
    lines = emit_lines(parsed.statements)
    if parsed.result is not None:
        lines.append(f"return {emit(parsed.result)}")
    return "\n".join(lines)


def again(source: str, **scope: str | bool) -> str:
    """A text, parsed and written out."""
    return text_of(formula(source, **scope))  # type: ignore[arg-type]


def problems(source: str, **scope: str | bool) -> list[str]:
    """What is wrong with a text, each with its place."""
    with pytest.raises(ScaffoldError) as caught:
        formula(source, **scope)  # type: ignore[arg-type]
    return [str(problem) for problem in caught.value.problems]


def expression(text: str) -> ast.expr:
    """The tree of one expression, as Python parses it."""
    return ast.parse(text, mode="eval").body
