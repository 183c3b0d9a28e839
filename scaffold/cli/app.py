"""The application: its commands, and what becomes of an error."""

import gc
import sys
from typing import Annotated

import typer

from scaffold import __version__
from scaffold.cli.new_op import new_op
from scaffold.errors import ScaffoldError

app = typer.Typer(
    name="scaffold",
    help="Write custom PyTorch operators: Function, wrapper, Module and tests.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"scaffold {__version__}")
        raise typer.Exit


@app.callback()
def scaffold(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Write custom PyTorch operators: Function, wrapper, Module and tests."""


app.command("new-op")(new_op)


def main() -> None:
    """Run a command; an error of the user's is a message, never a traceback."""
    gc.set_threshold(100_000)  # a run makes few cycles: looking for them costs more
    try:
        app()
    except ScaffoldError as error:
        typer.echo(str(error), err=True)
        sys.exit(error.exit_code)
