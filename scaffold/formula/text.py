"""Formula text with its place, and the names that it may read.

In: what stands after `--forward`, in a TOML value or in `@file.py:function`. Out: `Text` that maps any of its
positions back to where the user wrote it; the `Scope` of its names. Invariant: text is read as syntax; nothing is imported or
run. What is no name of a scope is unknown to its formula, unless it assigns it.
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
TAKEN = RESERVED | BUILTINS | frozenset(WELL_KNOWN)  # what no new name may be


class Origin(NamedTuple):
    """The file that a text is a function of; without a function the text is all that the file does."""

    source: str
    module: ast.Module
    definitions: Definitions
    function: str | None
    files: tuple[tuple[int, str], ...] = ()  # as in `Text`


class Text(NamedTuple):
    """Source text and where it begins; `indent` columns were cut from every line after the first.

    From the lines of `files`, counted from 0, on it is the text of other files, in their order.
    """

    value: str
    location: Location
    indent: int = 0
    origin: Origin | None = None
    files: tuple[tuple[int, str], ...] = ()

    @property
    def is_function(self) -> bool:
        """Whether it is the body of a function, in which an expression alone gives no value."""
        return self.origin is not None and self.origin.function is not None

    def place(self, line: int, column: int) -> Location:
        """The place of a position, line and column counted from 0."""
        for first, path in reversed(self.files):
            if line >= first:
                return Location(path, line - first + 1, column + 1)
        return self.location.shifted(line, column + (self.indent if line else 0))


LONG = 60  # characters of a line that a hint shows
LONG_NUMBER = re.compile(r"(?<![\w.])\d(?:_?\d){4299,}")  # which Python does not read
TOO_LARGE = "the number is larger than any float"


def long_number(text: str, error: Exception) -> tuple[int, int] | None:
    """Return the line and column, from 0, of a number that is too long for Python, if an error is of that."""
    found = LONG_NUMBER.search(text) if "(4300 digits)" in str(error) else None
    before = text[: found.start()].split("\n") if found else []
    return (len(before) - 1, len(before[-1])) if before else None


def syntax_error(text: Text, error: SyntaxError) -> ScaffoldError:
    """Python's own complaint, at its place in the user's text."""
    if found := long_number(text.value, error):
        return ScaffoldError(TOO_LARGE, text.place(*found), "infinity is math.inf")
    place = text.place((error.lineno or 1) - 1, max((error.offset or 1) - 1, 0))
    message = f"not valid Python: {error.msg}"
    return ScaffoldError(message, place, _mended(text, error))


# What word processors, papers and other languages write for an operator or a quote.
PAIRS = "−- –- ×* ·* ÷/ ’' ‘' “\" ”\" ≤<= ≥>= ≠!= ²**2 ³**3"
PLAIN = {ord(pair[0]): pair[1:] for pair in PAIRS.split()}
NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
FACTOR = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?)(?=[A-Za-z_(])")  # 2x, 2(x + 1)


def _mended(text: Text, error: SyntaxError) -> str:
    """What to do about text that is no Python: the line as it may be meant, or else to mend it."""
    lines = text.value.split("\n")
    number = (error.lineno or 1) - 1
    line = lines[number].strip() if number < len(lines) else ""
    meant = line.translate(PLAIN)
    meant = FACTOR.sub(r"\1 * ", meant) if "decimal literal" in error.msg else meant
    if "&&" in meant or "||" in meant:
        meant = _of_each_element(meant)
    if meant != line and _is_python("\n".join([*lines[:number], meant])):
        return f"write: {meant}"
    if len(line) > LONG:
        line = f"{line[:LONG]} ..."
    return f"mend: {line}" if line else "mend the line before it"


def _of_each_element(line: str) -> str:
    """`(x > 0) & (y > 0)` of `x > 0 && y > 0`, whose operands are what those of `and` are."""
    try:
        tree = ast.parse(line.replace("&&", " and ").replace("||", " or "))
        return ast.unparse(_BitByBit().visit(tree))
    except NO_PYTHON:
        return line


class _BitByBit(ast.NodeTransformer):
    """Puts `&` in the place of `and`, and `|` of `or`."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        first, *others = node.values
        for other in others:
            first = ast.BinOp(first, operator, other)
        return first


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except NO_PYTHON:
        return False
    return True


