"""`scaffold upgrade`: bring ops up to date, and keep edits by hand.

In: ops, options. Out: a line for each file. Like `sync`, but an edited file is merged (`workspace/merge.py`), by the policy of
`--on-conflict`. Invariant: everything is written, or nothing.
"""

from typing import Annotated

import typer

from scaffold.cli.options import (
    DIFF,
    DRY_RUN,
    FORMAT,
    ON_CONFLICT,
    OPS,
    PROOF_LIMIT,
    PYTHON,
    TEMPLATE_DIR,
    VERIFY,
    check_format,
    check_policy,
    proofs_wanted,
)

ALL = Annotated[
    bool, typer.Option("--all", help="Every op of the manifest, as without names.")
]


def upgrade(
    ops: OPS = None,
    every: ALL = False,
    on_conflict: ON_CONFLICT = "merge",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    verify: VERIFY = None,
    python: PYTHON = None,
    limit: PROOF_LIMIT = None,
    template_dir: TEMPLATE_DIR = None,
    format_: FORMAT = "text",
) -> None:
    """Bring ops up to date and keep what was edited by hand.

    The edits are merged, three-way. Where both sides changed the same lines, the file gets conflict markers, and the exit code is 1.

    Example: scaffold upgrade linear
    """
    from scaffold.cli.output import TERMINAL, say_outcome
    from scaffold.project.update import Asked, bring_up_to_date

    run = proofs_wanted(python, limit, verify)
    check_format(format_)
    write, dirs = not (dry_run or diff), tuple(template_dir or ())
    asked = Asked(check_policy(on_conflict), write, True, False, run, dirs)
    named = () if every else tuple(ops or ())
    say_outcome(lambda: bring_up_to_date(asked, TERMINAL, ops=named), format_, diff)
