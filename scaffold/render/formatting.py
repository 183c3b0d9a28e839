"""Formatting: black behind one function, with long lines broken beforehand as black would.

Black takes most of the time of generation, so its work is lessened: a file is formatted in *pieces* (a function, a class, the lines up to
the next), pieces are cached, and long lines are *folded*, as black would break them, before black sees them: a line that black has to break
costs it a second pass. Words: a text is *kept* in the cache; items stand *apart* if each has a line of its own; *loops* are the `for` and
`if` of a comprehension.
In: Python source. Out: the same code as black formats it. Invariant: lines are broken here only inside brackets, and black
has the last word; an unrecognised line stays as it is, and costs only a second pass of black.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from scaffold.spec.other_tools import LINE_LENGTH

if TYPE_CHECKING:
    from black.mode import Mode


# --- Source in independent pieces: top-level functions and classes, each with the lines up to the next.
#
# In: Python source. Out: its pieces. Invariant: the pieces, joined by two blank lines, are the source, and each is valid
# Python; if one is not, as a string or a bracket continues in the next, the source is one piece.
#
# Most pieces of a test file are the same for many ops, so the formatted text of a piece is cached; code common to the tests
# of all ops is written in black's style, and is not passed to black at all.


BOUNDARY = re.compile(r"\n(?:[ \t]*\n){2,}(?=@|def |class |async def )")
BETWEEN = "\n\n\n"
# Text with an effect across pieces: directives of formatters, carriage returns.
SPANNING = re.compile(r"fmt:|yapf:|\r")
IMPORT = re.compile(r"^(?:import|from) ", re.MULTILINE)


def split(source: str) -> list[str]:
    """Split source into pieces for black, each formatted by itself; without imports in the first one, return the source whole.

    A piece ends before a function or class at the margin, below two blank lines. Black leaves one blank line, not two, below a lone
    docstring.
    """
    if SPANNING.search(source):
        return [source]
    first, *rest = BOUNDARY.split(source)
    return [first, *rest] if IMPORT.search(first) else [source]


# --- Long lines of generated code, broken at the formatter's own places.


OPENING, CLOSING = "([{", ")]}"
INDENT = "    "


TRIPLE = re.compile(r'"{3}|\'{3}')
ASSIGNED = re.compile(r"(?:return|[\w.]+ =) (?!yield|await|lambda|[\w.]+ = )(?=\S)")


def fold(source: str, length: int) -> str:
    """Break lines longer than `length` at brackets where possible, and drop blank lines black would drop: black has less to do then."""
    folded: list[str] = []
    quotes, below_imports = "", False  # the quotes of a string begun on an earlier line
    for line in source.split("\n"):
        if quotes or TRIPLE.search(line):
            folded.append(line)  # a docstring's text is not code
            quotes, below_imports = _open_quotes(line, quotes), False
        elif not line.strip():
            folded += [""] * (folded[-2:] != ["", ""])  # two blank lines are enough
        else:
            if folded[-2:] == ["", ""] and _one_is_enough(line, below_imports):
                del folded[-1]
            folded += _folded(line.rstrip(), length)
            # Imports in brackets go on in indented lines, and end with `)`.
            if line[0] not in " )":
                below_imports = line.startswith(("import ", "from "))
    return "\n".join(folded)


def _open_quotes(line: str, quotes: str) -> str:
    """Return the quotes of the string continuing on the next line, or ""."""
    for found in TRIPLE.findall(line):
        if found == quotes:
            quotes = ""
        elif not quotes:
            quotes = found
    return quotes


def _one_is_enough(line: str, below_imports: bool) -> bool:
    """Return whether black keeps only one blank line above: in a class or function, or between imports and a statement."""
    return line[0] == " " or (
        below_imports and not line.startswith(("@", "def ", "class ", "async ", "#"))
    )


def _folded(line: str, length: int) -> Iterator[str]:
    """Yield a line as black folds it: at its brackets if it is too long, or if a trailing comma wants one item a line.

    `return f(aaaa, bbbb)` -> `return f(`, `    aaaa, bbbb`, `)`. A line with a string in front, a comment or a semicolon stays as it is.
    """
    code = line.lstrip()
    # `f(a, b,)` may be short enough, but its last comma asks for one item a line.
    fits = len(line) <= length and not code.endswith(",)")
    if fits or code.startswith(('"', "'")) or "#" in line or ";" in line:
        yield line
        return
    indent = line[: len(line) - len(code)]
    code = _bracketed(code, length - len(indent))
    span = _split(code)  # the positions of its brackets
    if span is None or (len(line) <= length and not _is_one_a_line(code, span)):
        yield line
        return
    start, end = span
    yield f"{indent}{code[: start + 1]}"
    # No name or call before the bracket: a tuple, list or dict, not arguments.
    literal = start > 0 and not (code[start - 1].isalnum() or code[start - 1] in "_)]")
    yield from _body(code[start + 1 : end], indent + INDENT, length, literal)
    yield f"{indent}{code[end:]}"


def _is_one_a_line(code: str, span: tuple[int, int]) -> bool:
    """Return whether black writes each item in these brackets on a line of its own, because of a trailing comma."""
    # The comma of `(x,)` is part of the tuple, and asks for nothing.
    return code[: span[1]].endswith(",") and len(_items(code[slice(*span)][1:])) > 1


def _bracketed(code: str, width: int) -> str:
    """Add the brackets black would, to break a long line at: `return a, b` -> `return (a, b)`.

    Around imported names, several returned values, or an assigned value not ending in a bracket; `width` is the room for such a value.
    """
    if code.startswith("from ") and " import " in code and "(" not in code:
        module, names = code.split(" import ", 1)
        return f"{module} import ({names},)"  # the comma: always one name a line
    if code.startswith("return ") and any(_commas(code)):
        return f"return ({code.removeprefix('return ')})"
    if (head := ASSIGNED.match(code)) and code[-1] not in ")]}":
        value = code[head.end() :]
        if len(INDENT) + len(value) <= width and not any(_commas(value)):
            return f"{head[0]}({value})"
    return code


def _body(body: str, indent: str, length: int, literal: bool) -> Iterator[str]:
    """Yield the lines inside the brackets, `body`: one if it fits, else one per item; items of a `literal` always have their own.

    A single item is broken before the `for` or `if` of a comprehension, or inside its own brackets.
    """
    items = _items(body)
    # A comma at the end keeps the items apart, as for black.
    apart = len(items) > 1 and (literal or body.endswith(","))
    if len(indent) + len(body) <= length and not apart:
        yield indent + body
    elif len(items) > 1:
        for item in items:
            yield from _folded(f"{indent}{item},", length)
    elif loops := list(_loops(body)):
        for start, end in zip([0, *loops], [*loops, len(body)], strict=True):
            yield from _folded(indent + body[start:end].rstrip(), length)
    else:
        yield from _folded(indent + body, length)


def _split(code: str) -> tuple[int, int] | None:
    """Return the positions of the brackets to break at: a def's parameters, else the last pair if it ends the line; else None."""
    # Empty brackets, `f()`, are no place to break at.
    pairs = [pair for pair in _pairs(code) if pair[1] - pair[0] > 1]
    if not pairs:
        return None
    if code.startswith("def "):
        return pairs[0]
    return pairs[-1] if code[pairs[-1][1] + 1 :] in ("", ":", ",") else None


