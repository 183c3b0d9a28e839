"""`scaffold list`: the ops of a project, where each is written down, and its files.

Words: a *row* is what is shown of an op; its *place* is that of its table in the manifest; a file's *standing* is its condition
compared with the record of what was written: edited, missing, ...; a *skeleton* has parts left to write; an *orphan* is an op on
record that no manifest has any more.

In: the manifests and records of the project. Out: lines, or one JSON object. Invariant: nothing is written.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import typer

from scaffold.cli.options import FORMAT, check_format
from scaffold.cli.output import show_object
from scaffold.cli.terminal import verb
from scaffold.errors import ScaffoldError, raise_all

if TYPE_CHECKING:
    from scaffold.project.project import Project
    from scaffold.project.survey import Op


class Row(NamedTuple):
    """An op as listed."""

    op: str
    place: str
    # Paths and their condition: "" if as written.
    files: tuple[tuple[str, str], ...]
    status: tuple[str, ...]


def list_ops(format_: FORMAT = "text") -> None:
    """List the ops of the manifest and their files.

    Each line shows the place of an op's table and the state of its files. A skeleton is an op with parts left to write.
    To see which files are out of date: scaffold check.

    Example: scaffold list
    """
    from scaffold.project.project import open_project
    from scaffold.project.survey import survey

    check_format(format_)
    project = open_project()
    ops = list(survey(project))
    rows = [_row(project, op) for op in ops] + list(_orphans(project))
    if format_ == "json":
        told = [row._asdict() | {"files": dict(row.files)} for row in rows]
        show_object({"ops": told})
    else:
        _show(rows)
    raise_all([*_broken(project, ops)])


def _show(rows: list[Row]) -> None:
    """Print the rows in columns: op, place of its table, files and remarks."""
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for row in rows:
        files = ", ".join(
            f"{path} ({verb(standing, 0, sys.stdout)})" if standing else path
            for path, standing in row.files
        )
        said = "; ".join(filter(None, [files, *row.status]))
        line = f"{row.op:{widths[0]}}  {row.place:{widths[1]}}  {said}"
        typer.echo(line.rstrip().encode(errors="surrogateescape"))


def _broken(project: "Project", ops: "list[Op]") -> Iterator[ScaffoldError]:
    """Yield the errors in the tables of ops, to be raised after the list.

    A table unchanged since its files were written (`settled`) was read without an error then.
    """
    from scaffold.project.specification import specification

    for op in ops:
        try:
            if not op.settled:
                specification(op.listed, project.configuration, project.places)
        except ScaffoldError as error:
            yield from error.problems


def _row(project: "Project", op: "Op") -> Row:
    """Return the row of an op: its name, its place in the manifest, its files, remarks."""
    from scaffold.project.console import from_here

    place = op.listed.entry.locate((), key=True)
    files = tuple(
        (from_here(project.root, path), _words(standing.condition))
        for path, standing in op.standings.items()
    )
    status = []
    if not files:
        status.append("not written yet: scaffold sync")
    if _is_skeleton(project, op):
        status.append("skeleton")
    return Row(op.listed.name, f"{place.source}:{place.line}", files, tuple(status))


def _words(condition: str) -> str:
    """Return the condition of a file in words; "" for an unremarkable one: as written, or only reformatted."""
    said = {"untouched": "", "reformatted": "", "conflict-markers": "conflict markers"}
    return said.get(condition, condition)


def _is_skeleton(project: "Project", op: "Op") -> bool:
    """Return whether the op's file still has a part for the user to write, which raises NotImplementedError."""
    from scaffold.workspace.reconcile import present

    # Bytes, as they stand in the file: it need not be decoded for this.
    mark = f'NotImplementedError("{op.listed.name}: write '.encode()
    kept = op.record.kept("op") if op.record else None
    return kept is not None and mark in (present(project.root, kept.path) or b"")


def _orphans(project: "Project") -> Iterator[Row]:
    """Yield a row for each op on record no longer in a manifest."""
    from scaffold.project.console import from_here
    from scaffold.workspace.reconcile import standing

    for record in project.orphans():
        files = tuple(
            (
                from_here(project.root, kept.path),
                _words(standing(project.root, kept).condition),
            )
            for kept in record.files
        )
        status = (f"in no manifest any more: scaffold remove {record.op}",)
        yield Row(record.op, "-", files, status)
