"""`scaffold adopt`: the specification of a Function that was written by hand."""

from typing import Annotated

import typer

from scaffold.cli.test_stub import DIFF, DRY_RUN, ON_CONFLICT, OUT_DIR, STDOUT

TARGET = Annotated[
    str, typer.Argument(metavar="PATH::CLASS", help="The Function to adopt.")
]


def adopt(
    target: TARGET,
    out_dir: OUT_DIR = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    stdout: STDOUT = False,
) -> None:
    """Write the specification of a hand-written Function, as TOML.

    Its forward and backward become formulas. What formulas have no words for is an error that names the line.

    Example: scaffold adopt src/ops.py::ScaleFunction
    """
    from scaffold.cli.adopting import adopted
    from scaffold.cli.choices import check_policy
    from scaffold.cli.existing import put
    from scaffold.cli.report import show_notes

    check_policy(on_conflict)
    found = adopted(target, out_dir)
    show_notes(found.notes)
    put(
        *(found.files, found.root, on_conflict),
        dry_run=dry_run,
        diff=diff,
        stdout=stdout,
    )
