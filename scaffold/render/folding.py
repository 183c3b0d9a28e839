"""Long lines of generated code, broken where the formatter would break them.

In: Python source. Out: the same code with long calls and signatures over several lines. Invariant: only what stands
between brackets moves, and the formatter has the last word; a line that is not understood stays as it is, which costs
the formatter a second pass and nothing else.
"""

from collections.abc import Iterator
from itertools import pairwise

OPENING, CLOSING = "([{", ")]}"
INDENT = "    "


def fold(source: str, length: int) -> str:
    """The source with its long lines broken, as far as brackets allow."""
    folded: list[str] = []
    in_string = False
    for line in source.split("\n"):
        quotes = line.count('"""')
        if in_string or quotes:
            folded.append(line)  # a docstring's text is not code
            in_string ^= quotes % 2 == 1
        elif line.strip() or folded[-2:] != ["", ""]:  # two blank lines are enough
            folded += _folded(line.rstrip(), length)
    return "\n".join(folded)


def _folded(line: str, length: int) -> Iterator[str]:
    code = line.lstrip()
    if len(line) <= length or code.startswith(('"', "'")) or "#" in line:
        yield line
        return
    indent = line[: len(line) - len(code)]
    code = _bracketed(code)
    span = _split(code)
    if span is None:
        yield line
        return
    start, end = span
    yield f"{indent}{code[: start + 1]}"
    literal = start > 0 and not (code[start - 1].isalnum() or code[start - 1] in "_)]")
    yield from _body(code[start + 1 : end], indent + INDENT, length, literal)
    yield f"{indent}{code[end:]}"


def _bracketed(code: str) -> str:
    """Brackets for what may have some: the names of an import, the values of a return."""
    if code.startswith("from ") and " import " in code and "(" not in code:
        module, names = code.split(" import ", 1)
        return f"{module} import ({names},)"  # the comma: always one name a line
    if code.startswith("return ") and any(_commas(code)):
        return f"return ({code.removeprefix('return ')})"
    return code


def _body(body: str, indent: str, length: int, literal: bool) -> Iterator[str]:
    """What stands between the brackets: one item a line in a literal, or where it does not fit one."""
    items = _items(body)
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
    """The brackets to break at: the parameters of a def, else the last ones, if they end the line."""
    pairs = [pair for pair in _pairs(code) if pair[1] - pair[0] > 1]
    if not pairs:
        return None
    if code.startswith("def "):
        return pairs[0]
    return pairs[-1] if code[pairs[-1][1] + 1 :] in ("", ":", ",") else None


def _pairs(code: str) -> Iterator[tuple[int, int]]:
    """The outermost brackets, in order."""
    start = 0
    for position, char, depth in _outside_strings(code):
        if char in OPENING and depth == 1:
            start = position
        elif char in CLOSING and depth == 0:
            yield start, position


def _items(body: str) -> list[str]:
    """The parts of a text between its outermost commas; a comprehension is one."""
    commas = () if any(_loops(body)) else _commas(body)
    ends = [-1, *commas, len(body)]
    parts = [body[a + 1 : b].strip() for a, b in pairwise(ends)]
    return [part for part in parts if part]


def _commas(body: str) -> Iterator[int]:
    for position, char, depth in _outside_strings(body):
        if char == "," and depth == 0:
            yield position


def _loops(body: str) -> Iterator[int]:
    """Where the `for`s and `if`s of a comprehension begin; nothing if the text is none."""
    words: tuple[str, ...] = (" for ",)
    for position, char, depth in _outside_strings(body):
        if char == " " and depth == 0 and body.startswith(words, position):
            words = (" for ", " if ")
            yield position + 1


def _outside_strings(code: str) -> Iterator[tuple[int, str, int]]:
    """The characters outside strings with their places and the depth of brackets after each."""
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
