"""`scaffold test-stub`: gradient tests for Functions that are there already."""

from typing import Annotated

import typer

from scaffold.cli.choices import ON_CONFLICT as POLICIES
from scaffold.cli.choices import completing

PATHS = Annotated[
    list[str],
    typer.Argument(metavar="PATH[::CLASS]...", help="Files, directories, Functions."),
]
OUT_DIR = Annotated[
    str | None,
    typer.Option(
        "--out-dir",
        help="Where the tests go (default: the project's tests, else here).",
        metavar="DIR",
    ),
]
ON_CONFLICT = Annotated[
    str,
    typer.Option(
        "--on-conflict",
        help="If a file differs: ask, abort, skip, overwrite or merge.",
        metavar="POLICY",
        autocompletion=completing(POLICIES),
    ),
]
DRY_RUN = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be written, write nothing.")
]
DIFF = Annotated[
    bool, typer.Option("--diff", help="Show the difference, write nothing.")
]
STDOUT = Annotated[
    bool, typer.Option("--stdout", help="Print the tests, write nothing.")
]


def test_stub(
    paths: PATHS,
    out_dir: OUT_DIR = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    stdout: STDOUT = False,
) -> None:
    """Write gradcheck tests for hand-written autograd.Functions.

    What their text does not tell is left open: such a test is skipped, and says what it needs.

    Example: scaffold test-stub src/ops.py::ScaleFunction
    """
    from scaffold.cli import stubbing
    from scaffold.cli.choices import check_policy
    from scaffold.cli.existing import put
    from scaffold.cli.report import show_notes

    check_policy(on_conflict)
    stubs = stubbing.stubs_for(tuple(paths), out_dir)
    show_notes(stubs.notes)
    put(stubs.files, stubs.root, on_conflict, dry_run=dry_run, diff=diff, stdout=stdout)
