"""Formula text -> graph: the statements that run, the names in them judged, and the parser that the text is for.

In: `Text` and the `Scope` of its names. Out: a `Formula`. Invariant: a forward is kept whole only for what no straight line says.
"""

import ast
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from scaffold.formula.desugar import straightened
from scaffold.formula.graph import Formula, Graph
from scaffold.formula.loop_unrolling import unrolled
from scaffold.formula.operators import not_operators
from scaffold.formula.own_text import own_text
from scaffold.formula.program import program_of
from scaffold.formula.statements import StatementParser
from scaffold.formula.text import Scope, Text
from scaffold.formula.verbatim import VerbatimParser

LOOP = "there is a loop"
COMPREHENSION = "there is a comprehension"
REASONS: dict[type[ast.AST], str] = {
    ast.For: LOOP,
    ast.While: LOOP,
    ast.ListComp: COMPREHENSION,
    ast.GeneratorExp: COMPREHENSION,
    ast.With: "there is a with statement",
}


def parse(text: Text, scope: Scope, graph: Graph) -> Formula:
    """The formula of a text; every problem of the text is reported."""
    formula = _parsed(text, scope, graph)
    return replace(formula, own_text=partial(own_text, text, scope))


def _parsed(text: Text, scope: Scope, graph: Graph) -> Formula:
    program = program_of(text, scope)
    named = tuple(not_operators(program.body, scope.meanings))
    if scope.kept:
        straight = straightened(unrolled(program.body, scope.names))
        found = _reason(straight)
        if found is not None:
            body = VerbatimParser(text, program, scope, graph)
            body.refuse(named)
            return body.kept(REASONS[type(found)], found)
        program = program._replace(body=straight)
    straight_body = StatementParser(text, program, scope, graph)
    straight_body.refuse(named)
    return straight_body.formula()


def _reason(body: Sequence[ast.stmt]) -> ast.AST | None:
    """The first thing, as it is read, that keeps the text from being straight-line maths."""
    nodes = chain.from_iterable(map(ast.walk, body))
    found = (node for node in nodes if type(node) in REASONS)
    return min(found, key=_position, default=None)


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
