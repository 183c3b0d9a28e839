"""What a Python file says, whatever its formatting.

In: the text of a file. Out: a text, equal for two files iff a formatter could make one of the other.
Invariant: line length, quotes, redundant parentheses, trailing commas, blank lines, line ends, and the order and grouping of
imports are no part of it; comments are, where they stand.
"""

from scaffold.workspace.statements import cut


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
