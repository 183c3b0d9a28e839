"""Source in pieces that stand on their own: top-level functions and classes, each with the lines up to the next.

In: Python source. Out: its pieces. Invariant: pieces that are Python each, two blank lines between them, are the source; where
one is not, as a string or a bracket goes on in the next, the source is one piece.

Most pieces of a test file are the same for many ops, so what is found out of a piece is worth keeping.
"""

import re

BOUNDARY = re.compile(r"\n(?:[ \t]*\n){2,}(?=@|def |class |async def )")
BETWEEN = "\n\n\n"
# What a formatter reads across pieces.
SPANNING = re.compile(r"fmt:|yapf:|\r")
IMPORT = re.compile(r"^(?:import|from) ", re.MULTILINE)


def split(source: str) -> list[str]:
    """The pieces; the first has the imports, as what follows a lone docstring is one blank line away."""
    if SPANNING.search(source):
        return [source]
    first, *rest = BOUNDARY.split(source)
    return [first, *rest] if IMPORT.search(first) else [source]
