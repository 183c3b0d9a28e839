"""The application: its commands, and what becomes of an error.

Invariant: whatever a user gives us or does to us, the last words are a message and an exit code, never a traceback.
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

TYPED = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")  # what a shell is about to run
# The kind of all that Typer says of words; it has no public name.
CLICK: type[Exception] = typer.BadParameter.__mro__[2]
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def _show_version(asked: bool) -> None:
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


# --- Help, and what every command takes.


class Command(TyperCommand):
    """A command whose help has panels, and that takes what every command takes."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += _shared_options()

    def get_help(self, ctx: Any) -> str:
        """Its page, with the common options."""
        return _help_of(self, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Its arguments; on a terminal those of `new-op` are asked for where there are none."""
        if not args and ctx.info_name == "new-op" and has_terminal():
            from scaffold.cli.dialogue import asked_arguments

            args = asked_arguments()
        parameters = self.get_params(ctx)
        _take_as_typed(parameters)
        if any("--format" in parameter.opts for parameter in parameters):
            args = _with_format(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run it; with --verbose it is said what with."""
        if SAYING.get() == "much":
            show_details(_circumstances())
        return super().invoke(ctx)


def _with_format(args: list[str]) -> list[str]:
    """Return the arguments with `--format=json` for its short form, `--json`."""
    options = list(takewhile(lambda word: word != "--", args))
    full = ["--format=json" if word == "--json" else word for word in options]
    return [*full, *args[len(options) :]]


class _AsTyped:
    """The words of a parameter, as they were typed."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """One word, or those of a list; a number is left to Typer."""
        if value is None or param.type_descriptor.annotation in (bool, str, list[str]):
            return list(value or ()) if param.multiple or param.nargs == -1 else value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _take_as_typed(parameters: list[Any]) -> None:
    """Keep Typer 0.29 from importing pydantic, for 60 ms a run, to see that a word is a word."""
    for parameter in parameters:
        parameter._runtime_param = _AsTyped()  # 0.26 to 0.28 do not look at it


class Group(TyperGroup):
    """Commands below one name: the tool itself, or `rules`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.params += _shared_options()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`help new-op` is `new-op --help`."""
        if args[:1] == ["help"] and ctx.parent is None:
            args = [*args[1:], "--help"]
        _take_as_typed(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """Its page: the commands in groups, or those of `rules`."""
        return _help_of(self, ctx)


def _help_of(command: Command | Group, ctx: Any, every: bool = False) -> str:
    ctx.color = has_colours(sys.stdout) or None  # or Typer takes away what we painted
    if isinstance(command, Group) and ctx.parent is None:
        return first_page(every)
    shown = {
        option.opts[0] if option.opts[0].startswith("--") else option.opts[-1]: row
        for option in command.params
        if isinstance(option, TyperOption) and option.expose_value
        if (row := option.get_help_record(ctx))
    }
    arguments = [item for item in command.params if isinstance(item, TyperArgument)]
    rows = [(_word(item), item.help or "") for item in arguments]
    pieces = [
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
    """What stands for an argument: Typer adds its type from 0.29 on."""
    return argument.metavar or str(argument.name).upper()


def _circumstances() -> "Iterator[str]":
    """What a run goes by, besides what was typed."""
    from scaffold.project.configuration import configuration_here

    yield f"scaffold {__version__}, Python {sys.version.split()[0]}"
    with suppress(ScaffoldError):  # the command tells of it
        found = configuration_here()
        yield f"configuration: {found.root if found.project else 'none'}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n", 1)[0]


@cache
def _shared_options() -> list[Any]:
    """What every command takes, read off a function: how Typer's own class is called differs by version."""

    def show_all(ctx: Any, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            typer.echo(_help_of(ctx.command, ctx, every=True), color=ctx.color)
            raise typer.Exit

    def say_little(asked: bool) -> None:
        SAYING.set("little" if asked else SAYING.get())

    def say_much(asked: bool) -> None:
        SAYING.set("much" if asked else SAYING.get())

    def shared(
        quiet: Annotated[bool, _switch("-q", "--quiet", callback=say_little)] = False,
        verbose: Annotated[bool, _switch("-v", "--verbose", callback=say_much)] = False,
        help_all: Annotated[bool, _switch("--help-all", callback=show_all)] = False,
    ) -> None:
        """Stand for any command."""

    holder = typer.Typer(add_completion=False)
    holder.command(context_settings={"help_option_names": []})(shared)
    return typer.main.get_command(holder).params


def _switch(*names: str, callback: "Callable[..., None]") -> Any:
    help = SHARED[", ".join(names)]
    return typer.Option(
        *names, expose_value=False, callback=callback, help=help, is_eager=True
    )


# --- The commands.


def application(asked: str | None) -> typer.Typer:
    """The commands: the one that is asked for, and of the others as much as help shows; None asks for all."""
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
    """A group whose commands print an error as JSON where JSON was asked for."""
    told = typer.Typer(
        cls=Group, help=group.info.help, rich_markup_mode=None, no_args_is_help=True
    )
    for command in group.registered_commands:
        assert command.callback is not None
        told.command(command.name, cls=Command)(telling(command.callback))
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
        case "verify":
            from scaffold.cli.verify import verify as found
        case _:
            return _other_command(name)
    return found


def _other_command(name: str) -> "Callable[..., None] | typer.Typer":
    """The function of a command that is about no project."""
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
        case _:
            from scaffold.cli.rules import rules as found
    return found


def _help(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]", help="Of this command.")
    ] = None,
) -> None:
    """Show help: scaffold help new-op."""


