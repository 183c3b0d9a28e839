"""The application: its commands, and what becomes of an error.

Invariant: whatever a user gives us or does to us, the last words are a message and an exit code, never a traceback.
"""

import gc
import sys
import warnings
from contextlib import suppress
from typing import Annotated

import typer

from scaffold import __version__
from scaffold.cli.derive import derive
from scaffold.cli.new_op import new_op
from scaffold.cli.rules import rules
from scaffold.cli.verify import verify
from scaffold.errors import ScaffoldError

app = typer.Typer(
    name="scaffold",
    help="Write custom PyTorch operators: Function, wrapper, Module and tests.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


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
app.command("derive")(derive)
app.command("verify")(verify)
app.add_typer(rules, name="rules")


def main() -> None:
    """Run a command; an error of the user's is a message, never a traceback."""
    gc.set_threshold(100_000)  # a run makes few cycles: looking for them costs more
    warnings.simplefilter("ignore")  # what Python thinks of a formula's style
    try:
        app(prog_name="scaffold")
    except ScaffoldError as error:
        typer.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        typer.echo(f"error: {_reason(error)}", err=True)
        _give_up_output()
        sys.exit(ScaffoldError.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _reason(error: OSError) -> str:
    """What the system says, and of which file; without a name it is an output that cannot be written."""
    about = f"'{error.filename}'" if error.filename else "cannot write the output"
    return f"{about}: {error.strerror or error}"


def _give_up_output() -> None:
    """Let the interpreter not try again, on its way out, to write what could not be written."""
    with suppress(OSError, AttributeError):
        sys.stdout.close()
