"""A run of `sync` or `upgrade`: the project is read, its ops are settled, and what became of them is said.

In: what was asked for. Out: stdout for what happened, stderr for what is said of it; an exit code.
Invariant: with `--format json` stdout is one JSON object, whatever happens.
"""

from collections.abc import Callable
from typing import NamedTuple

import typer

from scaffold.cli.choices import check_format, check_policy
from scaffold.cli.failing import leave
from scaffold.cli.places import from_here
from scaffold.cli.programs import as_problem, show_object
from scaffold.cli.project import Project, open_project
from scaffold.cli.proofs import Run
from scaffold.cli.report import exit_on_conflict, show_diff, show_notes
from scaffold.cli.settle import undisturbed
from scaffold.cli.survey import Op, survey
from scaffold.cli.syncing import Outcome, carry_out
from scaffold.errors import ScaffoldError, ScaffoldErrors
from scaffold.workspace import Plan, recover
from scaffold.workspace.difference import diff_change

SAID = 20  # notes that are shown one by one


class Asked(NamedTuple):
    """What a user wants of a run."""

    policy: str
    look: bool
    diff: bool
    format: str
    prune: bool = True  # remove files that an op has no more
    template_dirs: tuple[str, ...] = ()
    run: Run | None = None  # None: without
    leave: bool = False  # ops that were edited and are out of date


def bring_up_to_date(
    asked: Asked, *, manifests: tuple[str, ...] = (), ops: tuple[str, ...] = ()
) -> None:
    """Run, say what became of it, and exit with 1 where a conflict is left."""
    say_outcome(asked, lambda: _outcome(asked, manifests, ops))


def say_outcome(asked: Asked, run: Callable[[], Outcome]) -> None:
    """Say what became of a run that writes, and exit with 1 where a conflict is left."""
    check_format(asked.format)
    try:
        outcome = undisturbed(run)
    except ScaffoldError as error:
        show_notes(error.details)
        raise
    (_for_programs if asked.format == "json" else _for_people)(outcome, asked)
    if outcome.left:
        leave(ScaffoldErrors(outcome.left))
    exit_on_conflict(outcome.settled.plan)


def _project(asked: Asked, manifests: tuple[str, ...]) -> Project:
    dirs = asked.template_dirs
    return open_project(manifests, settled=asked.prune, template_dirs=dirs)


def _outcome(asked: Asked, manifests: tuple[str, ...], ops: tuple[str, ...]) -> Outcome:
    policy = check_policy(asked.policy)
    project = _project(asked, manifests)
    undone = () if asked.look else recover(project.root)
    if undone:
        project = _project(asked, manifests)
    found = survey(project, ops)
    unsafe = _uncommitted(project, found) if asked.prune else ()
    outcome = carry_out(
        project,
        found,
        policy,
        write=not asked.look,
        prune=asked.prune,
        run=asked.run,
        leave=asked.leave,
    )
    notes = [*unsafe, *outcome.notes]
    if not ops:
        notes += [
            f"op '{record.op}' is in no manifest any more: scaffold remove {record.op}"
            for record in project.orphans()
        ]
    if not project.configuration.project:
        notes.append("no [tool.scaffold] here: nothing is remembered; scaffold init")
    settled = outcome.settled._replace(undone=undone)
    return outcome._replace(settled=settled, notes=tuple(notes))


def _uncommitted(project: Project, ops: tuple[Op, ...]) -> tuple[str, ...]:
    """A note on edited files that a merge may change and that git could not bring back."""
    paths = [
        path
        for op in ops
        if not op.settled
        for path, known in op.standings.items()
        if known.edited
    ]
    if not paths:
        return ()
    from scaffold.verify.git import uncommitted  # most runs merge nothing

    found = uncommitted(project.root, paths)
    shown = ", ".join(f"'{from_here(project.root, path)}'" for path in found)
    return (f"not committed: {shown}; git could not undo this",) if found else ()


def _for_people(outcome: Outcome, asked: Asked) -> None:
    notes = (*outcome.settled.notes, *outcome.notes)
    show_notes(notes[:SAID])
    if len(notes) > SAID:
        show_notes([f"and {len(notes) - SAID} more"])
    if outcome.settled.refusal:
        raise outcome.settled.refusal
    plan = outcome.settled.plan
    if asked.diff:
        show_diff(plan)
    else:
        _show_changes(plan)
        typer.echo(f"{outcome.counts or 'no ops'} ({_files(outcome.files)})")
    if outcome.settled.obstacle:
        typer.echo(str(outcome.settled.obstacle), err=True)


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _show_changes(plan: Plan) -> None:
    """The files that are not as they were, one line each."""
    changes = [change for change in plan.changes if change.verb != "identical"]
    width = max((len(change.verb) for change in changes), default=0)
    for change in changes:
        line = f"{change.verb:{width}}  {from_here(plan.root, change.path)}\n"
        typer.echo(line.encode(errors="surrogateescape"), nl=False)


def _for_programs(outcome: Outcome, asked: Asked) -> None:
    settled, files = outcome.settled, []
    for change in settled.plan.changes:
        one = {"path": change.path, "verb": change.verb}
        if asked.diff:
            one["diff"] = diff_change(change)
        files.append(one)
    told = {
        "written": settled.written,
        "ops": outcome.verbs,
        "files": files,
        "notes": [*settled.notes, *outcome.notes],
        "problems": [as_problem(item) for item in (*settled.problems, *outcome.left)],
    }
    show_object(told)
    if settled.refusal:
        leave(settled.refusal)
