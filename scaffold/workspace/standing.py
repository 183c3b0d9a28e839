"""How a file on disk stands to what was written last.

In: the root, an op, and the record of one of its files. Out: a `Standing`.
Invariant: formatting alone is not an edit; nothing is written.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.files import read_bytes
from scaffold.workspace.merging import has_markers
from scaffold.workspace.normal_form import normal_form
from scaffold.workspace.state import Kept, digest, holds_base, read_base

Condition = Literal["untouched", "reformatted", "edited", "missing", "conflict-markers"]


class Standing(NamedTuple):
    """What became of a file since it was written."""

    condition: Condition
    text: str | None  # what it holds now, where it was worth reading
    lost: bool = False  # the text that was written last is gone, or is another

    @property
    def edited(self) -> bool:
        """Whether overwriting it would lose somebody's work."""
        return self.condition in ("edited", "conflict-markers")


def says_the_same(one: str, other: str) -> bool:
    """Whether two texts differ in their formatting at most."""
    return normal_form(one) == normal_form(other)


def standing(
    root: Path, op: str, kept: Kept, same: Callable[[str, str], bool] = says_the_same
) -> Standing:
    """Compare a file with its record; `same` may know the answer for its text and the recorded one."""
    data = present(root, kept.path)
    if data is None:
        return Standing("missing", None, not holds_base(root, op, kept))
    if digest(data) == kept.text:
        return Standing("untouched", None, not holds_base(root, op, kept, data))
    text = decoded(data, kept.path)
    base = read_base(root, op, kept)
    lost = base is None
    if has_markers(text):
        return Standing("conflict-markers", text, lost)
    if base is not None and same(base, text):
        return Standing("reformatted", text)
    return Standing("edited", text, lost)


def present(root: Path, path: str) -> bytes | None:
    """The content of a file of the project, None where there is none."""
    try:
        return read_bytes(f"{root}/{path}")
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise ScaffoldError(message, Location(path)) from None


def decoded(data: bytes, path: str) -> str:
    """The text of a file, with plain line ends."""
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ScaffoldError("is not UTF-8", Location(path)) from None
