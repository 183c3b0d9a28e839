"""`scaffold sync` and `scaffold upgrade`: the files of all ops of a manifest, brought up to date."""

from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.cli.choices import FORMAT, OPS, completing
from scaffold.cli.choices import ON_CONFLICT as POLICIES
from scaffold.cli.prover import LIMIT as PROOF_LIMIT
from scaffold.cli.templates import TEMPLATE_DIR
from scaffold.cli.test_stub import DIFF, DRY_RUN
from scaffold.cli.verify import PYTHON
from scaffold.errors import Location, ScaffoldError, raise_all

if TYPE_CHECKING:
    from scaffold.cli.proofs import Run

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
POLICY = Annotated[
    str | None,
    typer.Option(
        "--on-conflict",
        help="If a file differs: ask, abort, skip, overwrite or merge (default: leave edited ops, ask of others).",
        metavar="POLICY",
        autocompletion=completing(POLICIES),
    ),
]
ALL = Annotated[
    bool, typer.Option("--all", help="Every op of the manifest, as without names.")
]
VERIFY = Annotated[
    bool | None,
    typer.Option(
        "--verify/--no-verify",
        help="Prove the ops whose Function changes before anything is written (on).",
        show_default=False,
    ),
]
LIMIT = Annotated[
    int,
    typer.Option(
        "--limit",
        help="Seconds for the proof of an op (default: 30).",
        metavar="SECONDS",
        show_default=False,
    ),
]
PROVE = Annotated[
    bool, typer.Option("--prove", help="Prove also what has no valid proof on record.")
]


def sync(
    manifests: MANIFESTS = None,
    on_conflict: POLICY = None,
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    verify: VERIFY = None,
    prove: PROVE = False,
    python: PYTHON = None,
    limit: LIMIT = PROOF_LIMIT,
    template_dir: TEMPLATE_DIR = None,
    format_: FORMAT = "text",
) -> None:
    """Write the files of every op of a manifest, or update them.

    An op that was edited and is out of date is left as it is: scaffold upgrade merges the two; exit code 1. Ops whose Function
    changes are proven before anything is written, in processes with PyTorch: if one fails, nothing is, and the exit code is 1.

    Example: scaffold sync
    """
    from scaffold.cli.updating import Asked, bring_up_to_date

    look = dry_run or diff
    dirs = tuple(template_dir or ())
    run = _run(python, limit, verify, prove)
    leave, policy = on_conflict is None, on_conflict or "ask"
    asked = Asked(policy, look, diff, format_, False, dirs, run, leave)
    bring_up_to_date(asked, manifests=tuple(manifests or ()))


def upgrade(
    ops: OPS = None,
    every: ALL = False,
    on_conflict: ON_CONFLICT = "merge",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    verify: VERIFY = None,
    python: PYTHON = None,
    limit: LIMIT = PROOF_LIMIT,
    template_dir: TEMPLATE_DIR = None,
    format_: FORMAT = "text",
) -> None:
    """Bring ops up to date and keep what was edited by hand.

    The edits are merged, three-way. Where both sides changed the same lines, the file gets conflict markers, and the exit code is 1.

    Example: scaffold upgrade linear
    """
    from scaffold.cli.updating import Asked, bring_up_to_date

    look = dry_run or diff
    dirs = tuple(template_dir or ())
    run = _run(python, limit, verify)
    asked = Asked(on_conflict, look, diff, format_, True, dirs, run)
    bring_up_to_date(asked, ops=() if every else tuple(ops or ()))


def _run(
    python: str | None, limit: int, verify: bool | None, every: bool = False
) -> "Run | None":
    """How proofs are run; None where there are to be none."""
    from scaffold.cli.proofs import Run
    from scaffold.cli.prover import check_limit

    problems = check_limit(limit)
    if every and verify is False:
        message = "--prove proves, --no-verify does without"
        place = Location("--prove")
        problems.append(ScaffoldError(message, place, "keep one of them"))
    raise_all(problems)
    if verify is False:
        return None
    insists = "--prove" if every else "--verify" if verify else ""
    return Run(python, limit, every, insists)
