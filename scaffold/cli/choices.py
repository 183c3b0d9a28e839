"""Words: options that take one of some, ops of the manifest, and what a shell offers for them.

In: the option, what was given and the words. Out: a problem at the option; what a shell completes.
Invariant: every such option refuses another word in the same way.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated

import typer

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.workspace import POLICIES, Policy

FORMATS = ("text", "json")
ON_CONFLICT = ("ask", "abort", "skip", "overwrite", "merge")


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
    from scaffold.cli.project import open_project

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
        help="text or json.",
        metavar="FORMAT",
        autocompletion=completing(FORMATS),
    ),
]
