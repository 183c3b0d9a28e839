"""Formula text <-> graph.

In: Python expressions and straight-line statements over torch. Out: `Formula`s, and their text again.
"""

from scaffold.formula.emit import emit, emit_lines
from scaffold.formula.graph import (
    Assign,
    Formula,
    Graph,
    If,
    Node,
    Statement,
    expressions,
    renaming,
    rewritten,
)
from scaffold.formula.parse import Scope, assigned, changed_in_place, parse, written
from scaffold.formula.text import FunctionText, Text, function_in

__all__ = [
    "Assign",
    "Formula",
    "FunctionText",
    "Graph",
    "If",
    "Node",
    "Scope",
    "Statement",
    "Text",
    "assigned",
    "changed_in_place",
    "emit",
    "emit_lines",
    "expressions",
    "function_in",
    "parse",
    "renaming",
    "rewritten",
    "written",
]
