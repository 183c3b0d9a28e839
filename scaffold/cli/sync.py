"""`scaffold sync` and `scaffold upgrade`: the files of all ops of a manifest, brought up to date."""

from typing import Annotated

import typer

from scaffold.cli.choices import FORMAT, OPS, completing
from scaffold.cli.choices import ON_CONFLICT as POLICIES
from scaffold.cli.templates import TEMPLATE_DIR
from scaffold.cli.test_stub import DIFF, DRY_RUN
from scaffold.errors import ScaffoldError

MANIFESTS = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MANIFEST...",
        help="Files of ops (default: the configuration's, or ops.toml).",
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
ALL = Annotated[bool, typer.Option("--all", help="Every op of the manifest.")]


def sync(
    manifests: MANIFESTS = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    template_dir: TEMPLATE_DIR = None,
    format_: FORMAT = "text",
) -> None:
    """Write the files of every op of a manifest, or update them.

    A file that was edited and is out of date is a conflict: scaffold upgrade merges the two.

    Example: scaffold sync
    """
    from scaffold.cli.updating import Asked, bring_up_to_date

    look = dry_run or diff
    dirs = tuple(template_dir or ())
    asked = Asked(on_conflict, look, diff, format_, prune=False, template_dirs=dirs)
    bring_up_to_date(asked, manifests=tuple(manifests or ()))


def upgrade(
    ops: OPS = None,
    every: ALL = False,
    on_conflict: ON_CONFLICT = "merge",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    template_dir: TEMPLATE_DIR = None,
    format_: FORMAT = "text",
) -> None:
    """Bring ops up to date and keep what was edited by hand.

    The edits are merged, three-way. Where both sides changed the same lines, the file gets conflict markers, and the exit code is 1.

    Example: scaffold upgrade linear
    """
    from scaffold.cli.updating import Asked, bring_up_to_date

    if not ops and not every:
        message = "which ops to upgrade is not said"
        raise ScaffoldError(message, hint="name them, or say --all")
    look = dry_run or diff
    dirs = tuple(template_dir or ())
    asked = Asked(on_conflict, look, diff, format_, template_dirs=dirs)
    bring_up_to_date(asked, ops=() if every else tuple(ops or ()))
