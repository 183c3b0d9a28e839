"""Rules, what they find, and the edits that mend it.

Invariant: a finding points at text of the file it is about; an edit is about statements and expressions by their place.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from scaffold.inspect import Module
from scaffold.inspect.facts import Facts

Level = Literal["error", "advice"]
EditKind = Literal[
    "before",
    "after",
    "replace",
    "remove",
    "import",
    "decorate",  # and what follows: of a function, by the line of its name
    "undecorate",  # by the line of the decorator
    "signature",
    "drop",
]
Span = tuple[int, int, int, int]  # line from 1, column from 0, and the end


class Edit(NamedTuple):
    """One change of the text at a statement or an expression."""

    kind: EditKind
    span: Span
    text: str = ""


class Place(NamedTuple):
    """Where an edit is, in characters; of a definition and an insertion only the start counts."""

    kind: EditKind
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Found(NamedTuple):
    """What a rule says of a place."""

    node: ast.AST
    message: str
    edits: tuple[Edit, ...] = ()
    level: Level | None = None  # where it is not the rule's own
    function: str = ""


Check = Callable[[Facts], Iterator[Found]]
CheckModule = Callable[[Module], Iterator[Found]]


class Rule(NamedTuple):
    """One thing that can be wrong; `each` looks at a Function, `whole` at a file."""

    id: str
    title: str
    why: str
    bad: str
    good: str
    level: Level = "error"
    each: Check | None = None
    whole: CheckModule | None = None
    default: bool = True  # False: only where it is selected
    fixes: bool = False


class Finding(NamedTuple):
    """What a rule found in a file, in the order in which findings are shown."""

    path: str
    line: int
    column: int  # from 1
    rule: str
    level: Level
    message: str
    function: str
    end_line: int
    edits: tuple[Edit, ...] = ()
    shown: str = ""  # the line, and carets below what is wrong in it


UNREAD = "AF00"  # the rule of files that no rule can look at


class Unreadable(NamedTuple):
    """A file that was not linted, and why."""

    path: str
    line: int
    column: int
    reason: str

    def finding(self, level: Level) -> Finding:
        """The same as a finding."""
        place = (self.path, self.line, self.column)
        return Finding(*place, UNREAD, level, self.reason, "", self.line)


def span(node: ast.AST) -> Span:
    """Where a node stands; columns count characters of UTF-8 as ast does."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    end = getattr(node, "end_lineno", None) or line
    return line, column, end, getattr(node, "end_col_offset", None) or column