def _pairs(code: str) -> Iterator[tuple[int, int]]:
    """Yield the outermost pairs of brackets, in order."""
    start = 0
    for position, char, depth in _outside_strings(code):
        if char in OPENING and depth == 1:
            start = position
        elif char in CLOSING and depth == 0:
            yield start, position


def _items(body: str) -> list[str]:
    """Split a text at its outermost commas; a comprehension stays whole."""
    commas = () if any(_loops(body)) else _commas(body)
    ends = [-1, *commas, len(body)]
    parts = [body[a + 1 : b].strip() for a, b in pairwise(ends)]
    return [part for part in parts if part]


def _commas(body: str) -> Iterator[int]:
    """Yield the positions of the outermost commas; none is 0, so that `any` tells whether there are some."""
    for position, char, depth in _outside_strings(body):
        if char == "," and depth == 0:
            yield position


def _loops(body: str) -> Iterator[int]:
    """Yield the positions of the `for`s and `if`s of a comprehension; nothing for any other text."""
    words: tuple[str, ...] = (" for ",)  # an `if` before a `for` is a conditional's
    for position, char, depth in _outside_strings(body):
        if char == " " and depth == 0 and body.startswith(words, position):
            words = (" for ", " if ")
            yield position + 1


def _outside_strings(code: str) -> Iterator[tuple[int, str, int]]:
    """Yield the characters outside strings with their positions and the bracket depth after each."""
    depth, quote, escaped = 0, "", False
    for position, char in enumerate(code):
        if quote:
            if not escaped and char == quote:
                quote = ""
            escaped = not escaped and char == "\\"
            continue
        if char in "\"'":
            quote = char
            continue
        depth += (char in OPENING) - (char in CLOSING)
        yield position, char, depth


