"""How every file of a project stands: what `scaffold check` says.

In: a `Project` and the ops that are meant. Out: a `Checked` a file, in the order of the manifest.
Invariant: nothing is written; a file is out of date only if it would be rendered differently, whatever has moved.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from scaffold.cli.project import Project, exporting_path
from scaffold.cli.survey import Op, survey
from scaffold.workspace import interrupted
from scaffold.workspace.reconcile import Wanted
from scaffold.workspace.standing import Standing, present, standing
from scaffold.workspace.state import Kept, Record, base_path, record_path

Status = Literal[
    "ok",
    "edited",
    "unproven",
    "unprovable",
    "stale",
    "missing",
    "orphaned",
    "interrupted",
    "conflict-markers",
    "lost",
]
STATUSES: tuple[Status, ...] = get_args(Status)
PROOF: frozenset[Status] = frozenset({"unproven", "unprovable"})
PASSING: frozenset[Status] = PROOF.union({"ok", "edited"})


class Checked(NamedTuple):
    """A file, what it is, why, and what helps."""

    path: str
    op: str
    status: Status
    reason: str = ""
    hint: str = ""
    kept: Kept | None = None
    wanted: Wanted | None = None  # where it was rendered

    @property
    def role(self) -> str:
        """The part that the file has in its op, where that is known."""
        known = self.kept or self.wanted
        return known.role if known else ""


def check_project(
    project: Project, names: Sequence[str] = (), *, formatted: bool = False
) -> tuple[Checked, ...]:
    """Class each file; `formatted` asks for the texts that stale files would have.

    Of an edited file there is a second line where what stands in it was not proven.
    """
    left = interrupted(project.root)
    found = [
        Checked(path, "", "interrupted", "by a run that was killed", "scaffold sync")
        for path in left
    ]
    ops = survey(project, names)
    rendered = _rendered(project, ops, formatted)
    for op in ops:
        found += _op(project, op, rendered.get(op.listed.name))
    if not names:
        found += _exports(project)
        for record in project.orphans():
            found += _orphan(project, record)
    return tuple(found)


def _exports(project: Project) -> Iterator[Checked]:
    """The file that exports the ops, where that is asked for."""
    if not project.configuration.exports:
        return
    from scaffold.cli.exports import exports_of

    path = exporting_path(project.places)
    told = Checked(path, "", "ok", hint="scaffold sync")
    if project.reads[path] is None:
        yield told._replace(status="missing")
    elif exports_of(project):
        reason = "it does not export what the ops define"
        yield told._replace(status="stale", reason=reason)
    else:
        yield told._replace(hint="")


def _rendered(
    project: Project, ops: tuple[Op, ...], formatted: bool
) -> dict[str, tuple[Wanted, ...]]:
    """What the files should be, of the ops of which that is not known."""
    open_ = [op.listed for op in ops if op.record is None or op.moved]
    if not open_:
        return {}
    from scaffold.cli.rendering import (
        render_ops,
    )  # where nothing moved it is not needed

    results = render_ops(project, open_, formatted=formatted)
    return {name: result.files for name, result in results.items()}


def _op(
    project: Project, op: Op, wanted: tuple[Wanted, ...] | None
) -> Iterator[Checked]:
    name = op.listed.name
    by_role = {item.role: item for item in wanted or ()}
    for kept in op.record.files if op.record else ():
        new = by_role.pop(kept.role, None)
        gone = kept.draft == "" or wanted is not None and new is None
        told = _file(op, kept, new, op.standings[kept.path], gone)
        yield from _with_proof(project, op, told) if kept.role == "op" else (told,)
        if op.standings[kept.path].lost and not gone:
            yield _lost(project, told)
    for item in by_role.values():
        there = present(project.root, item.path) is not None
        if there:
            reason, hint = "no record tells of it", "scaffold sync"
            yield Checked(item.path, name, "stale", reason, hint, None, item)
        else:
            hint = "scaffold sync"
            yield Checked(item.path, name, "missing", "", hint, None, item)


def _file(
    op: Op, kept: Kept, new: Wanted | None, known: Standing, gone: bool
) -> Checked:
    name = op.listed.name
    upgrade = f"scaffold upgrade {name}"
    told = Checked(kept.path, name, "ok", "", "", kept, new)
    if gone and known.condition != "missing":
        reason = "the op has no such file any more"
        return told._replace(status="orphaned", reason=reason, hint=upgrade)
    if known.condition == "missing":
        return told._replace(status="missing", hint="scaffold sync")
    if known.condition == "conflict-markers":
        return told._replace(status="conflict-markers", hint="resolve them")
    if new is not None and (new.draft, new.path) != (kept.draft, kept.path):
        moved = f"{' and '.join(op.moved)} moved"
        reason = f"{moved}; edited" if known.edited else moved
        hint = upgrade if known.edited else "scaffold sync"
        return told._replace(status="stale", reason=reason, hint=hint)
    return told._replace(status="edited") if known.edited else told


def _with_proof(project: Project, op: Op, told: Checked) -> Iterator[Checked]:
    """The file of the Function, and whether that was proven; of one that is not as it should be that is no matter yet."""
    if told.status not in ("ok", "edited"):
        yield told
        return
    proven, name = op.proven(project.root), op.listed.name
    if proven.status == "proven" or told.status == "edited":
        yield told
    if proven.status == "proven":
        return
    hint = f"scaffold verify {name}"
    if proven.status == "unproven" and told.status == "ok":
        hint = "scaffold sync --prove"
    elif op.record is not None and op.record.kept("test") is None:
        hint = f"leave 'test' out of the table of '{name}', then scaffold sync and scaffold verify {name}"
    yield told._replace(status=proven.status, reason=proven.reason, hint=hint)


def _lost(project: Project, told: Checked) -> Checked:
    """The text that a file was written with, where it is not in the state any more."""
    assert told.kept is not None
    path = base_path(told.op, told.kept.role)
    what = "gone" if present(project.root, path) is None else "changed"
    reason = f"{what}; a merge of '{told.path}' starts from it"
    merges = told.status == "stale" and told.hint != "scaffold sync"
    hint = f"take '{path}' from version control" if merges else "scaffold sync"
    return Checked(path, told.op, "lost", reason, hint)


def _orphan(project: Project, record: Record) -> Iterator[Checked]:
    """The files of an op that no manifest lists any more."""
    reason = f"no op '{record.op}' in {record.manifest}"
    hint = f"scaffold remove {record.op}"
    there = [
        kept
        for kept in record.files
        if standing(project.root, record.op, kept).condition != "missing"
    ]
    for kept in there:
        yield Checked(kept.path, record.op, "orphaned", reason, hint, kept)
    if not there:
        path = record_path(record.op)
        yield Checked(path, record.op, "orphaned", reason, hint)
