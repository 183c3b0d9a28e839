"""`scaffold stats`: how the Functions of a code base are written, as a table."""

from typing import Annotated

import typer

from scaffold.cli.choices import FORMAT, check_format
from scaffold.cli.programs import show_object

PATHS = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files and directories (default: here)."),
]


def stats(paths: PATHS = None, format_: FORMAT = "text") -> None:
    """Count the autograd.Functions of a code base, by their traits.

    Example: scaffold stats src tests
    """
    from scaffold.cli.counting import as_object, as_text, count_below

    check_format(format_)
    counted = count_below(tuple(paths or ["."]))
    for error in counted.unread:
        typer.echo(f"note: {error.location}: {error.message}", err=True)
    if format_ == "json":
        show_object(as_object(counted))
    else:
        typer.echo(as_text(counted), nl=False)
