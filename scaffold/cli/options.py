"""Shared options of commands, and checks of options with fixed words.

In: the option, the given value and the words. Out: a problem at the option; the completion for a shell.
Invariant: every such option refuses other words in the same way; an option's name means the same in every command.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.workspace.conflicts import POLICIES, Policy

if TYPE_CHECKING:
    from scaffold.project.interpreter import Run

FORMATS = ("text", "json")


def format_help(words: Iterable[str]) -> str:
    """Return the help of --format: its words, with the short form `--json`, as in `text or json (--json).`"""
    *several, last = (f"{word} (--json)" * (word == "json") or word for word in words)
    return f"{', '.join(several)} or {last}."


def format_option(words: Iterable[str]) -> Any:
    """Return the option of a command whose --format takes these words."""
    known, help_ = completing(words), format_help(words)
    return typer.Option("--format", help=help_, metavar="FORMAT", autocompletion=known)


def check_choice(option: str, given: str, words: Iterable[str]) -> list[ScaffoldError]:
    """Return a problem if an option's word is not one of `words`; [] otherwise."""
    known = tuple(words)
    if given in known:
        return []
    hint = did_you_mean(given, known) or f"one of: {', '.join(known)}"
    return [ScaffoldError(f"unknown value '{given}'", Location(option), hint)]


def check_format(given: str, words: Iterable[str] = FORMATS) -> None:
    """Raise a ScaffoldError unless the value of --format is one of `words`."""
    raise_all(check_choice("--format", given, words))


def check_policy(policy: str) -> Policy:
    """Return the policy; raise if the value of --on-conflict is unknown."""
    raise_all(check_choice("--on-conflict", policy, POLICIES))
    return policy  # type: ignore[return-value]


def completing(words: Iterable[str]) -> Callable[[], list[str]]:
    """Return a function with these words, for a shell's completion; Typer keeps the ones with the typed beginning."""
    known = list(words)
    return lambda: known


def offer_ops() -> list[str]:
    """Return the names of the ops of the manifest, for a shell's completion; none if it cannot be read."""
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
FORMAT = Annotated[str, format_option(FORMATS)]


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
    """Return how to run proofs, by the options; None for --no-verify. With `every` (--prove), unchanged ops too.

    `python` is the interpreter, `limit` the seconds for each op. Raise for a bad limit, or --prove with --no-verify.
    """
    from scaffold.project.interpreter import Run, check_limit
    from scaffold.verify.prover import LIMIT

    limit = LIMIT if limit is None else limit
    problems = check_limit(limit)
    # By identity: None is an option that was not given.
    if every and verify is False:
        message = "--prove and --no-verify exclude each other"
        place = Location("--prove")
        problems.append(ScaffoldError(message, place, "keep one of them"))
    raise_all(problems)
    if verify is False:
        return None
    # The option, if typed, that makes a missing PyTorch an error instead of a note.
    insists = "--prove" if every else "--verify" if verify else ""
    return Run(python, limit, every, insists)
