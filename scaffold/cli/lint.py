"""`scaffold lint`: what is wrong with the Functions of a code base, and with --fix the mended files."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scaffold.cli.choices import check_format, completing
from scaffold.errors import (
    ConflictError,
    Location,
    ScaffoldError,
    did_you_mean,
)

if TYPE_CHECKING:
    from scaffold.lint import Finding

PATHS = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files and directories (default: here)."),
]


def _offer_rules() -> list[str]:
    """What a shell offers for a rule."""
    from scaffold.lint.registry import RULES

    return list(RULES)


SELECT = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        help="Only these rules: AF01,AF02 or ALL.",
        metavar="IDS",
        autocompletion=_offer_rules,
    ),
]
IGNORE = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        help="All rules but these.",
        metavar="IDS",
        autocompletion=_offer_rules,
    ),
]
FIX = Annotated[
    bool, typer.Option("--fix", help="Mend what can be mended (needs libcst).")
]
DIFF = Annotated[
    bool, typer.Option("--diff", help="Show what --fix would do, and write nothing.")
]
STRICT = Annotated[bool, typer.Option("--strict", help="Advice fails too.")]
EXPLAIN = Annotated[
    str | None,
    typer.Option(
        "--explain",
        help="Explain one rule.",
        metavar="ID",
        autocompletion=_offer_rules,
    ),
]
FORMAT = Annotated[
    str,
    typer.Option(
        "--format",
        help="text, json, github or sarif.",
        metavar="FORMAT",
        autocompletion=completing(("text", "json", "github", "sarif")),
    ),
]
BASELINE = Annotated[
    str | None,
    typer.Option("--baseline", help="Leave the findings in it alone.", metavar="FILE"),
]
WRITE_BASELINE = Annotated[
    str | None,
    typer.Option(
        "--write-baseline", help="Write today's findings to it.", metavar="FILE"
    ),
]


def lint(
    paths: PATHS = None,
    select: SELECT = None,
    ignore: IGNORE = None,
    fix: FIX = False,
    diff: DIFF = False,
    strict: STRICT = False,
    explain: EXPLAIN = None,
    format_: FORMAT = "text",
    baseline: BASELINE = None,
    write_baseline: WRITE_BASELINE = None,
) -> None:
    """Find mistakes in hand-written autograd.Functions.

    Errors are certain; advice is worth a look, and fails only with --strict.

    Example: scaffold lint src --ignore AF19
    """
    from scaffold.cli import linting
    from scaffold.lint.formats import FORMATS

    if explain is not None:
        typer.echo(_explanation(explain), nl=False)
        return
    check_format(format_, FORMATS)
    run = linting.run(tuple(paths or ["."]), tuple(select or ()), tuple(ignore or ()))
    if write_baseline is not None:
        linting.keep_baseline(run, write_baseline)
        return
    if baseline is not None:
        run = linting.without_baseline(run, baseline)
    if fix or diff:
        run = linting.mend(run, write=not diff)
    if diff:
        _show_rest(run.findings)
    else:
        _show(format_, run)
    _exit(run.findings, strict)


def _explanation(code: str) -> str:
    from scaffold.lint.formats import explain
    from scaffold.lint.registry import RULES

    rule = RULES.get(code.upper())
    if rule is None:
        hint = did_you_mean(code.upper(), RULES) or "the rules: AF00 to AF35"
        raise ScaffoldError(f"unknown rule '{code}'", Location("--explain"), hint)
    return explain(rule)


def _show(name: str, run: Any) -> None:
    from scaffold.lint.formats import FORMATS

    text = FORMATS[name](run.findings, run.unread)
    typer.echo(text.encode(errors="surrogateescape"), nl=False)


def _show_rest(findings: "tuple[Finding, ...]") -> None:
    """What the difference on stdout does not tell: nothing was mended, and some of it cannot be."""
    mended = sum(bool(finding.edits) for finding in findings)
    if findings:
        many = f"{len(findings)} finding{'s' * (len(findings) != 1)}"
        typer.echo(f"note: {many}, of which --fix mends {mended}", err=True)


def _exit(findings: "tuple[Finding, ...]", strict: bool) -> None:
    if any(strict or finding.level == "error" for finding in findings):
        sys.exit(ConflictError.exit_code)
