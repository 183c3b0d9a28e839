"""`scaffold stats`: how the Functions of a code base are written, as a table."""

from typing import Annotated

import typer

from scaffold.errors import Location, ScaffoldError, did_you_mean

PATHS = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files and directories (default: here)."),
]
FORMAT = Annotated[
    str, typer.Option("--format", help="text or json.", metavar="FORMAT")
]
FORMATS = ("text", "json")


def stats(paths: PATHS = None, format_: FORMAT = "text") -> None:
    """Count the autograd.Functions of a code base, by their traits.

    Example: scaffold stats src tests
    """
    from scaffold.cli.counting import as_json, as_text, count_below

    if format_ not in FORMATS:
        hint = did_you_mean(format_, FORMATS) or f"one of: {', '.join(FORMATS)}"
        raise ScaffoldError(f"unknown value '{format_}'", Location("--format"), hint)
    counted = count_below(tuple(paths or ["."]))
    for error in counted.unread:
        typer.echo(f"note: {error.location}: {error.message}", err=True)
    show = as_json if format_ == "json" else as_text
    typer.echo(show(counted), nl=False)
