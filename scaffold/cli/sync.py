"""`scaffold sync`: write missing and outdated files; leave edited ones unchanged.

In: manifests, options. Out: a line for each file. `project/survey.py` finds outdated files; `workspace/reconcile.py` decides what
happens to them and to edited ones; `project/update.py` does it. Invariant: everything is written, or nothing.
"""

from typing import Annotated

import typer

from scaffold.cli.options import (
    DIFF,
    DRY_RUN,
    FORMAT,
    PROOF_LIMIT,
    PYTHON,
    TEMPLATE_DIR,
    VERIFY,
    check_format,
    check_policy,
    completing,
    proofs_wanted,
)
from scaffold.workspace.conflicts import POLICIES

MANIFESTS = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MANIFEST...",
        help="Files of ops (default: the configuration's, or ops.toml).",
    ),
]
POLICY = Annotated[
    str | None,
    typer.Option(
        "--on-conflict",
        help="If a file differs: ask, abort, skip, overwrite or merge (default: leave edited ops, ask of others).",
        metavar="POLICY",
        autocompletion=completing(POLICIES),
    ),
]
PROVE = Annotated[
    bool, typer.Option("--prove", help="Prove all ops without a valid proof on record.")
]


def sync(
    manifests: MANIFESTS = None,
    on_conflict: POLICY = None,
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    verify: VERIFY = None,
    prove: PROVE = False,
    python: PYTHON = None,
    limit: PROOF_LIMIT = None,
    template_dir: TEMPLATE_DIR = None,
    format_: FORMAT = "text",
) -> None:
    """Write the files of every op of a manifest, or update them.

    If an op is out of date and was edited, it stays as it is, and the exit code is 1: scaffold upgrade merges the changes into
    it. New and changed Functions are proven first. If a proof fails, nothing is written, and the exit code is 1.

    Example: scaffold sync
    """
    from scaffold.cli.output import TERMINAL, say_outcome
    from scaffold.project.update import Asked, bring_up_to_date

    run = proofs_wanted(python, limit, verify, prove)
    check_format(format_)
    policy = check_policy(on_conflict or "ask")
    leave, dirs = on_conflict is None, tuple(template_dir or ())
    asked = Asked(policy, not (dry_run or diff), False, leave, run, dirs)
    named = tuple(manifests or ())
    say_outcome(
        lambda: bring_up_to_date(asked, TERMINAL, manifests=named), format_, diff
    )
