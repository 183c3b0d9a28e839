"""Python code as a notebook shows it: with colours that follow the notebook's theme.

In: a title, code, notes. Out: HTML that loads nothing. Invariant: every text of the user's is escaped.
"""

import io
import keyword
import tokenize
from collections.abc import Iterator, Sequence
from html import escape

COLOURS = {
    "comment": ("--jp-mirror-editor-comment-color", "#5a7a7a"),
    "keyword": ("--jp-mirror-editor-keyword-color", "#007800"),
    "string": ("--jp-mirror-editor-string-color", "#a03030"),
    "number": ("--jp-mirror-editor-number-color", "#707000"),
}


def as_html(title: str, code: str, notes: Sequence[str]) -> str:
    """A title, what is said of it, and code that can be folded away."""
    said = "".join(f"<li>{escape(note)}</li>" for note in notes)
    listed = f"<ul>{said}</ul>" if said else ""
    return (
        f"<details open><summary><code>{escape(title)}</code></summary>{listed}"
        f"<pre>{''.join(_coloured(code))}</pre></details>"
    )


def _coloured(code: str) -> Iterator[str]:
    """The code, its tokens in colours."""
    lines = code.splitlines(keepends=True)
    row, column = 1, 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        (first, start), (last, end) = token.start, token.end
        while row < first and row <= len(lines):
            yield escape(lines[row - 1][column:])
            row, column = row + 1, 0
        if row > len(lines):
            return
        yield escape(lines[row - 1][column:start])
        kind = _kind(token)
        text = escape(token.string)
        if kind:
            variable, plain = COLOURS[kind]
            text = f'<span style="color: var({variable}, {plain})">{text}</span>'
        yield text if token.string.strip() or first == last else ""
        row, column = last, end


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.COMMENT:
        return "comment"
    if token.type == tokenize.STRING:
        return "string"
    if token.type == tokenize.NUMBER:
        return "number"
    return "keyword" if keyword.iskeyword(token.string) else ""
