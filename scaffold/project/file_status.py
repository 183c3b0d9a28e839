"""The status of every file of a project, as `scaffold check` reports it.

In: a `Project` and the names of ops. Out: a `Checked` for each file, in the order of the manifest.
Invariant: nothing is written; a file is stale only if it would be rendered differently, whatever has changed.
"""

import posixpath
import shlex
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from scaffold.project.console import Console, from_here
from scaffold.project.exports import exports_of
from scaffold.project.op_testing import is_wanted, survey_shared, wanted_files
from scaffold.project.project import Project, exporting_path
from scaffold.project.survey import Op, survey
from scaffold.workspace import interrupted, strays
from scaffold.workspace.changes import Change, diff_file
from scaffold.workspace.reconcile import (
    Wanted,
    decoded,
    present,
    says_the_same,
    standing,
)
from scaffold.workspace.records import SHARED, Kept, Record, record_path

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
SYNC = "scaffold sync"
NO_SUCH_FILE = "the op has no such file any more"
PASSING: frozenset[Status] = PROOF.union({"ok", "edited"})


class Checked(NamedTuple):
    """A file's path and op, its status, the reason, and a hint."""

    path: str
    op: str
    status: Status
    reason: str = ""
    hint: str = ""
    kept: Kept | None = None
    wanted: Wanted | None = None  # if it was rendered

    @property
    def role(self) -> str:
        """Return the file's role in its op; empty if unknown."""
        known = self.kept or self.wanted
        return known.role if known else ""


def check_project(
    project: Project,
    names: Sequence[str],
    console: Console,
    *,
    formatted: bool = False,
) -> tuple[Checked, ...]:
    """Classify each file; with `formatted`, stale files get their formatted new text.

    An edited file has a second row if its present text is not proven.
    """
    found = [*_interrupted(project)]
    ops = survey(project, names)
    rendered = _rendered(project, ops, console, formatted)
    left = []  # ops `scaffold sync` leaves alone
    for op in ops:
        rows = [*_rows_of_op(project, op, rendered.get(op.listed.name))]
        if any(item.hint == op.upgrade for item in rows):
            left.append(op.listed.name)
        found += _with_hints(project, op, rows)
    if not names:
        found += _shared(project, formatted)
        found += _exports(project, left)
        for record in project.orphans():
            found += _rows_of_orphan(project, record)
    return tuple(found)


def _interrupted(project: Project) -> Iterator[Checked]:
    """Yield a row for each file half written by a killed run, and for temporary files no journal knows."""
    for path in interrupted(project.root):
        reason = "by a run that was killed"
        yield Checked(path, "", "interrupted", reason, SYNC)
    directories = project.places.directories
    shared = directories.op_testing.path if directories.op_testing else ""
    places = {directories.source, directories.tests, posixpath.dirname(shared), "."}
    for path in strays(project.root, places - {""}):
        reason = "left by a run that was killed; no journal says what it was"
        yield Checked(path, "", "interrupted", reason, _removal(project, path))


def _removal(project: Project, path: str) -> str:
    """Return the shell command to remove a file."""
    return f"rm {shlex.quote(from_here(project.root, path))}"


def _with_hints(project: Project, op: Op, rows: list[Checked]) -> Iterator[Checked]:
    """Yield an op's rows of `check`, one for each file, with the hint `scaffold sync` replaced if sync would not help.

    It neither replaces a link, nor touches an op with conflict markers, or one that is edited and out of date.
    """
    marked = any(item.status == "conflict-markers" for item in rows)
    left = any(item.hint == op.upgrade for item in rows)
    for item in rows:
        broken = project.root / item.path
        if item.status in ("missing", "lost") and broken.is_symlink():
            reason = "a link that leads nowhere"
            item = item._replace(reason=reason, hint=_removal(project, item.path))
        elif item.hint == SYNC and (marked or left):
            item = item._replace(hint="resolve them" if marked else op.upgrade)
        yield item


def _exports(project: Project, left: Sequence[str]) -> Iterator[Checked]:
    """Yield the row of `__init__.py` if `exports` is on; the ops in `left` need `scaffold upgrade`, as sync leaves them alone."""
    if not project.configuration.exports:
        return
    path = exporting_path(project.places)
    told = Checked(path, "", "ok", hint=SYNC)
    if project.reads[path] is None:
        yield told._replace(status="missing")
    elif exports_of(project):
        reason = "it does not export what the ops define"
        others = {op: item for op, item in project.listed.items() if op not in left}
        helps = exports_of(project._replace(listed=others)) or not left
        hint = SYNC if helps else f"scaffold upgrade {' '.join(left)}"
        yield told._replace(status="stale", reason=reason, hint=hint)
    else:
        yield told._replace(hint="")


def _shared(project: Project, formatted: bool) -> Iterator[Checked]:
    """Yield the status of the test module shared by all ops."""
    op = survey_shared(project)
    if op is None:
        return
    wanted: tuple[Wanted, ...] | None = None
    if op.record is None or op.changed or not is_wanted(project):
        wanted = wanted_files(project, formatted=formatted or op.record is None)
    for item in _with_hints(project, op, [*_rows_of_op(project, op, wanted)]):
        yield item._replace(op="")


def _rendered(
    project: Project, ops: tuple[Op, ...], console: Console, formatted: bool
) -> dict[str, tuple[Wanted, ...]]:
    """Return by name the files wanted of each new or changed op; an unchanged op is as it was last rendered."""
    new = [op.listed for op in ops if op.record is None]
    changed = [op.listed for op in ops if op.record is not None and op.changed]
    if not new and not changed:
        return {}
    # Rendering is imported only when something changed.
    from scaffold.project.rendering import render_ops

    # A file without a record is compared by its formatted text.
    results = render_ops(project, new, console, formatted=True)
    results |= render_ops(project, changed, console, formatted=formatted)
    return {name: result.files for name, result in results.items()}


