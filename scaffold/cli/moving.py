"""`scaffold remove` and `scaffold rename`: ops that leave a project, or go by another name."""

from typing import Annotated

import typer

from scaffold.cli.choices import FORMAT, offer_ops
from scaffold.cli.test_stub import DIFF, DRY_RUN

OPS = Annotated[
    list[str],
    typer.Argument(
        metavar="OP...", help="Ops of the project.", autocompletion=offer_ops
    ),
]
OP = Annotated[
    str,
    typer.Argument(
        metavar="OP", help="An op of the project.", autocompletion=offer_ops
    ),
]
NEW = Annotated[str, typer.Argument(metavar="NEW", help="What it is called from now.")]
FORCE = Annotated[bool, typer.Option("--force", help="Remove edited files too.")]


def remove(
    ops: OPS,
    force: FORCE = False,
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    format_: FORMAT = "text",
) -> None:
    """Remove ops: their files, their tables, their records.

    A file that was edited stops the run: nothing is removed, and the exit code is 1.

    Example: scaffold remove linear
    """
    from scaffold.cli.removing import remove_ops
    from scaffold.cli.updating import Asked, say_outcome

    look = dry_run or diff
    asked = Asked("abort", look=look, diff=diff, format=format_)
    say_outcome(asked, lambda: remove_ops(tuple(ops), force=force, write=not look))


def rename(
    op: OP,
    new: NEW,
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    format_: FORMAT = "text",
) -> None:
    """Call an op otherwise: its files, its table, the names in them.

    What was edited by hand is kept, with the names in it changed. Where that collides with what is generated now, the
    file gets conflict markers, and the exit code is 1.

    Example: scaffold rename linear dense
    """
    from scaffold.cli.renaming import rename_op
    from scaffold.cli.updating import Asked, say_outcome

    look = dry_run or diff
    asked = Asked("merge", look=look, diff=diff, format=format_)
    say_outcome(asked, lambda: rename_op(op, new, write=not look))
