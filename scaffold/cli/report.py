"""What a command that writes says: one verb a file, notes, the difference, or all of it as JSON.

In: a plan and notes. Out: text for stdout and stderr.
"""

import json
import os
from pathlib import Path

import typer

from scaffold.workspace import Plan

JSON_VERSION = 1


def show_notes(notes: tuple[str, ...]) -> None:
    """Things worth knowing, on stderr."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def show_plan(plan: Plan) -> None:
    """What happens to each file, one line a file."""
    width = max((len(change.verb) for change in plan.changes), default=0)
    for change in plan.changes:
        typer.echo(f"{change.verb:{width}}  {from_here(plan, change.path)}")


def from_here(plan: Plan, path: str) -> str:
    """A path of the plan as seen from the working directory."""
    return Path(os.path.relpath(plan.root / path)).as_posix()


def show_json(plan: Plan, notes: tuple[str, ...], missing: tuple[str, ...]) -> None:
    """The same for programs."""
    files = [
        {"path": from_here(plan, item.path), "verb": item.verb} for item in plan.changes
    ]
    result = {
        "version": JSON_VERSION,
        "files": files,
        "notes": notes,
        "missing": missing,
    }
    typer.echo(json.dumps(result, indent=2))


def show_texts(files: dict[str, str]) -> None:
    """The files themselves; a line names each where there are several."""
    for path, text in files.items():
        if len(files) > 1:
            typer.echo(f"# {path}")
        typer.echo(text, nl=False)
