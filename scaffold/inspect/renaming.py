"""Renaming: replace the names of an op in a Python file.

`scaffold rename` does so in the op's files and in the code that uses it. The text is edited token by token, not rebuilt from a
syntax tree, so comments and layout stay.

In: the text of a generated file, edited or not, and the names before and after. Out: the text with the new names.
Invariant: a word changes only if it is the op's: not after a dot, not as the name of an argument, not in prose.
"""

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_STRINGS = frozenset(
    {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
)
_BLANK = frozenset({tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT})


class Names(NamedTuple):
    """The names of an op in code."""

    op: str
    module: str  # of its file
    classes: tuple[str, ...]  # the Function, and the Module if there is one


class Renaming(NamedTuple):
    """An op's names before and after, and the names of its arguments."""

    before: Names
    after: Names
    # A word that is also an argument, `scale` in `scale(x, scale)`, means the op only if it is called.
    arguments: frozenset[str]

    @property
    def words(self) -> dict[str, str]:
        """Map each old name to the new one."""
        pairs = zip(self.before.classes, self.after.classes, strict=True)
        return {self.before.op: self.after.op, **dict(pairs)}


def renamed(text: str, renaming: Renaming) -> str:
    """Return the text with the new names; text other than Python stays the same.

    Tokens are replaced from the last to the first, so that earlier places stay true.
    """
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    lines = text.splitlines(keepends=True)
    for line in reversed(list(_logical_lines(tokens))):
        for token, new in reversed(list(_replacements(line, renaming))):
            _replace(lines, token, new)
    return "".join(lines)


def _replace(lines: list[str], token: tokenize.TokenInfo, new: str) -> None:
    """Put `new` in the place of a token in the lines of a file, the list itself; a string may span several lines."""
    (row, start), (last, end) = token.start, token.end
    merged = f"{lines[row - 1][:start]}{new}{lines[last - 1][end:]}"
    lines[row - 1 : last] = merged.splitlines(keepends=True)


def _logical_lines(
    tokens: list[tokenize.TokenInfo],
) -> Iterator[list[tokenize.TokenInfo]]:
    """Yield the tokens of each line of code, comments left out; a statement over several lines of the file is one line of code."""
    line: list[tokenize.TokenInfo] = []
    for token in tokens:
        if token.type not in _BLANK:
            line.append(token)
        if token.type == tokenize.NEWLINE:
            yield line
            line = []


def _replacements(
    line: list[tokenize.TokenInfo], renaming: Renaming
) -> Iterator[tuple[tokenize.TokenInfo, str]]:
    """Yield the tokens of a line to replace, with their new text.

    In an import of the op's file the module is renamed too: `from ops.scale import scale`. An import of another module is left
    alone: a word in it is not this op.
    """
    first = line[0].string
    imports = first in ("from", "import")
    if imports and not _imports_op(line, renaming.before.module):
        return
    words: Mapping[str, str] = renaming.words
    if imports:
        words = {renaming.before.module: renaming.after.module, **words}
    for position, token in enumerate(line):
        if token.type in _STRINGS:
            new = _in_string(token.string, renaming)
        elif token.type != tokenize.NAME:
            continue
        # In an import of the op's file each of these words is the op's.
        elif token.string in words and (imports or _is_op(line, position, renaming)):
            new = words[token.string]
        else:
            new = _in_test_name(token.string, renaming)
        if new != token.string:
            yield token, new


def _imports_op(line: list[tokenize.TokenInfo], module: str) -> bool:
    """Return whether an import statement names the op's file, `module`: `import ops.scale`, `from ops import scale`."""
    words = [token.string for token in line]
    # `from a.b import c`: the module's path ends before `import`.
    end = words.index("import") if words[0] == "from" else len(words)
    return module in words[1:end] or words[0] == "from" and module in words[end:]


def _is_op(line: list[tokenize.TokenInfo], position: int, renaming: Renaming) -> bool:
    """Return whether the word at a position of a line is the op's name, not an attribute's or an argument's.

    It is not in `x.scale` and in `f(scale=2)`; if an argument of the op has the word too, it is the op only in `scale(...)`,
    `scale.name` and `def scale`.
    """
    before = line[position - 1].string if position else ""
    after = line[position + 1].string if position + 1 < len(line) else ""
    if before == "." or after == "=" and before in ("(", ","):
        return False
    called = after in ("(", ".") or before in ("def", "class")
    return called or line[position].string not in renaming.arguments


def _in_test_name(word: str, renaming: Renaming) -> str:
    """Return the name of a test with the op's name in it replaced, `test_scale_twice` -> `test_zoom_twice`; other words stay."""
    if not word.startswith("test_"):
        return word
    old, new = re.escape(renaming.before.op), renaming.after.op
    return re.sub(rf"(?<=_){old}(?=_|$)", new, word)


def _in_string(text: str, renaming: Renaming) -> str:
    """Rename references (`` `scale` ``) and messages in a string; the rest is prose, and stays as it is."""
    old, new = re.escape(renaming.before.op), renaming.after.op
    # The message of a generated check: "scale: write ..."
    text = re.sub(rf"\b{old}(?=: write )", new, text)
    text = re.sub(rf"(?<=::){old}(?=[\"'])", new, text)  # registered: "ns::scale"
    for before, after in renaming.words.items():
        text = re.sub(rf"(?<=`){re.escape(before)}(?=`)", after, text)
    return text
