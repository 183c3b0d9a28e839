"""Statements: a Python file cut into them, each with a form independent of formatting.

A project may run its own formatter over generated files: that must not count as an edit by hand. So texts are compared, and merged,
by these forms. In: a text. Out: `Statement`s; their texts, joined, are the input, and each has its form; None unless the text is
Python.
Invariant: formatters, sorters of imports among them, do not change the forms in their order; any other edit does.

A form is the syntax tree of the statement, its words in their order, and the comments at their places among the words. A
compound statement ends at its colon. Adjacent imports, a *run*, are one statement. A *mark* is the place where a statement begins,
with the form of its syntax; comments and some tokens are added to it.
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

# --- The text of a Python file, cut into statements with forms independent of formatting.


# Fields of a syntax tree with statements of their own.
BLOCKS = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})
# Fields that are no part of a form: decorators are marks of their own (`_marks_of`).
_SILENT = frozenset({"ctx", "decorator_list"})
_FIXED = frozenset({"[", "]", "{", "}", ":"})  # no formatter moves a comment past one
_CODE = frozenset({tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING})
_IMPORTS = (ast.Import, ast.ImportFrom)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Position = tuple[int, int]  # row from 1, column in characters from 0


class Imported(NamedTuple):
    """One imported name, with the comments on it."""

    module: str | None  # None: `import name`
    name: str
    alias: str | None
    comments: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Return the statement for this name alone, `from a import b as c`: the key to compare imports by."""
        origin = "" if self.module is None else f"from {self.module} "
        renamed = f" as {self.alias}" if self.alias else ""
        return f"{origin}import {self.name}{renamed}"

    @property
    def bound(self) -> str:
        """Return the alias, else the name as written: `a.b` for `import a.b`, though Python binds `a`."""
        return self.alias or self.name


class Statement(NamedTuple):
    """Some whole lines: a statement or the comment before one, with the blank lines above it."""

    text: str
    form: str
    imports: tuple[Imported, ...] = ()  # of a run of imports, as they stand


class _Mark(NamedTuple):
    """The start of a statement in the text, and its syntax as a form; a run of imports also has an end, and its names."""

    start: Position
    form: str
    end: Position | None = None
    imports: tuple[Imported, ...] = ()


def split(text: str) -> list[str]:
    """Return the lines with their ends; only a newline ends one."""
    return list(io.StringIO(text))


def cut(text: str) -> tuple[Statement, ...] | None:
    """Return the statements of a text, whose texts, joined, are it again; None unless it is Python. Its lines must end in newlines."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the code's escapes
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
    """The lines of the text, and the comments by row."""

    lines: list[str]
    comments: dict[int, str]

    def position(self, row: int, column: int) -> Position:
        """Return a position of `ast`, with a column in UTF-8 bytes, as `tokenize` has it, in characters: the two are compared."""
        line = self.lines[row - 1]
        if line.isascii():
            return row, column
        return row, len(line.encode()[:column].decode())


def _marks(node: ast.AST, depth: int, places: _Places) -> Iterator[_Mark]:
    """Yield a mark for each statement in the blocks of a node, in the order of the text; adjacent imports have a single one.

    `depth` is the number of blocks around, part of the form: dedenting a statement is an edit.
    """
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
    """Yield the marks of one statement, or an `except` or `case`, inside `depth` blocks: its decorators, its head, then those in its blocks.

    `parent` tells whether it is a docstring.
    """
    for decorator in getattr(node, "decorator_list", ()):
        start = places.position(decorator.lineno, decorator.col_offset)
        yield _Mark(start, f"{depth} @{_said(decorator)}")
    # A `case` has no position in the tree, but its pattern has.
    first: Any = node.pattern if isinstance(node, ast.match_case) else node
    start = places.position(first.lineno, first.col_offset)
    form = _documentation(parent, node) or _said(node)
    yield _Mark(start, f"{depth} {form}")
    yield from _marks(node, depth + 1, places)


def _documentation(parent: ast.AST, node: ast.AST) -> str | None:
    """Return the form of a docstring, whatever its indentation and trailing blanks; None if the node is not the docstring of its parent."""
    if not isinstance(parent, _DOCUMENTED) or parent.body[0] is not node:
        return None
    match node:
        case ast.Expr(ast.Constant(str(text))):
            # `chr(10)`: before Python 3.12 an f-string takes no backslash.
            lines = (line.rstrip() for line in cleandoc(text).split("\n"))
            return f"doc {chr(10).join(lines).strip()!r}"
    return None


def _said(value: object) -> str:
    """Return a syntax tree as text on one line, without the statements in it: of `def f(x): ...` the head alone."""
    match value:
        case ast.Name():
            return value.id
        # Without its `kind`: formatters write u'x' as 'x'.
        case ast.Constant():
            return f"={value.value!r}"
        # Before the case of any other node (see `flat`).
        case ast.Delete(targets):
            return f"Delete{_said([*flat(targets)])}"
        case ast.AST():
            # A statement's body consists of statements of its own; the body of `a if b else c` is a value.
            silent = _SILENT if isinstance(value, ast.expr) else _SILENT | BLOCKS
            fields = (name for name in value._fields if name not in silent)
            inner = ",".join(_said(getattr(value, name, None)) for name in fields)
            return f"{type(value).__name__}({inner})"
        case list():
            return f"[{','.join(map(_said, value))}]"
    return repr(value)


def flat(targets: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield the targets of a `del` one by one: formatters write `del (a, b)` as `del a, b`, which means the same and is another tree."""
    for target in targets:
        if isinstance(target, ast.Tuple | ast.List):
            yield from flat(target.elts)
        else:
            yield target


