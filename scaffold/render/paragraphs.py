"""Paragraphs of docstrings, and the quotes around them.

In: a text. Out: lines. Invariant: whatever the text holds, the docstring stays one string.
"""

import textwrap

INDENT = "    "
QUOTES = r"\"\"\""
WIDTH = 84  # what the indentation leaves of a line
ONE_LINE = WIDTH - 6  # and the quotes, where they stand on it


def quoted(lines: list[str]) -> str:
    """Lines as a docstring: one line if it is one, else with the quotes on their own at the end."""
    text = _escaped("\n".join(lines))
    if len(lines) == 1 and len(text) <= ONE_LINE and not text.endswith('"'):
        return f'"""{text}"""'
    return f'"""{text}\n"""'


def wrapped(text: str, indent: str = "", more: str | None = None) -> list[str]:
    """A paragraph in lines, its words whole."""
    lines = textwrap.wrap(
        _escaped(text),  # as wide as it will stand in the file
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if more is None else more,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(QUOTES, '"""').replace("\\\\", "\\") for line in lines]


def first_paragraph(text: str) -> list[str]:
    """A paragraph that begins beside the quotes."""
    lines = wrapped(" ".join(text.split()), "   ", "")
    return [lines[0].lstrip(), *lines[1:]]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', QUOTES)
