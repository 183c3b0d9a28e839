"""A Python file cut into statements, each with a form that does not depend on how it is formatted.

In: a text. Out: `Statement`s whose texts, joined, are that text, each with its form; None where the text is not Python.
Invariant: formatters, sorters of imports among them, do not change the forms in their order; any other edit does.

A form is the syntax tree of the statement, its words in their order, and the comments where they stand among the words. A
compound statement ends at its colon. Imports in a row are one statement.
"""

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from functools import lru_cache
from inspect import cleandoc
from typing import Any, NamedTuple

# --- The text of a Python file, cut into statements that say what they say whatever their formatting.


BLOCKS = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})
_SILENT = frozenset({"ctx", "decorator_list"})
_FIXED = frozenset({"[", "]", "{", "}", ":"})  # no formatter moves a comment past one
_CODE = frozenset({tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING})
_IMPORTS = (ast.Import, ast.ImportFrom)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Position = tuple[int, int]  # row from 1, column in characters from 0


class Imported(NamedTuple):
    """One name that is imported, with the comments on it."""

    module: str | None  # None: `import name`
    name: str
    alias: str | None
    comments: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The import of this name alone."""
        origin = "" if self.module is None else f"from {self.module} "
        renamed = f" as {self.alias}" if self.alias else ""
        return f"{origin}import {self.name}{renamed}"

    @property
    def bound(self) -> str:
        """The name that the file has it by; `import a.b` and `import a.c` share one without harm."""
        return self.alias or self.name


class Statement(NamedTuple):
    """Some whole lines: a statement or the comment before one, with the blank lines above it."""

    text: str
    form: str
    imports: tuple[Imported, ...] = ()  # of a run of imports, as they stand


class _Mark(NamedTuple):
    """Where a statement starts in the text, and its syntax; a run of imports also ends."""

    start: Position
    form: str
    end: Position | None = None
    imports: tuple[Imported, ...] = ()


def split(text: str) -> list[str]:
    """The lines with their ends; only a newline ends one."""
    return list(io.StringIO(text))


def cut(text: str) -> tuple[Statement, ...] | None:
    """Cut a text whose lines end in a newline."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the code's escapes
            tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return None
    lines = text.split("\n")
    comments = {
        token.start[0]: _comment(token.string)
        for token in tokens
        if token.type == tokenize.COMMENT
    }
    marks = list(_marks(tree, 0, _Places(lines, comments)))
    return tuple(_Cutter(split(text), marks).statements(tokens))


class _Places(NamedTuple):
    """The lines of the text, and the comment of each row that has one."""

    lines: list[str]
    comments: dict[int, str]

    def position(self, row: int, column: int) -> Position:
        """From the tree's columns, which are bytes."""
        line = self.lines[row - 1]
        if line.isascii():
            return row, column
        return row, len(line.encode()[:column].decode())


def _marks(node: ast.AST, depth: int, places: _Places) -> Iterator[_Mark]:
    """The marks of all statements below a node, in the order of the text."""
    for name in node._fields:
        if name in BLOCKS:
            run: list[ast.stmt] = []
            for child in getattr(node, name):
                if isinstance(child, _IMPORTS):
                    run.append(child)
                    continue
                yield from _run(run, depth, places)
                run = []
                yield from _marks_of(node, child, depth, places)
            yield from _run(run, depth, places)


def _marks_of(
    parent: ast.AST, node: ast.AST, depth: int, places: _Places
) -> Iterator[_Mark]:
    for decorator in getattr(node, "decorator_list", ()):
        start = places.position(decorator.lineno, decorator.col_offset)
        yield _Mark(start, f"{depth} @{_said(decorator)}")
    first: Any = node.pattern if isinstance(node, ast.match_case) else node
    start = places.position(first.lineno, first.col_offset)
    said = _documentation(parent, node) or _said(node)
    yield _Mark(start, f"{depth} {said}")
    yield from _marks(node, depth + 1, places)


def _documentation(parent: ast.AST, node: ast.AST) -> str | None:
    """A docstring, but for its indentation and the blanks at the ends of its lines."""
    if not isinstance(parent, _DOCUMENTED) or parent.body[0] is not node:
        return None
    match node:
        case ast.Expr(ast.Constant(str(text))):
            lines = (line.rstrip() for line in cleandoc(text).split("\n"))
            return f"doc {chr(10).join(lines).strip()!r}"
    return None


def _said(value: object) -> str:
    """A syntax tree as a line of text."""
    match value:
        case ast.Name():
            return value.id
        case ast.Constant():
            return f"={value.value!r}"
        case ast.Delete(targets):
            return f"Delete{_said([*_flat(targets)])}"
        case ast.AST():
            # The body of a statement is statements of its own; of `a if b else c` it is a value.
            silent = _SILENT if isinstance(value, ast.expr) else _SILENT | BLOCKS
            fields = (name for name in value._fields if name not in silent)
            inner = ",".join(_said(getattr(value, name, None)) for name in fields)
            return f"{type(value).__name__}({inner})"
        case list():
            return f"[{','.join(map(_said, value))}]"
    return repr(value)


def _flat(targets: list[ast.expr]) -> Iterator[ast.expr]:
    """`del (a, b)` deletes the same as `del a, b`, though it is another tree."""
    for target in targets:
        if isinstance(target, ast.Tuple):
            yield from _flat(target.elts)
        else:
            yield target