def _run(run: list[ast.stmt], depth: int, places: _Places) -> Iterator[_Mark]:
    """Yield one mark for the adjacent imports of a run; nothing for none.

    Its form is the sorted set of the imported names with their comments, so sorting and splitting the imports changes nothing.
    """
    if not run:
        return
    imports: list[Imported] = []
    above = run[0].lineno  # comments above the first one may be about the file
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
    """Return the module of a `from` import, leading dots included (`..a`); None for `import name`."""
    if isinstance(node, ast.Import):
        return None
    return "." * node.level + (node.module or "")


def _imported(node: Any, above: int, comments: dict[int, str]) -> Iterator[Imported]:
    """Yield the names of an import statement with their comments.

    A comment on a name's own line is that name's; one on another line of the statement is every name's; one above, from the line `above`
    on, is the first name's. `comments` are those of the file, by line.
    """
    rows = {alias.lineno for alias in node.names}
    shared = {row for row in range(node.lineno, node.end_lineno + 1) if row not in rows}
    for number, alias in enumerate(node.names):
        own = {alias.lineno} | shared
        if number == 0:
            own |= set(range(above, node.lineno))
        on_it = tuple(comments[row] for row in sorted(own) if row in comments)
        yield Imported(module_of(node), alias.name, alias.asname, on_it)


class _Cutter:
    """One pass over the tokens of a file: it collects the form of a statement, and closes the statement at the end of its last line."""

    def __init__(self, lines: list[str], marks: list[_Mark]) -> None:
        """Begin at the first of the file's lines; `marks` are the starts of its statements, in order."""
        self._lines = lines
        self._marks = marks
        self._next = 0  # of the marks
        self._row = 0  # lines of earlier statements
        self._form: list[str] = []  # of the present statement
        self._imports: tuple[Imported, ...] = ()
        self._until: Position = (0, 0)  # the end of the current run of imports
        self._indents: list[int] = []  # columns of the open blocks

    def statements(self, tokens: list[tokenize.TokenInfo]) -> Iterator[Statement]:
        """Yield the statements of the file; a comment alone on its line is one of its own, and blank lines belong to the statement below.

        Up to `_until` tokens are those of a run of imports, whose form is known already: nothing inside it closes a statement.
        """
        # Whether code stands before a token on its line: the comment of `x = 1  # y` is no statement.
        open_line = False
        for token in tokens:
            self._reach(token.start)
            if token.type == tokenize.NEWLINE and token.start >= self._until:
                yield self._close(token.start[0])
                open_line = False
            elif token.type == tokenize.COMMENT:
                # A comment inside a run, or on its last line, is in the form of the run already.
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
        """Add the forms of all marks up to a position: the syntax of a statement, as tokens alone do not show it.

        A mark with an end is a run of adjacent imports: up to `_until` it is one statement.
        """
        while self._next < len(self._marks):
            mark = self._marks[self._next]
            if mark.start > position:
                return
            self._form.append(mark.form)
            if mark.end is not None:
                self._until, self._imports = mark.end, mark.imports
            self._next += 1

    def _add(self, token: tokenize.TokenInfo) -> None:
        """Add a token to the form: a number, a name or a bracket. A comment's place among these is part of the form; quotes and commas are not."""
        if token.type == tokenize.NUMBER:
            self._form.append(_number(token.string))
        elif token.type == tokenize.NAME or token.string in _FIXED:
            self._form.append(token.string)

    def _note(self, token: tokenize.TokenInfo, alone: bool) -> None:
        """Add a comment to the form; one alone on its line also gets its block's depth."""
        # The number of blocks whose indentation it has, as a comment may also be dedented.
        block = sum(indent <= token.start[1] for indent in self._indents)
        self._form.append(f"{block if alone else ''}{_comment(token.string)}")

    def _close(self, row: int) -> Statement:
        """Return the statement ending at a row, with the collected form, and start the next one."""
        text = "".join(self._lines[self._row : row])
        form = "".join(f"{part}\n" for part in self._form)
        closed = Statement(text, form, self._imports)
        self._row, self._form, self._imports = row, [], ()
        return closed


def _comment(text: str) -> str:
    """Return a comment as a form has it: without the blank after its `#`, which formatters add, and blanks at its end."""
    # black writes a no-break space behind the `#` as a blank.
    rest = text[1:].replace("\xa0", " ", 1) if text[1:2] == "\xa0" else text[1:]
    return f"#{rest.removeprefix(' ').rstrip()}"


def _number(text: str) -> str:
    """Return a literal number as formatters spell it: 0.5 for .5, 1.0 for 1., 1e5 for 1E+5; hexadecimal and the like in lower case."""
    text = text.lower()
    if text[:2] in ("0x", "0o", "0b"):
        return text
    text = re.sub(r"^\.", "0.", text.replace("e+", "e"))
    return re.sub(r"\.(?!\d)", ".0", text)


# --- The content of a Python file, independent of formatting.
#
# In: the text of a file. Out: a text, equal for two files iff a formatter could turn one into the other.
# Invariant: line length, quotes, redundant parentheses, trailing commas, blank lines, line ends, and the order and grouping of
# imports are no part of it; comments are, at their places.


@lru_cache(maxsize=16)  # shared test code is long, and compared again and again
def normal_form(text: str) -> str:
    """Return a text that is equal for two files iff they differ in formatting alone; if not Python, the lines without trailing blanks."""
    lines = unix(text)
    statements = cut(lines)
    if statements is None:
        return "\n".join(line.rstrip() for line in lines.rstrip().split("\n"))
    return "".join(statement.form for statement in statements)


def unix(text: str) -> str:
    """Return the text with newlines for line ends, without a byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
