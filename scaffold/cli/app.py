"""The application: its commands, and the handling of errors.

`scaffold/cli/__init__.py` calls `main`. Typer (on Click) parses the words; its classes are extended for our help pages, for hints on
wrong options, and so that a run imports its own command alone.

Words: an option is *gone* if it existed in an older version; a *refusal* is an error with a hint, as ours look; `every` asks for
all options, the common ones else.

Invariant: whatever a user or the system does, a run ends with a message and an exit code, never a traceback.
"""

import atexit
import gc
import os
import shlex
import sys
import time
import warnings
from contextlib import suppress
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from scaffold.cli.excerpts import ARGUMENTS
from scaffold.cli.help import COMMANDS, SHARED, SUMMARY, Page, first_page, page
from scaffold.cli.output import (
    SAYING,
    as_ours,
    has_terminal,
    say_error,
    show_details,
    show_refusal,
    telling,
)
from scaffold.cli.terminal import has_colours
from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TYPED = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")  # set by a shell for completion
# The base of Typer's errors about arguments; it has no public name.
CLICK: type[Exception] = typer.BadParameter.__mro__[2]
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def _show_version(asked: bool) -> None:
    """Print the version and exit, if --version is given (`asked`)."""
    if asked:
        typer.echo(f"scaffold {__version__}")
        raise typer.Exit


