"""Rules, findings, and edits: the data the rules, the fixer and the output formats of the linter share.

Words: a rule *finds* mistakes (`Found`) in a file or a Function; a `Finding` is one with its file and line, for display; an *edit*
is a change of the text that mends it; a *place* is where; *span* is a place as `ast` counts it.

Invariant: a finding points at text of its own file; an edit names statements and expressions by their place.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from scaffold.inspect import Module
from scaffold.inspect.facts import Facts

Level = Literal["error", "advice"]
EditKind = Literal[
    "before",  # insert a statement before another
    "after",
    "replace",
    "remove",
    "import",  # add an import to the file
    "decorate",  # this and the next ones: of a function, by the line of its name
    "undecorate",  # by the line of the decorator
    "signature",  # new parameters
    "drop",  # remove the function
]
Span = tuple[int, int, int, int]  # line from 1, column from 0, and the end


class Edit(NamedTuple):
    """One change of the text at a statement or an expression."""

    kind: EditKind
    span: Span
    text: str = ""


class Place(NamedTuple):
    """The place of an edit, in characters; for a definition and an insertion only the start counts."""

    kind: EditKind
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Found(NamedTuple):
    """A finding of a rule at a node."""

    node: ast.AST
    message: str
    edits: tuple[Edit, ...] = ()
    level: Level | None = None  # if other than the rule's own
    function: str = ""


Check = Callable[[Facts], Iterator[Found]]
CheckModule = Callable[[Module], Iterator[Found]]


class Rule(NamedTuple):
    """A possible mistake, with its check: `each` is called for each Function, `whole` for a file."""

    id: str
    title: str
    why: str
    bad: str
    good: str
    level: Level = "error"
    each: Check | None = None
    whole: CheckModule | None = None
    default: bool = True  # False: only if it is selected
    fixes: bool = False  # some of its findings have edits


class Finding(NamedTuple):
    """A finding in a file; its fields give the order of display."""

    path: str
    line: int
    column: int  # from 1
    rule: str
    level: Level
    message: str
    function: str
    end_line: int
    edits: tuple[Edit, ...] = ()
    shown: str = ""  # the line, and carets below the mistake


UNREAD = "AF00"  # the rule of unreadable files


class Unreadable(NamedTuple):
    """A file that was not linted, and the reason."""

    path: str
    line: int
    column: int
    reason: str

    def finding(self, level: Level) -> Finding:
        """Return it as a finding of the rule AF00, at a level the caller chooses."""
        place = (self.path, self.line, self.column)
        return Finding(*place, UNREAD, level, self.reason, "", self.line)


def span(node: ast.AST) -> Span:
    """Return the place of a node: line and column, and of its end; columns count bytes of UTF-8, as in ast."""
    # A node without a place, such as a whole file, is shown at its first line.
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    end = getattr(node, "end_lineno", None) or line
    return line, column, end, getattr(node, "end_col_offset", None) or column
