"""`scaffold stats`: how the Functions of a code base are written, as a table."""

from typing import Annotated

import typer

from scaffold.cli.choices import FORMAT, FORMATS, check_choice
from scaffold.errors import raise_all

PATHS = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files and directories (default: here)."),
]


def stats(paths: PATHS = None, format_: FORMAT = "text") -> None:
    """Count the autograd.Functions of a code base, by their traits.

    Example: scaffold stats src tests
    """
    from scaffold.cli.counting import as_json, as_text, count_below

    raise_all(check_choice("--format", format_, FORMATS))
    counted = count_below(tuple(paths or ["."]))
    for error in counted.unread:
        typer.echo(f"note: {error.location}: {error.message}", err=True)
    show = as_json if format_ == "json" else as_text
    typer.echo(show(counted), nl=False)