def _not_asked() -> None:
    """Stands for a command that this run does not call."""


def _asked() -> str:
    """The command of this run, or that a shell completes words of."""
    words = sys.argv[1:]
    if "_SCAFFOLD_COMPLETE" in os.environ:
        typed = (os.environ.get(name, "") for name in TYPED)
        words = next(filter(None, typed), "").split()[1:]
    named = (word for word in words if not word.startswith("-"))
    return next((word for word in named if word != "help"), "")


def main() -> None:
    """Run a command; an error of the user's is a message, never a traceback."""
    gc.set_threshold(100_000)  # a run makes few cycles: looking for them costs more
    atexit.register(gc.freeze)  # nor does the interpreter, on its way out, look
    warnings.simplefilter("ignore")  # what Python thinks of a formula's style
    SAYING.set("")
    begin = time.perf_counter()
    try:
        sys.exit(_run())
    except ScaffoldError as error:
        say_error(error)
        sys.exit(error.exit_code)
    except (RecursionError, MemoryError):
        message = "something that was read is nested too deeply, or too large"
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
    """The exit code of the command; what Typer has against the words is one of our errors."""
    try:
        found = application(_asked())(prog_name="scaffold", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except CLICK as error:
        refusal = _refusal(error)
        if refusal is None:  # nothing was asked for: help is shown
            error.show()  # type: ignore[attr-defined]
            return ScaffoldError.exit_code
        if {"json", "--json", "--format=json"} & set(sys.argv):
            show_refusal(refusal)
        raise refusal from None
    return found if isinstance(found, int) else 0


# What options that say an op are also called, elsewhere or at a first guess.
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
# Options that went, and what to do instead.
GONE = {
    "--mutants": "leave it out: to plant mistakes is left to scaffold's own tests",
    "--op": "leave it out, with --mutants: scaffold verify NAME runs the tests of one op",
    "--verify": "new-op proves what it writes; with --stdout it prints that and writes nothing",
    "--no-verify": "leave it out: nothing is proven here",
    "--explain": "scaffold derive NAME --explain shows how a backward came about",
    "--double-backward": "leave it out: every op can be differentiated again",
    "--configuration": "scaffold config shows the keys of [tool.scaffold]",
}
# What commands are called elsewhere, or at a first guess.
MEANT_COMMANDS = {
    "version": "--version",
    **dict.fromkeys(("new", "add", "create", "gen", "generate"), "new-op NAME"),
    **dict.fromkeys(("test", "prove"), "verify"),
    **dict.fromkeys(("rm", "delete"), "remove OP"),
    "mv": "rename OP NEW",
    "update": "sync, or scaffold upgrade",
    "diff": "check --diff",
    "fix": "lint --fix",
    "stats": "lint",  # it counted Functions, until it went
}


def _refusal(error: Any) -> ScaffoldError | None:
    """What is wrong with the words: which one, and what to type instead."""
    said = error.format_message().rstrip(".")
    if said.startswith("Usage: "):
        return None
    context = error.ctx
    path = context.command_path if context else f"scaffold {_asked()}".strip()
    message, _, known = said.partition(" (Possible options: ")
    message, _, meant = message.partition(". Did you mean ")
    message = f"{message[:1].lower()}{message[1:]}"
    hint = f"see {path} --help"
    known_here = _options(context)
    option = MEANT.get(message.removeprefix("no such option: "), "")
    gone = GONE.get(message.removeprefix("no such option: "))
    command = MEANT_COMMANDS.get(message.removeprefix("no such command ").strip("'"))
    single = [word for word in sys.argv if f"-{word}" in known_here]  # -forward
    if command and path == "scaffold":
        hint = f"write: scaffold {command}; or {hint}"
    elif gone:
        hint = gone
    elif option.partition(" ")[0] in known_here:
        hint = f"write: {option}"
    elif single and message.startswith("no such option"):
        hint = f"write: -{single[0]}"
    elif message == "missing argument 'NAME'":
        hint = f"the name of the op comes first: {path} swish --inputs 'x'; or {hint}"
    elif "unexpected extra argument" in message and "--inputs" in known_here:
        hint = f"put what has spaces in quotes: {_in_quotes(context)}; or {hint}"
        if "--surrogate" in sys.argv:  # which takes no value
            hint = "write: --surrogate-forward 'TEXT'"
    elif closest := did_you_mean(
        message.rpartition(" ")[2], known.rstrip(")").split(", ")
    ):
        hint = f"{closest} or {hint}"
    elif close := meant.rstrip("?"):
        hint = f"did you mean {close}? or {hint}"
    return ScaffoldError(message, Location(path), hint)


def _in_quotes(context: Any) -> str:
    """What a shell cut at its spaces as it should have been typed: `--forward 'x * 2'`."""
    options = (one for one in context.command.params if isinstance(one, TyperOption))
    taking = {name for one in options for name in one.opts if not one.is_flag}
    for at, word in enumerate(sys.argv):
        value = [*takewhile(lambda other: other[:2] != "--", sys.argv[at + 1 :])]
        if word in taking and len(value) > 1:
            globbed = any(map(os.path.exists, value))  # a bare * is every file here
            return f"{word} {shlex.quote('x * 2' if globbed else ' '.join(value))}"
    return "--inputs 'x, y'"


def _options(context: Any) -> frozenset[str]:
    """The options of the command that the words were for."""
    known = context.command.params if context else ()
    return frozenset(name for one in known for name in (*one.opts, *one.secondary_opts))


def _give_up_output() -> None:
    """Let the interpreter not try again, on its way out, to write what could not be written."""
    with suppress(OSError, AttributeError):
        sys.stdout.close()