def _rows_of_op(
    project: Project, op: Op, wanted: tuple[Wanted, ...] | None
) -> Iterator[Checked]:
    """Yield a row for each file of an op: the recorded ones, then wanted ones without a record. `wanted` is None if nothing changed."""
    name = op.listed.name
    by_role = {item.role: item for item in wanted or ()}
    for kept in op.record.files if op.record else ():
        new = by_role.pop(kept.role, None)
        # A record without a draft is of a file the op no longer has.
        gone = new is None and (kept.draft == "" or wanted is not None)
        told = _row_of_file(project, op, kept, new, gone)
        yield from _with_proof(project, op, told) if kept.role == "op" else (told,)
        if op.standings[kept.path].lost and not gone:
            yield _row_of_lost(project, told)
    for item in by_role.values():
        data = present(project.root, item.path)
        told = Checked(item.path, name, "missing", "", SYNC, None, item)
        if data is not None:
            told = told._replace(status="stale", reason="no record in .scaffold/")
            if not says_the_same(decoded(data, item.path), item.text):
                reason = f"{told.reason}; differs"
                hint = f"{op.upgrade} --on-conflict overwrite"
                told = told._replace(reason=reason, hint=hint)
        yield told


def _row_of_file(
    project: Project, op: Op, kept: Kept, new: Wanted | None, gone: bool
) -> Checked:
    """Return the row of one recorded file; `new` is the wanted file in its place, if rendered, `gone`: the op has no such file any more."""
    known = op.standings[kept.path]
    told = Checked(kept.path, op.listed.name, "ok", "", "", kept, new)
    if gone and known.condition != "missing":
        shared = op.listed.name == SHARED
        reason = "no op has a test any more" if shared else NO_SUCH_FILE
        hint = op.upgrade
        if known.edited:
            reason, hint = f"{reason}; edited", _removal(project, kept.path)
        return told._replace(status="orphaned", reason=reason, hint=hint)
    if known.condition == "missing":
        return told._replace(status="missing", hint=SYNC)
    if known.condition == "conflict-markers":
        return told._replace(status="conflict-markers", hint="resolve them")
    if new is not None and (new.draft, new.path) != (kept.draft, kept.path):
        reason, hint = f"{' and '.join(op.changed)} changed", SYNC
        if known.edited:
            reason = f"{reason}; edited"
            hint = "" if known.lost else op.upgrade  # upgrade merges from the lost text
        if new.path != kept.path and present(project.root, new.path) is not None:
            shown = from_here(project.root, new.path)
            reason, hint = f"{reason}; '{shown}' is in the way", f"move '{shown}' away"
        return told._replace(status="stale", reason=reason, hint=hint)
    return told._replace(status="edited") if known.edited else told


def _with_proof(project: Project, op: Op, told: Checked) -> Iterator[Checked]:
    """Yield `told`, the row of the op's file, and after it one for a missing proof, unless the file has another problem first.

    An unedited file without a proof has the second row alone.
    """
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
    elif proven.status == "unprovable" and told.status == "ok":
        hint = f"write that in {told.path}, then {hint}"
    elif op.record is not None and op.record.kept("test") is None:
        hint = f"leave 'test' out of the table of '{name}', then scaffold sync and scaffold verify {name}"
    yield told._replace(status=proven.status, reason=proven.reason, hint=hint)


def _row_of_lost(project: Project, told: Checked) -> Checked:
    """Return a row for a record without the text written last: a merge with the file `told` could not start from it."""
    assert told.kept is not None
    path = record_path(told.op)
    reason = (
        f"does not hold how '{told.path}' was written; a merge of that starts from it"
    )
    hint = SYNC
    if told.status == "stale" and not told.hint:
        back = f"take '{from_here(project.root, path)}' from version control"
        hint = f"{back}, then scaffold upgrade {told.op}"
    return Checked(path, told.op, "lost", reason, hint)


def _rows_of_orphan(project: Project, record: Record) -> Iterator[Checked]:
    """Yield the files of an op in no manifest any more; the record itself if none of them is there."""
    reason = f"no op '{record.op}' in {record.manifest}"
    hint = f"scaffold remove {record.op}"
    standings = [(kept, standing(project.root, kept)) for kept in record.files]
    there = [kept for kept, known in standings if known.condition != "missing"]
    if any(known.edited for _, known in standings):
        reason, hint = f"{reason}; edited", f"{hint} --force"
    for kept in there:
        yield Checked(kept.path, record.op, "orphaned", reason, hint, kept)
    if not there:
        path = record_path(record.op)
        yield Checked(path, record.op, "orphaned", reason, hint)


def difference(project: Project, item: Checked) -> str:
    """Return the diff of a row: the user's edits, or the update of a stale or missing file; "" for any other."""
    there = present(project.root, item.path)
    base = item.kept.written if item.kept else None
    before, after = _sides(item, there, base)
    if before == after or after is None:
        return ""
    target = project.root / item.path
    return diff_file(Change(item.path, target, "update", before, after))


def _sides(
    item: Checked, there: bytes | None, base: str | None
) -> tuple[bytes | None, bytes | None]:
    """Return the contents to compare for a row, before and after; None for no file.

    `there` is the file's content, `base` its text as written last.
    """
    written = base.encode() if base is not None else None
    if item.status in ("edited", "conflict-markers"):
        return written, there
    wanted = item.wanted.text.encode() if item.wanted and item.wanted.text else written
    return (there, wanted) if item.status in ("stale", "missing") else (None, None)
