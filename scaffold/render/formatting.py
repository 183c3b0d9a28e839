"""The formatter behind one function.

In: Python source and the length of a line. Out: the same code as black writes it.
Invariant: text in, text out; formatting piece by piece gives, byte for byte, what formatting the whole gives.
"""

import ast
from collections.abc import Callable, Mapping
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from scaffold.render.folding import fold
from scaffold.render.pieces import BETWEEN, BOUNDARY, split

if TYPE_CHECKING:
    from black.mode import Mode

ALONE = 2  # files: a run that writes one op has no piece twice, and looks for none
MOST = 1024  # pieces: those that ops share, and those of the last hundred ops

# {path: text}, the length of a line -> the same texts, formatted
Formatter = Callable[[Mapping[str, str], int], dict[str, str]]


def format_files(files: Mapping[str, str], line_length: int) -> dict[str, str]:
    """The texts of files as black writes them."""
    return {path: format_source(text, line_length) for path, text in files.items()}


def format_source(source: str, line_length: int = 88) -> str:
    """Python source as black writes it."""
    pieces = split(source) if next(_COUNT) >= ALONE else [source]
    new = [
        piece for piece in dict.fromkeys(pieces) if (piece, line_length) not in _KEPT
    ]
    if len(pieces) == 1 or not all(map(_is_python, new)):
        return _black(source, line_length)
    found = {piece: _KEPT.pop((piece, line_length)) for piece in {*pieces} - {*new}}
    found |= zip(new, _formatted(new, line_length), strict=True)
    for piece, text in found.items():
        _keep(piece, line_length, text)
    return BETWEEN.join(found[piece] for piece in pieces) + "\n"


def _formatted(pieces: list[str], line_length: int) -> list[str]:
    """The pieces, formatted together: every call of black costs half a millisecond."""
    if not pieces:
        return []
    parts = BOUNDARY.split(_black(BETWEEN.join(pieces), line_length))
    if len(parts) != len(pieces):  # where a piece of a piece looks like another
        parts = [_black(piece, line_length) for piece in pieces]
    return [part.strip("\n") for part in parts]


_COUNT = count()  # files that were formatted
# What became of a piece by its length of lines; the one that was used last is last.
_KEPT: dict[tuple[str, int], str] = {}


def _keep(piece: str, line_length: int, text: str) -> None:
    _KEPT[piece, line_length] = text
    if len(_KEPT) > MOST:
        del _KEPT[next(iter(_KEPT))]


def _is_python(piece: str) -> bool:
    """Whether a piece stands on its own; else a string or a bracket goes on in the next."""
    try:
        ast.parse(piece)
    except (SyntaxError, ValueError):
        return False
    return True


def _black(source: str, line_length: int) -> str:
    import black  # what renders nothing does without

    folded = fold(source.rstrip("\n"), line_length) + "\n"
    return black.format_str(folded, mode=_mode(line_length))  # a change: a second pass


@cache
def _mode(line_length: int) -> "Mode":
    """How black formats; one for all files."""
    from black.mode import Mode, TargetVersion

    return Mode(target_versions={TargetVersion.PY311}, line_length=line_length)
