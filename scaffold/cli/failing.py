"""What a failure looks like to a program: with `--format json`, one JSON object on stdout, whichever the command.

In: a command. Out: the same command. Invariant: what a command raises goes on to whoever prints it for people, so stderr and
the exit code are the same in every format; a command that raises has printed no object of its own.
"""

import functools
import sys
from collections.abc import Callable
from typing import NoReturn

import typer

from scaffold.cli.programs import as_problem, show_object
from scaffold.errors import ScaffoldError


def telling(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which tells programs of what it raises; of an option that is none Typer tells, on stderr alone."""

    @functools.wraps(command)
    def told(*arguments: object, **options: object) -> None:
        try:
            command(*arguments, **options)
        except (ScaffoldError, OSError) as error:
            asked = options.get("format_", options.get("format"))
            if asked == "json" and not _of_output(error):
                _show(as_ours(error))
            raise

    return told


def leave(refusal: ScaffoldError) -> NoReturn:
    """End with a refusal of which programs were told already: people are told, nothing is raised that would be told again."""
    typer.echo(str(refusal), err=True)
    sys.exit(refusal.exit_code)


def as_ours(error: ScaffoldError | OSError) -> ScaffoldError:
    """An error of the system's as one of ours: what the system says, and of which file."""
    if isinstance(error, ScaffoldError):
        return error
    about = "cannot write the output" if _of_output(error) else f"'{error.filename}'"
    return ScaffoldError(f"{about}: {error.strerror or error}")


def _of_output(error: ScaffoldError | OSError) -> bool:
    """Whether it is an output that cannot be written: nothing can be said there."""
    return isinstance(error, OSError) and not error.filename


def _show(error: ScaffoldError) -> None:
    told = {
        "written": False,
        "notes": list(error.details),
        "problems": [as_problem(problem) for problem in error.problems],
    }
    show_object(told)
