"""`scaffold check`: compare the files with manifest, templates and configuration.

In CI it fails a commit that changed the manifest and not the files, or a file and not its proof.

Words: the *status* of a file says how it differs: edited, stale, missing, ...; it *passes* if the exit code may be 0.

In: ops. Out: a line for each differing file, with `--diff` the difference; hints on stderr; an exit code. The status of a file
is found by `project/file_status.py`. Invariant: nothing is written.
"""

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.cli.options import OPS, TEMPLATE_DIR, check_format, format_option
from scaffold.cli.output import say_hint, show_object
from scaffold.cli.terminal import has_colours, verb
from scaffold.errors import ConflictError
from scaffold.project.console import from_here

if TYPE_CHECKING:
    from scaffold.project.file_status import Checked, Status
    from scaffold.project.project import Project


STRICT = Annotated[bool, typer.Option("--strict", help="Edited files fail too.")]
DIFF = Annotated[bool, typer.Option("--diff", help="Show what differs.")]
FORMATS = ("text", "json", "github")
FORMAT = Annotated[str, format_option(FORMATS)]


def check(
    ops: OPS = None,
    strict: STRICT = False,
    diff: DIFF = False,
    template_dir: TEMPLATE_DIR = None,
    format_: FORMAT = "text",
) -> None:
    """Check that the files are up to date with the manifest.

    The state of a file is ok, edited, stale (the manifest, a template or the configuration changed), missing, orphaned,
    interrupted, conflict-markers, or lost (it has no record in .scaffold/). A Function without a valid proof on record is
    unproven, or unprovable if a gradient is not written yet; with require = ["proof"] in the configuration, this is a
    failure. Exit code 1: a file is neither ok nor edited, or with --strict not ok. Nothing is written.

    Example: scaffold check --diff
    """
    from scaffold.cli.output import TERMINAL
    from scaffold.project.file_status import check_project
    from scaffold.project.project import open_project

    check_format(format_, FORMATS)
    project = open_project(settled=True, template_dirs=template_dir or ())
    found = check_project(project, ops or (), TERMINAL, formatted=diff)
    {"text": _text, "json": _json, "github": _github}[format_](project, found, diff)
    passing = _passing(project, strict)
    if any(item.status not in passing for item in found):
        sys.exit(ConflictError.exit_code)


def _passing(project: "Project", strict: bool = False) -> "frozenset[Status]":
    """Return the statuses that let the command exit with 0.

    Unproven ops fail if the configuration requires proofs, edited files if it is `strict` (--strict).
    """
    from scaffold.project.file_status import PASSING, PROOF
    from scaffold.spec import requirements

    asked = requirements.PROOF in project.configuration.require
    passing = PASSING - PROOF if asked else PASSING
    return passing - {"edited"} if strict else passing


def _text(project: "Project", found: "tuple[Checked, ...]", diff: bool) -> None:
    """Print each file that is not ok with its reason, with `diff` the differences, then counts; and on stderr each hint once.

    Hints to remove a file come first, hints about proofs last.
    """
    from scaffold.project.file_status import PROOF, STATUSES, difference

    told = [item for item in found if item.status != "ok"]
    width = max((len(item.status) for item in told), default=0)
    for item in told:
        reason = f": {item.reason}" if item.reason else ""
        status = verb(item.status, width, sys.stdout)
        text = f"{status}  {from_here(project.root, item.path)}{reason}"
        typer.echo(text, color=has_colours(sys.stdout) or None)
    if diff:
        typer.echo("".join(difference(project, item) for item in told), nl=False)
    counted = Counter(item.status for item in found)
    counts = ", ".join(
        f"{counted[status]} {status}" for status in STATUSES if counted[status]
    )
    typer.echo(counts or "no ops")
    # False before True: hints about proofs come last, and of the others those to remove a file first.
    told.sort(key=lambda item: (item.status in PROOF, item.hint[:3] != "rm "))
    for hint in dict.fromkeys(item.hint for item in told if item.hint):
        say_hint(hint)


def _json(project: "Project", found: "tuple[Checked, ...]", diff: bool) -> None:
    """Print the status of each file as JSON."""
    from scaffold.project.file_status import difference

    files = []
    for item in found:
        one = {
            "path": from_here(project.root, item.path),
            "op": item.op,
            "status": item.status,
            "reason": item.reason,
            "hint": item.hint,
        }
        if diff:
            one["diff"] = difference(project, item)
        files.append(one)
    show_object({"files": files})


def _github(project: "Project", found: "tuple[Checked, ...]", diff: bool) -> None:
    """Print an annotation for GitHub for each file not ok: a warning if its status passes, else an error."""
    from scaffold.annotations import Level, annotation

    passing = _passing(project)
    for item in found:
        if item.status != "ok":
            level: Level = "warning" if item.status in passing else "error"
            said = f"{item.status}: {item.reason}" if item.reason else item.status
            said = f"{said} ({item.hint})" if item.hint else said
            typer.echo(
                annotation(level, from_here(project.root, item.path), 1, 1, said)
            )
