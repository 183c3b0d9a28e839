"""`scaffold list`: the ops of a project, where each is written down, and its files."""

import json
from typing import Annotated

import typer

FORMAT = Annotated[
    str, typer.Option("--format", help="text or json.", metavar="FORMAT")
]
JSON_VERSION = 1


def list_ops(format_: FORMAT = "text") -> None:
    """List the ops of the manifest and their files.

    Example: scaffold list
    """
    from scaffold.cli.places import from_here
    from scaffold.cli.project import open_project
    from scaffold.cli.updating import check_format

    check_format(format_)
    project = open_project()
    rows = []
    for name, listed in project.listed.items():
        record = project.records.get(name)
        files = (
            [from_here(project.root, item.path) for item in record.files]
            if record
            else []
        )
        place = listed.entry.locate((), key=True)
        rows.append(
            {"op": name, "place": f"{place.source}:{place.line}", "files": files}
        )
    if format_ == "json":
        typer.echo(json.dumps({"version": JSON_VERSION, "ops": rows}, indent=2))
        return
    widths = [
        max((len(str(row[key])) for row in rows), default=0) for key in ("op", "place")
    ]
    for row in rows:
        shown = ", ".join(row["files"]) or "not written yet: scaffold sync"
        typer.echo(f"{row['op']:{widths[0]}}  {row['place']:{widths[1]}}  {shown}")