def parse_source(text: Text) -> ast.Module:
    """Parse with `ast`, or say where the text is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            module = ast.parse(text.value)
    except SyntaxError as error:
        raise syntax_error(text, error) from None
    except (RecursionError, MemoryError):
        raise _too_deep(text) from None
    except ValueError as error:
        raise ScaffoldError(f"not valid Python: {error}", text.location) from None
    check_depth(module, text)
    return _Asserting().visit(module) if "torch._assert(" in text.value else module


class _Asserting(ast.NodeTransformer):
    """Writes `assert test, message` for `torch._assert(test, message)`, which a tracer sees."""

    def visit_Expr(self, item: ast.Expr) -> ast.stmt:
        match item.value:
            case ast.Call(callee, [test, message], []) if (
                ast.unparse(callee) == "torch._assert"
            ):
                return ast.copy_location(ast.Assert(test, message), item)
        return item


def check_depth(tree: ast.AST, text: Text) -> None:
    """Refuse what is nested so deeply that Python gives up on it."""
    if _depth(tree) > DEEPEST:
        raise _too_deep(text)


def _depth(tree: ast.AST) -> int:
    """How deep the syntax is nested; a sum of a hundred terms is a hundred deep."""
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    return deepest


def _too_deep(text: Text) -> ScaffoldError:
    hint = "give parts of it names: part = ..."
    return ScaffoldError("the formula is nested too deeply", text.location, hint)


def place_in(text: Text, node: ast.AST) -> Location:
    """Where the user wrote what a node was read from."""
    line = getattr(node, "lineno", 1) - 1
    prefix = text.value.split("\n")[line].encode()[: getattr(node, "col_offset", 0)]
    return text.place(line, len(prefix.decode(errors="replace")))


class Refusal(Exception):
    """What cannot be put in place of a call, at the node that is to blame."""

    def __init__(self, node: ast.AST, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.node, self.message, self.hint = node, message, hint

    def within(self, text: Text) -> ScaffoldError:
        """The problem, where the node stands in its text."""
        return ScaffoldError(self.message, place_in(text, self.node), self.hint)


def with_plain_newlines(text: Text) -> Text:
    """The text with the newlines that Python counts, and no others."""
    value = text.value.replace("\r\n", "\n").replace("\r", "\n")
    return text if value == text.value else text._replace(value=value)


def dedented(text: Text) -> Text:
    """Cut the common indentation of a multi-line value, and the blank lines above it."""
    lines = text.value.split("\n")
    blank = next((k for k, line in enumerate(lines) if line.strip()), 0)
    if not blank and not lines[0].startswith((" ", "\t")):
        return text
    kept = lines[blank:]
    indents = [len(line) - len(line.lstrip()) for line in kept if line.strip()]
    cut = min(indents, default=0)
    value = "\n".join(line[cut:] for line in kept)
    return text._replace(
        value=value, location=text.place(blank, cut), indent=text.indent + cut
    )


class Meanings(NamedTuple):
    """What names stand for: imports, by their dotted names; and values of the user's own, whose attributes nobody knows."""

    imports: Mapping[str, str] = {}
    own: frozenset[str] = frozenset()


NO_CHOICES: Mapping[str, Collection[object]] = {}
NO_SIZES: Mapping[str, str] = {}


class Scope(NamedTuple):
    """The names a formula may read.

    `optional` ones may be None for a call; `targets` are the gradients that a whole backward assigns, or returns in this order;
    `tensors` cannot be called, and some of them are `variadic`. Where code may be `kept`, loops are no problem. What is `imported` is called, also where
    the formula's own file defines it; what is `hidden` is imported under a name that the op assigns. `choices` are all the
    values that some may have; `meanings` say which names are imports; `sizes` how the declared dims are read.
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
    sizes: Mapping[str, str] = NO_SIZES  # a dim that is declared -> how it is read

    @property
    def wants_result(self) -> bool:
        """Whether the formula returns something: a whole backward assigns its targets."""
        return self.targets is None

    @property
    def outer(self) -> frozenset[str]:
        """The names that mean something outside: those that can be read, and the targets."""
        return self.names.union(self.targets or ())
