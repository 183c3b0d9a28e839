"""`scaffold init`: make a directory a project.

In: a directory and options. Out: files, through a plan. Invariant: what is there stays; a second run changes nothing.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.cli.choices import ON_CONFLICT, check_choice, completing
from scaffold.errors import Location, ScaffoldError, raise_all

if TYPE_CHECKING:
    from scaffold.cli.settle import Settled
    from scaffold.cli.starting import Start

CI = ("github", "none")
DIRECTORY = Annotated[
    str, typer.Argument(metavar="DIR", help="The project (default: here).")
]
SOURCE = Annotated[
    str | None,
    typer.Option(
        "--source", help="Where ops go (default: from the tree).", metavar="DIR"
    ),
]
TESTS = Annotated[
    str | None,
    typer.Option(
        "--tests", help="Where tests go (default: from the tree).", metavar="DIR"
    ),
]
PACKAGE = Annotated[
    str | None,
    typer.Option(
        "--package",
        help="The import path of the source (default: from the tree).",
        metavar="NAME",
    ),
]
SYSTEM = Annotated[
    str | None,
    typer.Option(
        "--ci",
        help="github or none (default: github if there is a .github).",
        metavar="SYSTEM",
        autocompletion=completing(CI),
    ),
]
POLICY = Annotated[
    str,
    typer.Option(
        "--on-conflict",
        help="If a file differs: ask, abort, skip, overwrite or merge.",
        metavar="POLICY",
        autocompletion=completing(ON_CONFLICT),
    ),
]
DRY_RUN = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be written, write nothing.")
]
DIFF = Annotated[
    bool, typer.Option("--diff", help="Show the difference, write nothing.")
]


def init(
    directory: DIRECTORY = ".",
    source: SOURCE = None,
    tests: TESTS = None,
    package: PACKAGE = None,
    ci: SYSTEM = None,
    on_conflict: POLICY = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
) -> None:
    """Make a directory a project.

    It gets a [tool.scaffold], an empty manifest, its JSON Schema and, with --ci, a job for CI.
    What is there stays as it is.

    Example: scaffold init --source src/myops --tests tests
    """
    from scaffold.cli.report import show_notes, tell
    from scaffold.cli.settle import Known, look, undisturbed, write_once
    from scaffold.cli.starting import start_project

    stated = {"source": source, "tests": tests, "package": package}
    given = {key: value for key, value in stated.items() if value is not None}
    raise_all(_problems(directory, on_conflict, ci))
    root = Path(os.path.abspath(directory))
    settle = look if dry_run or diff else write_once

    def attempt() -> "tuple[Start, Settled]":
        start = start_project(root, given, ci)
        known = Known(start.changed, start.kept, start.reads)
        return start, settle(start.files, root, on_conflict, known)  # type: ignore[arg-type]

    start, settled = undisturbed(attempt)
    show_notes(start.notes)
    tell(settled, with_diff=diff)


def _problems(directory: str, policy: str, ci: str | None) -> list[ScaffoldError]:
    found = check_choice("--on-conflict", policy, ON_CONFLICT)
    if ci is not None:
        found += check_choice("--ci", ci, CI)
    if not os.path.isdir(directory):
        message = f"'{directory}' is not a directory"
        found.append(ScaffoldError(message, Location("DIR")))
    return found
