"""The options that several commands share, and the words that an option takes, where it takes one of some.

In: the option, what was given and the words. Out: a problem at the option; what a shell completes.
Invariant: every such option refuses another word in the same way; an option of one name means the same for every command.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.workspace.conflicts import POLICIES, Policy

if TYPE_CHECKING:
    from scaffold.project.interpreter import Run

FORMATS = ("text", "json")


def check_choice(option: str, given: str, words: Iterable[str]) -> list[ScaffoldError]:
    """The problem with a word that is none of those, if it is one."""
    known = tuple(words)
    if given in known:
        return []
    hint = did_you_mean(given, known) or f"one of: {', '.join(known)}"
    return [ScaffoldError(f"unknown value '{given}'", Location(option), hint)]


def check_format(given: str, words: Iterable[str] = FORMATS) -> None:
    """Refuse a value of --format that is none of those."""
    raise_all(check_choice("--format", given, words))


def check_policy(policy: str) -> Policy:
    """The policy of that name; a value of --on-conflict that is none is refused."""
    raise_all(check_choice("--on-conflict", policy, POLICIES))
    return policy  # type: ignore[return-value]


def completing(words: Iterable[str]) -> Callable[[], list[str]]:
    """What a shell offers; Typer keeps those that begin as what was typed."""
    known = list(words)
    return lambda: known


def offer_ops() -> list[str]:
    """What a shell offers for an op of the manifest; nothing where that cannot be read."""
    from scaffold.project.project import open_project

    with suppress(ScaffoldError):
        return list(open_project().listed)
    return []


OPS = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OP...",
        help="Ops of the manifest (default: all).",
        autocompletion=offer_ops,
    ),
]
FORMAT = Annotated[
    str,
    typer.Option(
        "--format",
        help="text or json (--json).",
        metavar="FORMAT",
        autocompletion=completing(FORMATS),
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
TEMPLATE_DIR = Annotated[
    list[str] | None,
    typer.Option(
        "--template-dir",
        help="Templates of yours, before those of the configuration.",
        metavar="DIR",
    ),
]
PYTHON = Annotated[
    str | None,
    typer.Option(
        "--python",
        help="The interpreter that has PyTorch (default: one that has it, from here up).",
        metavar="PATH",
    ),
]
PROOF_LIMIT = Annotated[
    int | None,
    typer.Option(
        "--limit",
        help="Seconds for the proof of an op (default: 30).",
        metavar="SECONDS",
        show_default=False,
    ),
]
VERIFY = Annotated[
    bool | None,
    typer.Option(
        "--verify/--no-verify",
        help="Prove the ops whose Function changes before anything is written (on).",
        show_default=False,
    ),
]


def proofs_wanted(
    python: str | None, limit: int | None, verify: bool | None, every: bool = False
) -> "Run | None":
    """How proofs are run; None where there are to be none."""
    from scaffold.project.interpreter import Run, check_limit
    from scaffold.verify.prover import LIMIT

    limit = LIMIT if limit is None else limit
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