def _scaffold(
    version: Annotated[
        bool,
        typer.Option(
            *("-V", "--version"),
            callback=_show_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Write custom PyTorch operators: Function, wrapper, Module and tests."""


# --- Help, and the options of every command.


class Command(TyperCommand):
    """A command with panels in its help, and the options of every command."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += _shared_options()

    def get_help(self, ctx: Any) -> str:
        """Return the help page, with the common options."""
        return _help_of(self, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; `new-op` without any asks for them on a terminal."""
        if not args and ctx.info_name == "new-op" and has_terminal():
            from scaffold.cli.dialogue import asked_arguments

            args = asked_arguments()
        parameters = self.get_params(ctx)
        _take_as_typed(parameters)
        if any("--format" in parameter.opts for parameter in parameters):
            args = _with_format(args)
        ARGUMENTS.set(tuple(args))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --verbose, show versions and configuration first."""
        if SAYING.get() == "much":
            show_details(_circumstances())
        return super().invoke(ctx)


def _with_format(args: list[str]) -> list[str]:
    """Return the arguments with the short form `--json` written in full, `--format=json`; words after `--` are no options."""
    options = list(takewhile(lambda word: word != "--", args))
    full = ["--format=json" if word == "--json" else word for word in options]
    return [*full, *args[len(options) :]]


class _AsTyped:
    """A replacement for Typer's parser of a parameter: words stay as they were typed.

    Typer calls `coerce` with the words; our options are texts, switches and lists of texts, and need no conversion.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a word or a list of words unchanged; values of other types are left to Typer."""
        if value is None or param.type_descriptor.annotation in (bool, str, list[str]):
            return list(value or ()) if param.multiple or param.nargs == -1 else value
        param._runtime_param = None  # so that Typer makes its own parser
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _take_as_typed(parameters: list[Any]) -> None:
    """Replace the parser of each parameter: Typer 0.29's imports pydantic, 60 ms a run, to check words for being words."""
    for parameter in parameters:
        parameter._runtime_param = _AsTyped()  # 0.26 to 0.28 ignore it


class Group(TyperGroup):
    """Commands below one name: the tool itself, or `rules`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.params += _shared_options()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; `help new-op` becomes `new-op --help`."""
        # Only the tool itself: below `rules` the word may be a rule's name.
        if args[:1] == ["help"] and ctx.parent is None:
            args = [*args[1:], "--help"]
        _take_as_typed(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """Return the help page: the commands in groups, or those of `rules`."""
        return _help_of(self, ctx)


def _help_of(command: Command | Group, ctx: Any, every: bool = False) -> str:
    """Return the help page of a command, a group, or the tool itself, with `every` option or the common ones, from Typer's data."""
    ctx.color = has_colours(sys.stdout) or None  # else Typer strips our colours
    if isinstance(command, Group) and ctx.parent is None:
        return first_page(every)
    shown = {
        option.opts[0] if option.opts[0].startswith("--") else option.opts[-1]: row
        for option in command.params
        # Typer's own, as --help, give no value to the command.
        if isinstance(option, TyperOption) and option.expose_value
        if (row := option.get_help_record(ctx))
    }
    arguments = [item for item in command.params if isinstance(item, TyperArgument)]
    rows = [(_word(item), item.help or "") for item in arguments]
    pieces = [
        # Some words, `[FILE]`, have brackets already.
        _word(item) if item.required or _word(item)[0] == "[" else f"[{_word(item)}]"
        for item in arguments
    ]
    if isinstance(command, Group):
        pieces = ["COMMAND [ARGS]..."]
    usage = " ".join(["[OPTIONS]", *pieces])
    known = command.commands.items() if isinstance(command, Group) else ()
    below = [(name, _first_line(item.help)) for name, item in known]
    text, shared = command.help or "", list(SHARED.items())
    asked = Page(
        *(ctx.command_path, usage, text, rows),
        *(shown, shared, below),
    )
    return page(asked, every)


def _word(argument: TyperArgument) -> str:
    """Return the word shown for an argument, `NAME`; Typer's own adds the type from 0.29 on."""
    return argument.metavar or str(argument.name).upper()


def _circumstances() -> "Iterator[str]":
    """Yield the versions and the configuration of a run, for --verbose."""
    from scaffold.project.configuration import configuration_here

    yield f"scaffold {__version__}, Python {sys.version.split()[0]}"
    with suppress(ScaffoldError):  # the command reports it
        found = configuration_here()
        yield f"configuration: {found.root if found.project else 'none'}"


def _first_line(text: str | None) -> str:
    """Return the first line of a command's help, for the list of commands."""
    return (text or "").strip().split("\n", 1)[0]


@cache
def _shared_options() -> list[Any]:
    """Return the options of every command, from a function: Typer's class differs by version."""

    def show_all(ctx: Any, asked: bool) -> None:
        """Print the help page with all options and exit, for --help-all."""
        # Click parses so for a shell's completion: nothing may be printed then.
        if asked and not ctx.resilient_parsing:
            typer.echo(_help_of(ctx.command, ctx, every=True), color=ctx.color)
            raise typer.Exit

    def say_little(asked: bool) -> None:
        """Note --quiet; without it the verbosity stays."""
        SAYING.set("little" if asked else SAYING.get())

    def say_much(asked: bool) -> None:
        """Note --verbose; without it the verbosity stays."""
        SAYING.set("much" if asked else SAYING.get())

    def shared(
        quiet: Annotated[bool, _switch("-q", "--quiet", callback=say_little)] = False,
        verbose: Annotated[bool, _switch("-v", "--verbose", callback=say_much)] = False,
        help_all: Annotated[bool, _switch("--help-all", callback=show_all)] = False,
    ) -> None:
        """Stand for any command: Typer reads the options from its signature."""

    holder = typer.Typer(add_completion=False)
    holder.command(context_settings={"help_option_names": []})(shared)
    return typer.main.get_command(holder).params


def _switch(*names: str, callback: "Callable[..., None]") -> Any:
    """Return an option without a value for every command; `callback` is called as soon as it is parsed."""
    help = SHARED[", ".join(names)]
    return typer.Option(
        *names, expose_value=False, callback=callback, help=help, is_eager=True
    )


# --- The commands.


def application(asked: str | None) -> typer.Typer:
    """Return the application with its commands; of those not asked for only the line of help, since importing them takes time.

    `asked` is the first word of the command line; None imports all commands.
    """
    app = typer.Typer(
        name="scaffold",
        cls=Group,
        help=SUMMARY,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_scaffold)
    for name, line in COMMANDS.items():
        if asked is not None and name != asked:
            app.command(name, help=line, cls=Command)(_not_asked)
            continue
        command = _command(name)
        if isinstance(command, typer.Typer):
            app.add_typer(_all_telling(command), name=name)
        else:
            app.command(name, cls=Command)(telling(command))
    return app


def _all_telling(group: typer.Typer) -> typer.Typer:
    """Return a copy of a group of commands (`rules`) in which each prints its errors as JSON if --format json is given."""
    told = typer.Typer(
        cls=Group, help=group.info.help, rich_markup_mode=None, no_args_is_help=True
    )
    for command in group.registered_commands:
        assert command.callback is not None
        told.command(command.name, cls=Command)(telling(command.callback))
    return told


def _command(name: str) -> "Callable[..., None] | typer.Typer":
    """Return the function of a command, or a group; each import happens here, as a run needs its own command alone."""
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
        case "verify":
            from scaffold.cli.verify import verify as found
        case _:
            return _other_command(name)
    return found


def _other_command(name: str) -> "Callable[..., None] | typer.Typer":
    """Return the function of a further command, or a group: the second half of `_command`."""
    match name:
        case "derive":
            from scaffold.cli.derive import derive as found
        case "show":
            from scaffold.cli.show import show as found
        case "bench":
            from scaffold.cli.bench import bench as found
        case "lint":
            from scaffold.cli.lint import lint as found
        case "test-stub":
            from scaffold.cli.test_stub import test_stub as found
        case "adopt":
            from scaffold.cli.adopt import adopt as found
        case "config":
            from scaffold.cli.config import config as found
        case "schema":
            from scaffold.cli.schema import schema as found
        case "examples":
            from scaffold.cli.examples import examples as found
        case "help":
            return _help
        case "templates":
            from scaffold.cli.templates import templates as found
        case _:  # "rules"
            from scaffold.cli.rules import rules as found
    return found


def _help(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]", help="Of this command.")
    ] = None,
) -> None:
    """Show help: scaffold help new-op."""


def _not_asked() -> None:
    """Do nothing: a placeholder for a command not called in this run."""


def _first_word() -> str:
    """Return the command named on this run's command line, or on a line to complete for a shell; "" if there is none.

    Options are left out, and `help` stands for the command after it.
    """
    words = sys.argv[1:]
    # A shell asks for completion: the line typed so far is in a variable, its first word is our name.
    if "_SCAFFOLD_COMPLETE" in os.environ:
        typed = (os.environ.get(name, "") for name in TYPED)
        words = next(filter(None, typed), "").split()[1:]
    named = (word for word in words if not word.startswith("-"))
    return next((word for word in named if word != "help"), "")


def main() -> None:
    """Run a command; a user's error is a message, never a traceback."""
    gc.set_threshold(100_000)  # a run makes few cycles: searching for them costs more
    atexit.register(gc.freeze)  # no search at exit, either
    warnings.simplefilter("ignore")  # Python's warnings about the style of a formula
    SAYING.set("")
    ARGUMENTS.set(())
    begin = time.perf_counter()
    try:
        sys.exit(_run())
    except ScaffoldError as error:
        say_error(error)
        sys.exit(error.exit_code)
    except (RecursionError, MemoryError):
        message = "some input is nested too deeply, or too large"
        say_error(ScaffoldError(message))
        sys.exit(ScaffoldError.exit_code)
    except OSError as error:
        say_error(as_ours(error))
        _give_up_output()
        sys.exit(ScaffoldError.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        show_details([f"{time.perf_counter() - begin:.2f} s"])


def _run() -> int:
    """Run the command and return its exit code; raise Typer's errors about arguments as ours, with a hint.

    With --format json the error is printed as JSON first.
    """
    try:
        found = application(_first_word())(prog_name="scaffold", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except CLICK as error:
        refusal = _refusal(error)
        if refusal is None:  # no command was given: help is shown
            error.show()  # type: ignore[attr-defined]
            return ScaffoldError.exit_code
        # The arguments could not be parsed, so the format is known by its words alone.
        if {"json", "--json", "--format=json"} & set(sys.argv):
            show_refusal(refusal)
        raise refusal from None
    return found if isinstance(found, int) else 0


# Other names for options of an op, from other tools or a first guess.
MEANT = {
    **dict.fromkeys(("--input", "--args", "--signature"), "--inputs 'x, weight'"),
    **dict.fromkeys(("--output", "--returns"), "--outputs 'y, indices[...; int]'"),
    **dict.fromkeys(("--inplace", "--in-place", "--mutates"), "--dirty x"),
    **dict.fromkeys(("--fwd", "--formula", "--expr"), "--forward 'x * weight'"),
    **dict.fromkeys(("--bwd", "--vjp"), "--backward 'grad_x = ...'"),
    **dict.fromkeys(("--gradient", "--grads"), "--grad 'x=grad_output'"),
    **dict.fromkeys(("--parameters", "--param"), "--params weight"),
    **dict.fromkeys(("--ste", "--straight-through"), "--grad 'x=grad_output'"),
    **dict.fromkeys(("--out", "--output-dir", "--dir"), "--out-dir DIR"),
    **dict.fromkeys(("--no-tests", "--no-proof"), "--no-verify"),
    **dict.fromkeys(("--as-json", "--output-format"), "--format json"),
}
# Removed options without a key of an op, and advice.
GONE = {
    "--mutants": "leave it out: only scaffold's own tests plant mistakes",
    "--op": "leave it out, with --mutants: scaffold verify NAME runs the tests of one op",
    "--verify": "new-op proves what it writes; with --stdout it prints that and writes nothing",
    "--no-verify": "leave it out: nothing is proven here",
    "--explain": "scaffold derive NAME --explain shows how a backward came about",
    "--configuration": "scaffold config shows the keys of [tool.scaffold]",
}
# Other names for commands, from other tools or a first guess.
MEANT_COMMANDS = {
    "version": "--version",
    **dict.fromkeys(("new", "add", "create", "gen", "generate"), "new-op NAME"),
    **dict.fromkeys(("test", "prove"), "verify"),
    **dict.fromkeys(("rm", "delete"), "remove OP"),
    "mv": "rename OP NEW",
    "update": "sync, or scaffold upgrade",
    "diff": "check --diff",
    "fix": "lint --fix",
    "stats": "lint",  # counted Functions until it was removed
}


def _gone(option: str) -> str | None:
    """Return advice for an option that existed in an older version; None for any other."""
    from scaffold.spec.keys import GONE as KEYS  # slow, and only read after a mistake

    return GONE.get(option) or KEYS.get(option.removeprefix("--"))


def _refusal(error: Any) -> ScaffoldError | None:
    """Return an error for wrong arguments, with a hint on the likely intention; None if no command was given.

    `error` is Typer's; its text is taken apart: the message, similar options, a suggestion (`meant`). The most special hint comes first.
    """
    said = error.format_message().rstrip(".")
    if said.startswith("Usage: "):
        return None
    context = error.ctx
    path = context.command_path if context else f"scaffold {_first_word()}".strip()
    message, _, known = said.partition(" (Possible options: ")
    message, _, meant = message.partition(". Did you mean ")
    message = f"{message[:1].lower()}{message[1:]}"
    hint = f"see {path} --help"
    known_here = _options(context)
    option = MEANT.get(message.removeprefix("no such option: "), "")
    gone = _gone(message.removeprefix("no such option: "))
    command = MEANT_COMMANDS.get(message.removeprefix("no such command ").strip("'"))
    single = [word for word in sys.argv if f"-{word}" in known_here]  # -forward
    if command and path == "scaffold":
        hint = f"write: scaffold {command}; or {hint}"
    elif gone:
        hint = gone
    # "" for no such word; and `--out` may be meant as --out-dir only if the command has that.
    elif option.partition(" ")[0] in known_here:
        hint = f"write: {option}"
    elif single and message.startswith("no such option"):
        hint = f"write: -{single[0]}"
    elif message == "missing argument 'NAME'":
        hint = f"the name of the op comes first: {path} swish --inputs 'x'; or {hint}"
    elif "unexpected extra argument" in message and "--inputs" in known_here:
        hint = f"put what has spaces in quotes: {_in_quotes(context)}; or {hint}"
        if "--surrogate" in sys.argv:  # --surrogate takes no value
            hint = "write: --surrogate-forward 'TEXT'"
    elif closest := did_you_mean(
        message.rpartition(" ")[2], known.rstrip(")").split(", ")
    ):
        hint = f"{closest} or {hint}"
    elif close := meant.rstrip("?"):
        hint = f"did you mean {close}? or {hint}"
    return ScaffoldError(message, Location(path), hint)


def _in_quotes(context: Any) -> str:
    """Return an option with its value in quotes, `--forward 'x * 2'`, for one that the shell split at its spaces.

    That is an option with several words after it on the command line; an example if there is none.
    """
    options = (one for one in context.command.params if isinstance(one, TyperOption))
    taking = {name for one in options for name in one.opts if not one.is_flag}
    for at, word in enumerate(sys.argv):
        value = [*takewhile(lambda other: other[:2] != "--", sys.argv[at + 1 :])]
        if word in taking and len(value) > 1:
            globbed = any(map(os.path.exists, value))  # a bare * is every file
            return f"{word} {shlex.quote('x * 2' if globbed else ' '.join(value))}"
    return "--inputs 'x, y'"


def _options(context: Any) -> frozenset[str]:
    """Return the options of the command in a context."""
    known = context.command.params if context else ()
    return frozenset(name for one in known for name in (*one.opts, *one.secondary_opts))


def _give_up_output() -> None:
    """Close stdout after a failed write: at exit the interpreter would try again, and print a traceback."""
    with suppress(OSError, AttributeError):
        sys.stdout.close()
