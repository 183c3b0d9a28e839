"""Formula text <-> graph.

In: Python expressions and statements over torch. Out: `Formula`s, and their text again.
"""

from scaffold.formula.assertions import is_check, raises
from scaffold.formula.effects import (
    bound,
    changed_in_place,
    copied,
    holds_several,
    keywords,
    same_memory,
    same_tensor,
    sharing,
    written,
    written_to,
)
from scaffold.formula.emit import emit, emit_lines
from scaffold.formula.functions import FunctionText, function_in
from scaffold.formula.graph import (
    Assign,
    Formula,
    Graph,
    If,
    Kept,
    Node,
    Statement,
    assignments,
    changed_parts,
    expressions,
    renaming,
    rewritten,
)
from scaffold.formula.operators import (
    is_judged,
    is_newer,
    is_torch_word,
    judged,
    judged_value,
    meant,
    newer,
)
from scaffold.formula.parse import assigned
from scaffold.formula.reading import parse
from scaffold.formula.text import BUILTINS, WELL_KNOWN, Meanings, Scope, Text

__all__ = [
    "BUILTINS",
    "WELL_KNOWN",
    "Assign",
    "Formula",
    "FunctionText",
    "Graph",
    "If",
    "Kept",
    "Meanings",
    "Node",
    "Scope",
    "Statement",
    "Text",
    "assigned",
    "assignments",
    "bound",
    "changed_in_place",
    "changed_parts",
    "copied",
    "emit",
    "emit_lines",
    "expressions",
    "function_in",
    "holds_several",
    "is_check",
    "is_judged",
    "is_newer",
    "is_torch_word",
    "judged",
    "judged_value",
    "keywords",
    "meant",
    "newer",
    "parse",
    "raises",
    "renaming",
    "rewritten",
    "same_memory",
    "same_tensor",
    "sharing",
    "written",
    "written_to",
]
