"""Formula text with its place, and the scope of its names.

All parsing begins here. A problem must be shown at the user's own line and column, although texts are dedented, cut out of files
and joined on the way.

Words: a *place* is a line and column of the user's source; a text's *origin* is the file that it was read from; a *scope* tells
which names a formula may read, and what is known of them.

In: the text after `--forward`, in a TOML value or in `@file.py:function`. Out: `Text`, which maps its positions back to
the user's source; the `Scope` of its names. Invariant: text is read as syntax; nothing is imported or run. A name
outside the scope is unknown to the formula, unless the formula assigns it.
"""

import ast
import re
import warnings
from collections.abc import Collection, Mapping
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.formula.definitions import RESERVED, Definitions

DEEPEST = 120  # levels of syntax: far from Python's own limit on recursion
WELL_KNOWN = {"torch": "torch", "F": "torch.nn.functional", "math": "math"}
BUILTINS = frozenset(
    {"abs", "bool", "divmod", "float", "int", "isinstance", "len", "list", "max"}
    | {"min", "pow", "range", "round", "sum", "tuple"}
)
TAKEN = RESERVED | BUILTINS | frozenset(WELL_KNOWN)  # unavailable as new names


class Origin(NamedTuple):
    """The file of a text: the text is a function of it, or without a function all its statements."""

    source: str
    module: ast.Module
    definitions: Definitions
    function: str | None
    files: tuple[tuple[int, str], ...] = ()  # as in `Text`


class Text(NamedTuple):
    """Source text and its beginning; `indent` columns were cut from every line after the first.

    Each entry of `files` is a line, counted from 0, and the path of the file whose text starts
    there.
    """

    value: str
    location: Location
    indent: int = 0
    origin: Origin | None = None
    files: tuple[tuple[int, str], ...] = ()

    @property
    def is_function(self) -> bool:
        """Return whether it is a function body: a final expression is then not the result."""
        return self.origin is not None and self.origin.function is not None

    def place(self, line: int, column: int) -> Location:
        """Return the place of a position in this text, given by line and column from 0, in the user's own source.

        A line after the beginning of another file (`files`) lies in that file; in the first one, cut columns (`indent`) are added.
        """
        for first, path in reversed(self.files):
            if line >= first:
                return Location(path, line - first + 1, column + 1)
        # The first line begins at `location`, which is after the cut columns already.
        return self.location.shifted(line, column + (self.indent if line else 0))


LONG = 60  # characters of a line in a hint
LONG_NUMBER = re.compile(r"(?<![\w.])\d(?:_?\d){4299,}")  # too long for Python to read
TOO_LARGE = "the number is larger than any float"


def long_number(text: str, error: Exception) -> tuple[int, int] | None:
    """Return the line and column, from 0, of a number with more digits than Python reads (4300), if it is the cause of an error.

    None if the error has another cause.
    """
    found = LONG_NUMBER.search(text) if "(4300 digits)" in str(error) else None
    before = text[: found.start()].split("\n") if found else []
    return (len(before) - 1, len(before[-1])) if before else None


def syntax_error(text: Text, error: SyntaxError) -> ScaffoldError:
    """Return Python's syntax error as an error at its place in the user's text.

    A number of too many digits for Python, a `SyntaxError` too, gets a message of its own.
    """
    if found := long_number(text.value, error):
        return ScaffoldError(
            TOO_LARGE, text.place(*found), "for infinity write math.inf"
        )
    place = text.place((error.lineno or 1) - 1, max((error.offset or 1) - 1, 0))
    message = f"not valid Python: {error.msg}"
    return ScaffoldError(message, place, _mended(text, error))