def _run(run: list[ast.stmt], depth: int, places: _Places) -> Iterator[_Mark]:
    """Imports in a row: a set of names, as sorting and splitting leave it."""
    if not run:
        return
    imports: list[Imported] = []
    above = run[0].lineno  # what stands above the first one may be about the file
    for node in run:
        imports += _imported(node, above, places.comments)
        above = (node.end_lineno or node.lineno) + 1
    start = places.position(run[0].lineno, run[0].col_offset)
    last = run[-1]
    end = places.position(last.end_lineno or 0, last.end_col_offset or 0)
    names = {" ".join((one.said, *one.comments)) for one in imports}
    form = f"{depth} {'; '.join(sorted(names))}"
    yield _Mark(start, form, end, tuple(imports))


def module_of(node: ast.Import | ast.ImportFrom) -> str | None:
    """The module that names are imported from, with its dots."""
    if isinstance(node, ast.Import):
        return None
    return "." * node.level + (node.module or "")


def _imported(node: Any, above: int, comments: dict[int, str]) -> Iterator[Imported]:
    """The names of an import; a comment is on the name of its line, or on all of them."""
    rows = {alias.lineno for alias in node.names}
    shared = {row for row in range(node.lineno, node.end_lineno + 1) if row not in rows}
    for number, alias in enumerate(node.names):
        own = {alias.lineno} | shared
        if number == 0:
            own |= set(range(above, node.lineno))
        on_it = tuple(comments[row] for row in sorted(own) if row in comments)
        yield Imported(module_of(node), alias.name, alias.asname, on_it)


class _Cutter:
    """Goes through the tokens once, and closes a statement at the end of its line."""

    def __init__(self, lines: list[str], marks: list[_Mark]) -> None:
        self._lines = lines
        self._marks = marks
        self._next = 0  # of the marks
        self._row = 0  # lines that belong to earlier statements
        self._form: list[str] = []
        self._imports: tuple[Imported, ...] = ()
        self._until: Position = (0, 0)  # the end of the current run of imports
        self._indents: list[int] = []

    def statements(self, tokens: list[tokenize.TokenInfo]) -> Iterator[Statement]:
        open_line = False
        for token in tokens:
            self._reach(token.start)
            if token.type == tokenize.NEWLINE and token.start >= self._until:
                yield self._close(token.start[0])
                open_line = False
            elif token.type == tokenize.COMMENT:
                if token.start[0] > self._until[0]:
                    self._note(token, alone=not open_line)
                    if not open_line:
                        yield self._close(token.start[0])
            elif token.type == tokenize.INDENT:
                self._indents.append(len(token.string))
            elif token.type == tokenize.DEDENT:
                self._indents.pop()
            elif token.type in _CODE:
                open_line = True
                if token.start >= self._until:
                    self._add(token)
        if self._row < len(self._lines):
            yield self._close(len(self._lines))  # blank lines, or the file has no end

    def _reach(self, position: Position) -> None:
        while self._next < len(self._marks):
            mark = self._marks[self._next]
            if mark.start > position:
                return
            self._form.append(mark.form)
            if mark.end is not None:
                self._until, self._imports = mark.end, mark.imports
            self._next += 1

    def _add(self, token: tokenize.TokenInfo) -> None:
        if token.type == tokenize.NUMBER:
            self._form.append(_number(token.string))
        elif token.type == tokenize.NAME or token.string in _FIXED:
            self._form.append(token.string)

    def _note(self, token: tokenize.TokenInfo, alone: bool) -> None:
        """A comment; one on a line of its own belongs to a block."""
        block = sum(indent <= token.start[1] for indent in self._indents)
        self._form.append(f"{block if alone else ''}{_comment(token.string)}")

    def _close(self, row: int) -> Statement:
        text = "".join(self._lines[self._row : row])
        form = "".join(f"{part}\n" for part in self._form)
        closed = Statement(text, form, self._imports)
        self._row, self._form, self._imports = row, [], ()
        return closed


def _comment(text: str) -> str:
    """A comment without the blank that formatters want after its `#`."""
    rest = text[1:].replace("\xa0", " ", 1) if text[1:2] == "\xa0" else text[1:]
    return f"#{rest.removeprefix(' ').rstrip()}"


def _number(text: str) -> str:
    """A number as formatters spell it: 0.5 for .5, 1.0 for 1., 1e5 for 1E+5."""
    text = text.lower()
    if text[:2] in ("0x", "0o", "0b"):
        return text
    text = re.sub(r"^\.", "0.", text.replace("e+", "e"))
    return re.sub(r"\.(?!\d)", ".0", text)


# --- What a Python file says, whatever its formatting.
#
# In: the text of a file. Out: a text, equal for two files iff a formatter could make one of the other.
# Invariant: line length, quotes, redundant parentheses, trailing commas, blank lines, line ends, and the order and grouping of
# imports are no part of it; comments are, where they stand.


@lru_cache(maxsize=16)  # what tests share is long, and compared again and again
def normal_form(text: str) -> str:
    """What the text says; where it is not Python, its lines without the blanks at their ends."""
    lines = unix(text)
    statements = cut(lines)
    if statements is None:
        return "\n".join(line.rstrip() for line in lines.rstrip().split("\n"))
    return "".join(statement.form for statement in statements)


def unix(text: str) -> str:
    """The text with newlines for line ends, without a byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
