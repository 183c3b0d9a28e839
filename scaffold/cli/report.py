"""What a command that writes says: one verb a file, notes, the difference, or all of it as JSON.

In: what was generated and what became of it. Out: stdout for what was asked for, stderr for what is said of it.
Invariant: with `--format json` stdout is one JSON object, whatever became of the run.
"""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from scaffold.cli.places import from_here
from scaffold.cli.programs import as_problem, show_object
from scaffold.cli.settle import Settled
from scaffold.errors import ConflictError, ScaffoldError
from scaffold.workspace import Plan, diff
from scaffold.workspace.difference import diff_change

if TYPE_CHECKING:
    from scaffold.cli.generate import Generated


def show_notes(notes: Iterable[str]) -> None:
    """Things worth knowing, on stderr."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def show_plan(plan: Plan) -> None:
    """What happens to each file, one line a file."""
    width = max((len(change.verb) for change in plan.changes), default=0)
    for change in plan.changes:
        _print(f"{change.verb:{width}}  {from_here(plan.root, change.path)}\n")


def show_diff(plan: Plan) -> None:
    """The difference, as `git apply` takes it in the root."""
    _print(diff(plan))


def show_texts(generated: "Generated") -> None:
    """The files themselves; a line names each where there are several."""
    for path, text in generated.files.items():
        header = f"# {from_here(generated.root, path)}\n"
        _print(header + text if len(generated.files) > 1 else text)


def _print(text: str) -> None:
    """Write to stdout as to a file: UTF-8 whatever the locale, odd bytes of a path as they are."""
    typer.echo(text.encode(errors="surrogateescape"), nl=False)


def tell(settled: Settled, *, with_diff: bool) -> None:
    """What became of each file, for people; a refusal is raised, a conflict that is left ends with 1."""
    show_notes(settled.notes)
    if settled.refusal:
        raise settled.refusal
    (show_diff if with_diff else show_plan)(settled.plan)
    exit_on_conflict(settled.plan)


def exit_on_conflict(plan: Plan) -> None:
    """End with 1 where a conflict is left."""
    if plan.conflicts:
        sys.exit(ConflictError.exit_code)


def show_settled(generated: "Generated", settled: Settled, with_diff: bool) -> None:
    """What became of each file, for programs."""
    files: list[dict[str, Any]] = []
    for change in settled.plan.changes:
        path = from_here(settled.plan.root, change.path)
        one: dict[str, Any] = {"path": path, "verb": change.verb}
        if change.conflicts:
            one["conflicts"] = change.conflicts
        if with_diff:
            one["diff"] = diff_change(change)
        files.append(one)
    notes = (*generated.notes, *settled.notes)
    _show_json(files, settled.written, generated.missing, notes, settled.problems)


def show_files(generated: "Generated") -> None:
    """The files themselves, for programs."""
    files = [
        {"path": from_here(generated.root, path), "text": text}
        for path, text in generated.files.items()
    ]
    _show_json(files, False, generated.missing, generated.notes)


def _show_json(
    files: list[dict[str, Any]],
    written: bool,
    missing: Iterable[str],
    notes: Iterable[str],
    problems: Iterable[ScaffoldError] = (),
) -> None:
    show_object(
        {
            "written": written,
            "files": files,
            "missing": list(missing),
            "notes": list(notes),
            "problems": [as_problem(problem) for problem in problems],
        }
    )
