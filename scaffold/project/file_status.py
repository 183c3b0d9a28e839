"""The status of every file of a project, as `scaffold check` reports it.

In CI it tells whether the files are what the manifest says, and proven; each row has a hint, mostly a command that mends it.
In: a `Project` and the names of ops. Out: a `Checked` for each file, in the order of the manifest.
Invariant: nothing is written; a file is stale only if it would be rendered differently, whatever has changed.

Words: a *row* is a `Checked`; *kept* is the record of a file, *wanted* the file as rendered now (None: not rendered, as nothing
changed); *edited* by hand; *stale*: another text would be generated; *orphaned*: of an op in no manifest; *lost*: the record no
longer has the text written last, so edits could not be merged; *strays*: temporary files of killed runs.
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
SYNC = "scaffold sync"  # the hint of most rows
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
    """Return a row for each file of the named ops; without names also for files that belong to no op, and for orphaned ones.

    With `formatted`, stale files get their formatted new text, for a diff. An edited file has a second row if its present text is
    not proven.
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
    """Yield a row for each file half written by a killed run, which the next run restores, and for temporary files to remove by hand."""
    for path in interrupted(project.root):
        reason = "by a run that was killed"
        yield Checked(path, "", "interrupted", reason, SYNC)
    directories = project.places.directories
    shared = directories.op_testing.path if directories.op_testing else ""
    # "" is taken out below: no shared module, or it is at the root, which "." stands for.
    places = {directories.source, directories.tests, posixpath.dirname(shared), "."}
    for path in strays(project.root, places - {""}):
        reason = "left by a run that was killed; no journal says what it was"
        yield Checked(path, "", "interrupted", reason, _removal(project, path))


def _removal(project: Project, path: str) -> str:
    """Return the shell command to remove a file, for a hint."""
    return f"rm {shlex.quote(from_here(project.root, path))}"


def _with_hints(project: Project, op: Op, rows: list[Checked]) -> Iterator[Checked]:
    """Yield an op's rows of `check`, with the hint `scaffold sync` replaced where sync would not help.

    Sync replaces no link, and leaves alone an op with conflict markers, or one that is edited and out of date: for that it takes
    `scaffold upgrade`, as the hint of a row says already (`needs_upgrade`).
    """
    marked = any(item.status == "conflict-markers" for item in rows)
    needs_upgrade = any(item.hint == op.upgrade for item in rows)
    for item in rows:
        path = project.root / item.path
        if item.status in ("missing", "lost") and path.is_symlink():
            reason = "a link that leads nowhere"
            item = item._replace(reason=reason, hint=_removal(project, item.path))
        elif item.hint == SYNC and (marked or needs_upgrade):
            item = item._replace(hint="resolve them" if marked else op.upgrade)
        yield item


def _exports(project: Project, left: Sequence[str]) -> Iterator[Checked]:
    """Yield the row of `__init__.py`, if the setting `exports` has it kept up to date: missing, stale or ok.

    Sync leaves the ops in `left` alone, and does not export them anew: if they alone make it stale, the hint is to upgrade them.
    """
    if not project.configuration.exports:
        return
    path = exporting_path(project.places)
    row = Checked(path, "", "ok", hint=SYNC)
    if project.reads[path] is None:
        yield row._replace(status="missing")
    elif exports_of(project):
        reason = "it does not export what the ops define"
        others = {op: item for op, item in project.listed.items() if op not in left}
        # Stale without the ops left alone, too: then sync has something to mend.
        helps = exports_of(project._replace(listed=others)) or not left
        hint = SYNC if helps else f"scaffold upgrade {' '.join(left)}"
        yield row._replace(status="stale", reason=reason, hint=hint)
    else:
        yield row._replace(hint="")


def _shared(project: Project, formatted: bool) -> Iterator[Checked]:
    """Yield the rows of the test module shared by all ops, if the project has one: it is surveyed like an op, but belongs to none."""
    op = survey_shared(project)
    if op is None:
        return
    wanted: tuple[Wanted, ...] | None = None
    # Otherwise it is as it was written, and need not be rendered.
    if op.record is None or op.changed or not is_wanted(project):
        wanted = wanted_files(project, formatted=formatted or op.record is None)
    for item in _with_hints(project, op, [*_rows_of_op(project, op, wanted)]):
        yield item._replace(op="")


def _rendered(
    project: Project, ops: tuple[Op, ...], console: Console, formatted: bool
) -> dict[str, tuple[Wanted, ...]]:
    """Return by name the files of each new or changed op as rendered now; an unchanged op is left out: it would be as it was written."""
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
    """Yield a row for each file of an op: the recorded ones, then rendered ones without a record.

    `wanted` are the files as rendered now; None if nothing changed.
    """
    name = op.listed.name
    by_role = {item.role: item for item in wanted or ()}
    for kept in op.record.files if op.record else ():
        new = by_role.pop(kept.role, None)
        # A record without a draft is of a file the op no longer has.
        gone = new is None and (kept.draft == "" or wanted is not None)
        row = _row_of_file(project, op, kept, new, gone)
        yield from _with_proof(project, op, row) if kept.role == "op" else (row,)
        if op.standings[kept.path].lost and not gone:
            yield _row_of_lost(project, row)
    for item in by_role.values():
        data = present(project.root, item.path)
        row = Checked(item.path, name, "missing", "", SYNC, None, item)
        if data is not None:
            row = row._replace(status="stale", reason="no record in .scaffold/")
            if not says_the_same(decoded(data, item.path), item.text):
                reason = f"{row.reason}; differs"
                hint = f"{op.upgrade} --on-conflict overwrite"
                row = row._replace(reason=reason, hint=hint)
        yield row