# Characters of word processors, papers and other languages for operators and quotes.
PAIRS = "−- –- ×* ·* ÷/ ’' ‘' “\" ”\" ≤<= ≥>= ≠!= ²**2 ³**3"
PLAIN = {ord(pair[0]): pair[1:] for pair in PAIRS.split()}
NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
FACTOR = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?)(?=[A-Za-z_(])")  # 2x, 2(x + 1)


def _mended(text: Text, error: SyntaxError) -> str:
    """Return a hint for invalid Python: the line as probably meant, `x**2` for `x²`, or else to fix it."""
    lines = text.value.split("\n")
    index = (error.lineno or 1) - 1
    line = lines[index].strip() if index < len(lines) else ""
    meant = line.translate(PLAIN)
    # "invalid decimal literal" is Python's message for `2x`.
    meant = FACTOR.sub(r"\1 * ", meant) if "decimal literal" in error.msg else meant
    if "&&" in meant or "||" in meant:
        meant = _of_each_element(meant)
    # Only up to this line: further down there may be another error.
    if meant != line and is_python("\n".join([*lines[:index], meant])):
        return f"write: {meant}"
    if len(line) > LONG:
        line = f"{line[:LONG]} ..."
    # Python may notice only on an empty line that something above it has no end.
    return f"fix this line: {line}" if line else "fix the line before it"


def _of_each_element(line: str) -> str:
    """Return `(x > 0) & (y > 0)` for `x > 0 && y > 0`, the line as it is if it cannot be read.

    The operands of `&&` are taken to be those of `and`.
    """
    try:
        tree = ast.parse(line.replace("&&", " and ").replace("||", " or "))
        return ast.unparse(_BitByBit().visit(tree))
    except NO_PYTHON:
        return line


class _BitByBit(ast.NodeTransformer):
    """A replacement of `and` by `&`, and of `or` by `|`."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Replace `a and b and c` by `a & b & c`: for tensors `and` is refused, and `&` works on each element."""
        self.generic_visit(node)
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        joined, *others = node.values
        for other in others:
            joined = ast.BinOp(joined, operator, other)
        return joined


def is_python(text: str) -> bool:
    """Return whether Python can parse a text."""
    try:
        ast.parse(text)
    except NO_PYTHON:
        return False
    return True


def parse_source(text: Text) -> ast.Module:
    """Parse a text with `ast`; raise an error at the place of invalid Python."""
    try:
        # Of "\d" newer Pythons warn, with `<unknown>:1` for the user's place.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            module = ast.parse(text.value)
    except SyntaxError as error:
        raise syntax_error(text, error) from None
    # Python's parser raises a MemoryError if its own stack is full, after thousands of minus signs.
    except (RecursionError, MemoryError):
        raise _too_deep(text) from None
    # A null byte, in Pythons before 3.12.
    except ValueError as error:
        raise ScaffoldError(f"not valid Python: {error}", text.location) from None
    check_depth(module, text)
    return _Asserting().visit(module) if "torch._assert(" in text.value else module


class _Asserting(ast.NodeTransformer):
    """A replacement of `torch._assert(test, message)`, for tracers, by `assert test, message`."""

    def visit_Expr(self, item: ast.Expr) -> ast.stmt:
        """Replace the statement `torch._assert(test, message)` by `assert test, message`."""
        match item.value:
            case ast.Call(callee, [test, message], []) if (
                ast.unparse(callee) == "torch._assert"
            ):
                return ast.copy_location(ast.Assert(test, message), item)
        return item


def check_depth(tree: ast.AST, text: Text) -> None:
    """Raise an error if the syntax is nested too deeply for Python."""
    if _depth(tree) > DEEPEST:
        raise _too_deep(text)


def _depth(tree: ast.AST) -> int:
    """Return the nesting depth of the syntax; a sum of a hundred terms is a hundred deep, as each `+` holds the rest."""
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    return deepest


def _too_deep(text: Text) -> ScaffoldError:
    """Return the error for a formula too deeply nested to be walked by recursion."""
    hint = "split it into statements: part = ..."
    return ScaffoldError("the formula is nested too deeply", text.location, hint)


def place_in(text: Text, node: ast.AST) -> Location:
    """Return the place of a node in the user's source; `ast` counts columns in bytes, a place in characters."""
    line = getattr(node, "lineno", 1) - 1
    prefix = text.value.split("\n")[line].encode()[: getattr(node, "col_offset", 0)]
    return text.place(line, len(prefix.decode(errors="replace")))


class Refusal(Exception):
    """A call impossible to inline, or other unsupported syntax, at the node at fault."""

    def __init__(self, node: ast.AST, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.node, self.message, self.hint = node, message, hint

    def within(self, text: Text) -> ScaffoldError:
        """Return the problem at the place of its node in a text."""
        return ScaffoldError(self.message, place_in(text, self.node), self.hint)


def with_plain_newlines(text: Text) -> Text:
    """Return the text with LF for every kind of newline counted by Python."""
    value = text.value.replace("\r\n", "\n").replace("\r", "\n")
    return text if value == text.value else text._replace(value=value)


def dedented(text: Text) -> Text:
    """Return a text without the common indentation and the blank lines above it, as a value in TOML has them; places stay true."""
    lines = text.value.split("\n")
    blank = next((k for k, line in enumerate(lines) if line.strip()), 0)
    if not blank and not lines[0].startswith((" ", "\t")):
        return text
    remaining = lines[blank:]
    indents = [len(line) - len(line.lstrip()) for line in remaining if line.strip()]
    cut = min(indents, default=0)
    value = "\n".join(line[cut:] for line in remaining)
    return text._replace(
        value=value, location=text.place(blank, cut), indent=text.indent + cut
    )


class Meanings(NamedTuple):
    """The meanings of names: imports, by dotted names, and the user's own values.

    Attributes of the user's own values are unknown.
    """

    imports: Mapping[str, str] = {}
    own: frozenset[str] = frozenset()


NO_CHOICES: Mapping[str, Collection[object]] = {}
NO_SIZES: Mapping[str, str] = {}


class Scope(NamedTuple):
    """The names a formula may read.

    `optional` names may be None for a call; `targets` are the gradients of a whole backward,
    assigned by it or returned in this order; `tensors` cannot be called, and some of them are
    `variadic`. If code may be `kept`, loops are allowed. `imported` functions stay calls, even
    if the formula's own file defines them; `hidden` names are imports with the name of a
    gradient. `choices` are all the possible values of some names; `meanings` tell which names
    are imports; `sizes` map declared dims to expressions.
    """

    names: frozenset[str]
    optional: frozenset[str] = frozenset()
    targets: tuple[str, ...] | None = None
    tensors: frozenset[str] = frozenset()
    variadic: frozenset[str] = frozenset()
    kept: bool = False
    imported: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    choices: Mapping[str, Collection[object]] = NO_CHOICES
    meanings: Meanings = Meanings()
    sizes: Mapping[str, str] = NO_SIZES  # a declared dim -> the expression to read it

    @property
    def wants_result(self) -> bool:
        """Return whether the formula returns a result; a whole backward assigns its targets."""
        return self.targets is None

    @property
    def outer(self) -> frozenset[str]:
        """Return the names with a meaning outside: the readable ones, and the targets."""
        return self.names.union(self.targets or ())