# --- The formatter behind one function.
#
# In: Python source and the length of a line. Out: the same code as black writes it.
# Invariant: text in, text out; formatting piece by piece and formatting the whole give the same bytes.


MOST = 1024  # pieces: the shared ones, and those of the last hundred ops

# {path: text}, the length of a line -> the same texts, formatted
Formatter = Callable[[Mapping[str, str], int], dict[str, str]]


def format_files(files: Mapping[str, str], line_length: int) -> dict[str, str]:
    """Format the texts of files with black."""
    return {path: format_source(text, line_length) for path, text in files.items()}


def format_source(source: str, line_length: int = LINE_LENGTH) -> str:
    """Format Python source with black, piece by piece; pieces formatted before are taken from the cache, and new ones added to it."""
    from scaffold.formula.text import is_python  # a check renders nothing

    pieces = split(source)
    new = [
        piece for piece in dict.fromkeys(pieces) if (piece, line_length) not in _KEPT
    ]
    # In a piece that is no Python a string or a bracket continues in the next one.
    if len(pieces) == 1 or not all(map(is_python, new)):
        return _black(source, line_length)
    # Taken out and put back: the cache drops what was not used for longest.
    found = {piece: _KEPT.pop((piece, line_length)) for piece in {*pieces} - {*new}}
    found |= zip(new, _formatted(new, line_length), strict=True)
    for piece, text in found.items():
        _keep(piece, line_length, text)
    return BETWEEN.join(found[piece] for piece in pieces) + "\n"


def keep_formatted(source: str, line_length: int) -> None:
    """Cache the pieces of source as already formatted: black is never called for them.

    For the test code that all ops share, written in black's style; the caller asserts that black would change only its blank lines.
    """
    for piece in BOUNDARY.split(source):
        _keep(piece, line_length, fold(piece, line_length).strip("\n"))


def _formatted(pieces: list[str], line_length: int) -> list[str]:
    """Return the formatted text of each piece, by one call of black for all of them, as each costs half a millisecond."""
    if not pieces:
        return []
    parts = BOUNDARY.split(_black(BETWEEN.join(pieces), line_length))
    if len(parts) != len(pieces):  # a formatted piece may itself contain a boundary
        parts = [_black(piece, line_length) for piece in pieces]
    return [part.strip("\n") for part in parts]


# The formatted text of a piece by its line length; the most recently used is last.
_KEPT: dict[tuple[str, int], str] = {}


def _keep(piece: str, line_length: int, text: str) -> None:
    _KEPT[piece, line_length] = text
    if len(_KEPT) > MOST:
        del _KEPT[next(iter(_KEPT))]


def _black(source: str, line_length: int) -> str:
    """Return source as black formats it, with long lines broken before, since that saves a second pass."""
    import black  # imported only if something is rendered

    folded = fold(source.rstrip("\n"), line_length) + "\n"
    return black.format_str(folded, mode=_mode(line_length))  # a change: a second pass


@cache
def _mode(line_length: int) -> "Mode":
    """Return black's mode, cached, as all files share one."""
    from black.mode import Mode, TargetVersion

    return Mode(target_versions={TargetVersion.PY311}, line_length=line_length)
