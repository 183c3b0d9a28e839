"""Questions and progress of a run: an interface implemented by `cli` for a terminal; the default is silent.

Services below `cli` may neither print nor ask; a command hands them its console.
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
    """The silent console, for tests, notebooks and the API: it answers no question and shows nothing. `cli.terminal` has one that does."""

    @property
    def ask(self) -> "Ask | None":
        """Return the function to settle a conflict; None if nobody can be asked."""
        return None

    def progress(
        self, total: int, things: str = "files"
    ) -> AbstractContextManager[Update]:
        """Return a context to work in: it gives a function that shows how many of `total` things are done."""
        return nullcontext(_ignore)

    def proving(
        self, names: Sequence[str], verb: str = "proving"
    ) -> AbstractContextManager[Update]:
        """Return a context to prove ops in, showing their names, as each takes long: it gives a function to show how many are done."""
        return nullcontext(_ignore)


def _ignore(done: int) -> None:
    """Ignore the progress."""


SILENT = Console()


def from_here(root: Path, path: str) -> str:
    """Return a path below the root as the user would type it, relative to the working directory: for messages."""
    return Path(os.path.relpath(root / path)).as_posix()
