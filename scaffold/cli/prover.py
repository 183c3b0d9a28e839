"""The process that proves what a command writes.

In: the options `--python` and `--limit`. Out: verdicts; what is wrong with the options.
Invariant: nothing is looked for and no process is started before it is asked for; none is left when the command ends.
"""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import typer

from scaffold.cli.interpreter import (
    ANOTHER,
    NONE_FOUND,
    Interpreter,
    find_interpreter,
)
from scaffold.cli.options import Values
from scaffold.errors import Location, ScaffoldError

if TYPE_CHECKING:
    from scaffold.verify import Prover, Request, Verdict

LIMIT = 30  # seconds for the proof of an op


class Proving:
    """An interpreter that has torch, and a process of it; both are there when they are needed."""

    def __init__(self, settings: Values) -> None:
        self._python: str | None = settings.get("python")
        self._limit: int = settings.get("limit", LIMIT)
        self._asked = bool(settings.get("verify"))
        self._prover: Prover | None = None

    @cached_property
    def interpreter(self) -> Interpreter | None:
        """The one that runs the proof; None where none has torch."""
        return find_interpreter(self._python)

    def start(self) -> list[ScaffoldError]:
        """Let torch be imported while the op is still being made; what stands in the way."""
        found = check_limit(self._limit)
        try:
            missing = self.interpreter is None
        except ScaffoldError as error:
            return [*found, *error.problems]
        if missing and self._asked:
            place = Location("--verify")
            found.append(ScaffoldError(NONE_FOUND, place, ANOTHER))
        if not found and not missing:
            self._started().start()
        return found

    def prove(self, name: str, request: "Request") -> "Verdict":
        """The verdict on an op."""
        with _progress(name):
            return self._started().prove(request)

    def _started(self) -> "Prover":
        from scaffold.verify import Prover

        assert self.interpreter is not None, "nothing is proven without"
        if self._prover is None:
            self._prover = Prover(self.interpreter.path, self._limit)
        return self._prover

    def close(self) -> None:
        """End the process, if there is one."""
        if self._prover is not None:
            self._prover.close()


def check_limit(limit: int) -> list[ScaffoldError]:
    """The problem with a number of seconds, if it is none."""
    if limit >= 1:
        return []
    message = f"'{limit}' is no number of seconds"
    return [ScaffoldError(message, Location("--limit"))]


@contextmanager
def proving(settings: Values) -> "Iterator[Proving]":
    """What a command proves with that has these options."""
    with closing(Proving(settings)) as found:
        yield found


@contextmanager
def _progress(name: str) -> Iterator[None]:
    """Say on a terminal what takes so long, for as long as it does."""
    shown = bool(sys.stderr and sys.stderr.isatty())
    if shown:
        typer.echo(f"verifying {name} ...", nl=False, err=True)
    try:
        yield
    finally:
        if shown:
            typer.echo("\r\x1b[K", nl=False, err=True)
