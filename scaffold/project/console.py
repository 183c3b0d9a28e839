"""Questions and progress of a run: an interface implemented by `cli` for a terminal; the default is silent.

In: a conflict, the progress of the work, a path. Out: an answer; a path relative to the working directory.
Invariant: nothing is printed here. The command line has a console for a terminal.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.workspace import Ask

Update = Callable[[int], None]  # takes the number done


class Console:
    """The silent console: it answers no question and shows nothing."""

    @property
    def ask(self) -> "Ask | None":
        """Return the function to settle a conflict; None if nobody can be asked."""
        return None

    def progress(
        self, total: int, things: str = "files"
    ) -> AbstractContextManager[Update]:
        """Show the number of finished things while the context is entered."""
        return nullcontext(_ignore)

    def proving(
        self, names: Sequence[str], verb: str = "proving"
    ) -> AbstractContextManager[Update]:
        """Show the ops being proven, which takes long for each of them."""
        return nullcontext(_ignore)


def _ignore(done: int) -> None:
    """Ignore the progress."""


SILENT = Console()


def from_here(root: Path, path: str) -> str:
    """Return a path below the root, relative to the working directory."""
    return Path(os.path.relpath(root / path)).as_posix()
