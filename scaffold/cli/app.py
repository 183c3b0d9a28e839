"""The application: its commands, and what becomes of an error.

Invariant: whatever a user gives us or does to us, the last words are a message and an exit code, never a traceback.
"""

import atexit
import gc
import os
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from scaffold import __version__
from scaffold.cli.output import as_ours, telling
from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from collections.abc import Callable

# What help says of each command.
COMMANDS = {
    "init": "Make a directory a project.",
    "new-op": "Write an op: its Function, wrapper, Module and tests.",
    "sync": "Write the files of every op of a manifest, or update them.",
    "check": "See that the files are what the manifest says.",
    "upgrade": "Bring ops up to date and keep what was edited by hand.",
    "rename": "Call an op otherwise: its files, its table, the names in them.",
    "remove": "Remove ops: their files, their tables, their records.",
    "list": "List the ops of the manifest and their files.",
    "derive": "Print the Function of an op, its backward derived.",
    "lint": "Find mistakes in hand-written autograd.Functions.",
    "stats": "Count the autograd.Functions of a code base, by their traits.",
    "test-stub": "Write gradcheck tests for hand-written autograd.Functions.",
    "adopt": "Write the specification of a hand-written Function, as TOML.",
    "verify": "Run the tests of ops; see how many planted mistakes they find.",
    "config": "Show the configuration, and who says so.",
    "schema": "Print the JSON Schema of a file of ops.",
    "templates": "List, start, compare and check templates of yours.",
    "rules": "Show the rules of differentiation; check a table of yours.",
}
TYPED = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")  # what a shell is about to run
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"scaffold {__version__}")
        raise typer.Exit


def _scaffold(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Write custom PyTorch operators: Function, wrapper, Module and tests."""


def application(asked: str | None) -> typer.Typer:
    """The commands: the one that is asked for, and of the others as much as help shows; None asks for all."""
    app = typer.Typer(
        name="scaffold",
        help="Write custom PyTorch operators: Function, wrapper, Module and tests.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_scaffold)
    for name, line in COMMANDS.items():
        if asked is not None and name != asked:
            app.command(name, help=line)(_not_asked)
            continue
        command = _command(name)
        if isinstance(command, typer.Typer):
            app.add_typer(_all_telling(command), name=name)
        else:
            app.command(name)(telling(command))
    return app


def _all_telling(group: typer.Typer) -> typer.Typer:
    """A group with the commands that tell programs of what they raise."""
    told = typer.Typer(
        help=group.info.help, rich_markup_mode=None, no_args_is_help=True
    )
    for command in group.registered_commands:
        assert command.callback is not None
        told.command(command.name)(telling(command.callback))
    return told


def _command(name: str) -> "Callable[..., None] | typer.Typer":
    """The function of a command; a run imports the one that it calls."""
    match name:
        case "new-op":
            from scaffold.cli.new_op import new_op as found
        case "init":
            from scaffold.cli.init import init as found
        case "sync":
            from scaffold.cli.sync import sync as found
        case "check":
            from scaffold.cli.check import check as found
        case "upgrade":
            from scaffold.cli.upgrade import upgrade as found
        case "rename":
            from scaffold.cli.rename import rename as found
        case "remove":
            from scaffold.cli.remove import remove as found
        case "list":
            from scaffold.cli.list import list_ops as found
        case "derive":
            from scaffold.cli.derive import derive as found
        case "lint":
            from scaffold.cli.lint import lint as found
        case "stats":
            from scaffold.cli.stats import stats as found
        case "test-stub":
            from scaffold.cli.test_stub import test_stub as found
        case "adopt":
            from scaffold.cli.adopt import adopt as found
        case "verify":
            from scaffold.cli.verify import verify as found
        case "config":
            from scaffold.cli.config import config as found
        case "schema":
            from scaffold.cli.schema import schema as found
        case "templates":
            from scaffold.cli.templates import templates as found
        case _:
            from scaffold.cli.rules import rules as found
    return found


def _not_asked() -> None:
    """Stands for a command that this run does not call."""


def _asked() -> str:
    """The command of this run, or that a shell completes words of."""
    words = sys.argv[1:]
    if "_SCAFFOLD_COMPLETE" in os.environ:
        typed = (os.environ.get(name, "") for name in TYPED)
        words = next(filter(None, typed), "").split()[1:]
    return next((word for word in words if not word.startswith("-")), "")


def main() -> None:
    """Run a command; an error of the user's is a message, never a traceback."""
    gc.set_threshold(100_000)  # a run makes few cycles: looking for them costs more
    atexit.register(gc.freeze)  # nor does the interpreter, on its way out, look
    warnings.simplefilter("ignore")  # what Python thinks of a formula's style
    try:
        application(_asked())(prog_name="scaffold")
    except ScaffoldError as error:
        typer.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except (RecursionError, MemoryError):
        message = "something that was read is nested too deeply, or too large"
        typer.echo(str(ScaffoldError(message)), err=True)
        sys.exit(ScaffoldError.exit_code)
    except OSError as error:
        typer.echo(str(as_ours(error)), err=True)
        _give_up_output()
        sys.exit(ScaffoldError.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _give_up_output() -> None:
    """Let the interpreter not try again, on its way out, to write what could not be written."""
    with suppress(OSError, AttributeError):
        sys.stdout.close()
