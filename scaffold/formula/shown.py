"""A formula as people are shown it.

In: a text and what was read of it. Out: text. Invariant: the user's own words, but where they name what only their file has.
"""

import ast
from collections.abc import Sequence

from scaffold.formula.emit import emit, emit_lines
from scaffold.formula.graph import Node, Statement
from scaffold.formula.text import Text, parse_source


def shown(
    text: Text,
    body: Sequence[ast.stmt],
    statements: tuple[Statement, ...],
    result: Node | None,
) -> str:
    """The text; of a file's function whose names were replaced in `body`, what it comes to."""
    own = text.value.strip()
    if text.origin is None or result is None or as_written(text, body):
        return own
    several = result.args if result.kind == "tuple" else (result,)
    value = ", ".join(map(emit, several))
    return "\n".join([*emit_lines(statements), f"return {value}"])


def as_written(text: Text, body: Sequence[ast.stmt]) -> ast.Module | None:
    """The syntax of a text, if statements that were read of it say just that."""
    module = parse_source(text)
    same = ast.dump(module) == ast.dump(ast.Module([*body], []))
    return module if same else None
