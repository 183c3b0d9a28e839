"""The formatter behind one function.

In: Python source and the length of a line. Out: the same code as black writes it.
Invariant: text in, text out; formatting piece by piece gives, byte for byte, what formatting the whole gives.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from scaffold.render.folding import fold
from scaffold.render.pieces import BETWEEN, split

KEPT = 1024  # pieces: those that ops share, and those of the last hundred ops

# {path: text}, the length of a line -> the same texts, formatted
Formatter = Callable[[Mapping[str, str], int], dict[str, str]]


def format_files(files: Mapping[str, str], line_length: int) -> dict[str, str]:
    """The texts of files as black writes them."""
    return {path: format_source(text, line_length) for path, text in files.items()}


def format_source(source: str, line_length: int = 88) -> str:
    """Python source as black writes it."""
    from black.parsing import InvalidInput  # what renders nothing does without

    pieces = split(source)
    try:
        formatted = [_formatted(piece, line_length) for piece in pieces]
    except InvalidInput:
        formatted = [_formatted(source, line_length)]
    return BETWEEN.join(text.removesuffix("\n") for text in formatted) + "\n"


@lru_cache(maxsize=KEPT)
def _formatted(piece: str, line_length: int) -> str:
    import black
    from black.mode import TargetVersion

    mode = black.Mode(target_versions={TargetVersion.PY311}, line_length=line_length)
    folded = fold(piece.rstrip("\n"), line_length)
    return black.format_str(folded + "\n", mode=mode)  # a change costs a second pass
