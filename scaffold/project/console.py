"""The questions and the progress of a run: an interface that `cli` fills with a terminal; without one nothing is asked or shown.

In: a conflict, how far the work is, a path. Out: an answer; a path as it is best read from the working directory.
Invariant: nothing is printed here. The command line has a console that speaks to a terminal.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.workspace import Ask

Update = Callable[[int], None]  # is told how many are done


class Console:
    """Nobody: answers nothing, and is shown nothing."""

    @property
    def ask(self) -> "Ask | None":
        """What settles a conflict; None where nobody can be asked."""
        return None

    def progress(
        self, total: int, things: str = "files"
    ) -> AbstractContextManager[Update]:
        """Shows how many of many things are done, as long as it is entered."""
        return nullcontext(_ignore)

    def proving(
        self, names: Sequence[str], verb: str = "proving"
    ) -> AbstractContextManager[Update]:
        """Shows which ops are proven, which takes long for each of them."""
        return nullcontext(_ignore)


def _ignore(done: int) -> None:
    """Nobody listens."""


SILENT = Console()


def from_here(root: Path, path: str) -> str:
    """A path below the root as seen from the working directory."""
    return Path(os.path.relpath(root / path)).as_posix()
