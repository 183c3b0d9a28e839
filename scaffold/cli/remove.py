"""`scaffold remove`: remove ops from a project: their files, records, and manifest tables.

Words: a *record* is what .scaffold/ keeps of the files written for an op; an *objection* is a reason not to remove a file without
--force; `shared` are files of several ops, as the helpers of their tests.

In: the names of ops in a manifest, or only on record. Out: an `Outcome`.
Invariant: everything is removed or nothing; an edited file only with --force, a file not written by scaffold never.
"""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer

from scaffold.cli.options import DIFF, DRY_RUN, FORMAT, check_format, offer_ops
from scaffold.cli.output import say_outcome
from scaffold.errors import (
    ConflictError,
    Location,
    ScaffoldError,
    did_you_mean,
    raise_all,
)
from scaffold.project.console import from_here
from scaffold.project.exports import exports_of
from scaffold.project.manifest_edits import without
from scaffold.project.op_testing import kept_in_step
from scaffold.project.project import Project, open_project
from scaffold.project.survey import survey
from scaffold.project.update import Outcome, weigh, with_state
from scaffold.project.writing import Settled
from scaffold.workspace import apply, plan, recover
from scaffold.workspace.reconcile import standing
from scaffold.workspace.records import Record, state_paths

OPS = Annotated[
    list[str],
    typer.Argument(
        metavar="OP...", help="Ops of the project.", autocompletion=offer_ops
    ),
]
FORCE = Annotated[bool, typer.Option("--force", help="Remove edited files too.")]


def remove(
    ops: OPS,
    force: FORCE = False,
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    format_: FORMAT = "text",
) -> None:
    """Remove ops: their files, records and entries in the manifest.

    If a file was edited, nothing is removed, and the exit code is 1.

    Example: scaffold remove linear
    """
    check_format(format_)
    write = not (dry_run or diff)
    say_outcome(lambda: remove_ops(tuple(ops), force=force, write=write), format_, diff)


class _File(NamedTuple):
    """A file to remove, and an objection, if any."""

    op: str
    path: str
    objection: str = ""


def remove_ops(names: tuple[str, ...], *, force: bool, write: bool) -> Outcome:
    """Remove the ops, or without `write` only plan it, and return the outcome; raise an error if a file was edited, unless `force`.

    Exports and shared files are brought up to date without them. A run that was interrupted before is undone first.
    """
    project = open_project(may_lack=True)
    undone = recover(project.root) if write else ()
    if undone:
        project = open_project(may_lack=True)
    names = tuple(dict.fromkeys(names))
    _check_names(project, names)
    found = [file for name in names for file in _files(project, name)]
    raise_all(
        [_refusal(project, file) for file in found if file.objection and not force]
    )
    left = {op: item for op, item in project.listed.items() if op not in names}
    gone: dict[str, str | None] = {file.path: None for file in found}
    changed = {**_manifests(project, names), **gone}
    later = project._replace(
        listed=left,
        records={op: item for op, item in project.records.items() if op not in names},
    )
    # The project as it will be, `later`, decides what is exported and shared.
    changed |= exports_of(later, gone.keys())
    shared = kept_in_step(later, forced=force, only_drop=True)
    changed |= shared.texts
    planned = plan(changed, project.root, ours=changed.keys(), reads=project.reads)
    records = [project.records[name] for name in names if name in project.records]
    state = {**shared.state}
    state |= {path: None for record in records for path in state_paths(record)}
    if write:
        apply(with_state(planned, plan(state, project.root, ours=state.keys())))
    verbs = dict.fromkeys(names, "remove")
    settled = Settled(planned, write, undone=undone)
    return Outcome(settled, verbs, len(found) + len(shared.texts), shared.notes)


def _check_names(project: Project, names: tuple[str, ...]) -> None:
    """Raise ScaffoldError for each name neither in a manifest nor on record."""
    known = {**project.listed, **project.records}
    hint = "see: scaffold list"
    raise_all(
        [
            ScaffoldError(
                f"no manifest and no record has an op '{name}'",
                hint=did_you_mean(name, known) or hint,
            )
            for name in names
            if name not in known
        ]
    )


def _files(project: Project, name: str) -> Iterator[_File]:
    """Yield the existing files of an op."""
    record = project.records.get(name)
    yield from _recorded(project, record) if record else _unrecorded(project, name)


def _recorded(project: Project, record: Record) -> Iterator[_File]:
    """Yield the existing files of a recorded op; edited ones with an objection."""
    for kept in record.files:
        known = standing(project.root, kept)
        if known.condition != "missing":
            objection = "was edited" if known.edited else ""
            yield _File(record.op, kept.path, objection)


def _unrecorded(project: Project, name: str) -> Iterator[_File]:
    """Yield the existing files an op without a record would have; one with another text may be anybody's, so it has an objection."""
    for work in weigh(project, survey(project, [name])):
        for item in work.prospects:
            if item.need == "collide":
                yield _File(name, item.path, "differs from the generated text")
            # `create`: there is no such file.
            elif item.need != "create":
                yield _File(name, item.path)


def _refusal(project: Project, file: _File) -> ScaffoldError:
    """Return the error for a file with an objection."""
    return ConflictError(
        f"{file.objection}; nothing was removed",
        Location(from_here(project.root, file.path)),
        f"to remove it anyway: scaffold remove {file.op} --force",
    )


def _manifests(project: Project, names: tuple[str, ...]) -> dict[str, str]:
    """Return the new text of each manifest that lists one of the ops, without their tables, by path."""
    texts: dict[str, str] = {}
    for name in names:
        listed = project.listed.get(name)
        if listed is not None:
            path = listed.manifest
            before = texts.get(path, project.texts[path])
            place = listed.entry.locate((), key=True)
            texts[path] = without(before, listed.entry.name, place)
    return texts