def _row_of_file(
    project: Project, op: Op, kept: Kept, new: Wanted | None, gone: bool
) -> Checked:
    """Return the row of one recorded file, `kept`, by its state on disk and what would be written now.

    `new` is the file as rendered, None if it was not; `gone`: the op has no such file any more. A draft is a text before
    formatting: if its digest is as recorded, there is nothing new to write.
    """
    known = op.standings[kept.path]
    row = Checked(kept.path, op.listed.name, "ok", "", "", kept, new)
    if gone and known.condition != "missing":
        shared = op.listed.name == SHARED
        reason = "no op has a test any more" if shared else NO_SUCH_FILE
        hint = op.upgrade
        if known.edited:
            reason, hint = f"{reason}; edited", _removal(project, kept.path)
        return row._replace(status="orphaned", reason=reason, hint=hint)
    if known.condition == "missing":
        return row._replace(status="missing", hint=SYNC)
    if known.condition == "conflict-markers":
        return row._replace(status="conflict-markers", hint="resolve them")
    if new is not None and (new.draft, new.path) != (kept.draft, kept.path):
        reason, hint = f"{' and '.join(op.changed)} changed", SYNC
        if known.edited:
            reason = f"{reason}; edited"
            hint = "" if known.lost else op.upgrade  # upgrade merges from the lost text
        # The file is to move, and another one has its new path.
        if new.path != kept.path and present(project.root, new.path) is not None:
            shown = from_here(project.root, new.path)
            reason, hint = f"{reason}; '{shown}' is in the way", f"move '{shown}' away"
        return row._replace(status="stale", reason=reason, hint=hint)
    return row._replace(status="edited") if known.edited else row


def _with_proof(project: Project, op: Op, row: Checked) -> Iterator[Checked]:
    """Yield the row of the op's file, then one saying it is not proven; a file with another problem has its row alone.

    An unedited file without a proof has the second row alone. The hint is the command that proves it, if there is one.
    """
    if row.status not in ("ok", "edited"):
        yield row
        return
    proven, name = op.proven(project.root), op.listed.name
    # Of an unedited file the second row is enough; that a file is edited is news by itself.
    if proven.status == "proven" or row.status == "edited":
        yield row
    if proven.status == "proven":
        return
    hint = f"scaffold verify {name}"
    if proven.status == "unproven" and row.status == "ok":
        hint = "scaffold sync --prove"
    elif proven.status == "unprovable" and row.status == "ok":
        hint = f"write that in {row.path}, then {hint}"
    # Only passed tests prove an edited Function, and this op has none.
    elif op.record is not None and op.record.kept("test") is None:
        hint = f"leave 'test' out of the table of '{name}', then scaffold sync and scaffold verify {name}"
    yield row._replace(status=proven.status, reason=proven.reason, hint=hint)


def _row_of_lost(project: Project, row: Checked) -> Checked:
    """Return a row for a record without the last written text of a file (its own row: `row`): a merge of edits starts from this text."""
    assert row.kept is not None  # the row is of a recorded file
    path = record_path(row.op)
    reason = (
        f"does not hold how '{row.path}' was written; a merge of that starts from it"
    )
    hint = SYNC
    if row.status == "stale" and not row.hint:  # edited, and cannot be merged now
        back = f"take '{from_here(project.root, path)}' from version control"
        hint = f"{back}, then scaffold upgrade {row.op}"
    return Checked(path, row.op, "lost", reason, hint)


def _rows_of_orphan(project: Project, record: Record) -> Iterator[Checked]:
    """Yield a row for each file of an op in no manifest any more, or for its record if no file is there; `scaffold remove` removes them."""
    reason = f"no op '{record.op}' in {record.manifest}"
    hint = f"scaffold remove {record.op}"
    standings = [(kept, standing(project.root, kept)) for kept in record.files]
    present_files = [kept for kept, known in standings if known.condition != "missing"]
    if any(known.edited for _, known in standings):
        reason, hint = f"{reason}; edited", f"{hint} --force"
    for kept in present_files:
        yield Checked(kept.path, record.op, "orphaned", reason, hint, kept)
    if not present_files:
        path = record_path(record.op)
        yield Checked(path, record.op, "orphaned", reason, hint)


def difference(project: Project, item: Checked) -> str:
    """Return the diff that `check --diff` shows for a row: the user's edits, or the update of a stale or missing file; "" for any other."""
    on_disk = present(project.root, item.path)
    base = item.kept.written if item.kept else None
    before, after = _sides(item, on_disk, base)
    if before == after or after is None:
        return ""
    target = project.root / item.path
    return diff_file(Change(item.path, target, "update", before, after))


def _sides(
    item: Checked, on_disk: bytes | None, base: str | None
) -> tuple[bytes | None, bytes | None]:
    """Return the contents to compare for a row, before and after; None for no file.

    `on_disk` is the file's content, `base` its text as written last. Of a file edited by hand these two are compared; of a
    stale or missing one what is there and what a run would write.
    """
    written = base.encode() if base is not None else None
    if item.status in ("edited", "conflict-markers"):
        return written, on_disk
    # A missing file that is not out of date was not rendered: a run writes it as it was.
    wanted = item.wanted.text.encode() if item.wanted and item.wanted.text else written
    return (on_disk, wanted) if item.status in ("stale", "missing") else (None, None)
