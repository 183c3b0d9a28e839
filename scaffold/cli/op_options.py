"""Options of an op: those of `new-op` as data, made into a Typer command.

The commands about one op, new-op, derive, show and bench, share these options; a hundred of them are not written as parameters of
a function, but made from data.

Words: a *key* is one of an op's table in TOML, `save-policy`; a *setting* is an option about the run; `given` are the options typed, by
key.

In: the keys of the specification (`spec/keys.py`: a new option is a row there), rows for options about a run. Out: a signature for
Typer.
Invariant: an option of the specification is made from the key of its TOML form, so the command line accepts the same values as a
file.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from scaffold.cli.options import FORMATS, completing, format_help
from scaffold.errors import Location, ScaffoldError
from scaffold.spec.keys import KERNELS, KEYS, Key
from scaffold.spec.kinds import EITHER, NAMES, SWITCH, TABLE, TEXTS
from scaffold.workspace.conflicts import POLICIES

if TYPE_CHECKING:
    from scaffold.project.specification import Values


class Option(NamedTuple):
    """One option: its flags, the key of the specification it sets, its help."""

    flags: str  # "--outputs", or "--materialize-grads/--no-materialize-grads"
    help: str
    kind: type = str  # str, bool, int, or list: repeatable
    metavar: str = "TEXT"
    choices: tuple[str, ...] = ()  # the allowed words, if limited

    @property
    def name(self) -> str:
        """Return the key of the specification, or of the command's own settings."""
        return self.flags.split("/")[0].removeprefix("--")


FORMAT = Option("--format", format_help(FORMATS), metavar="FORMAT", choices=FORMATS)
# Typer's type for a kind of value; others are texts. A list is a repeatable option.
LISTED = (TEXTS, NAMES, TABLE, KERNELS)
TAKEN = ((SWITCH, bool), (EITHER, bool), *((kind, list) for kind in LISTED))


def _option(name: str, key: Key) -> Option:
    """Return the option for a key of the specification: a switch, `--derive/--no-derive`, a text, or a repeatable one."""
    kind = key.kind
    taken = next((taken for known, taken in TAKEN if known is kind), str)
    flags = f"--{name}/--no-{name}" if taken is bool else f"--{name}"
    words = key.option or key.help
    if kind.choices:
        words = f"{words.removesuffix('.')}: {' or '.join(kind.choices)}."
    return Option(flags, words, taken, kind.metavar, kind.choices)


def _specification() -> Iterator[Option]:
    """Yield an option for each key of the specification, and --surrogate-forward."""
    for name, key in KEYS.items():
        yield _option(name, key)
        # In a table the one key is a switch or a text; Typer needs two options for that.
        if name == "surrogate":
            words = "The function whose derivative the gradient is."
            yield Option("--surrogate-forward", words)


SPECIFICATION = tuple(_specification())
PYTHON = Option(
    "--python",
    "The interpreter that has PyTorch (default: one that has it, from here up).",
    metavar="PATH",
)
LIMIT = Option(
    "--limit", "Seconds for the proof (default: 30).", int, metavar="SECONDS"
)
TEMPLATE_DIR = Option(
    "--template-dir",
    "Templates of yours, before those of the configuration.",
    list,
    metavar="DIR",
)
EXPLAIN = Option("--explain", "Show the rules that were used and what is saved.", bool)
SPEC = Option("--spec", "Read the op from this TOML file: [ops.NAME].", metavar="FILE")
SETTINGS = (
    SPEC,
    Option(
        "--out-dir",
        "Where the op goes (default: the configuration's, or here).",
        metavar="DIR",
    ),
    Option("--test-dir", "Where its tests go (default: as --out-dir).", metavar="DIR"),
    TEMPLATE_DIR,
    Option(
        "--on-conflict",
        "If a file differs: ask, abort, skip, overwrite or merge.",
        metavar="POLICY",
        choices=POLICIES,
    ),
    Option(
        "--verify/--no-verify",
        "Run it against PyTorch's autograd before it is written (default: if derived).",
        bool,
    ),
    PYTHON,
    LIMIT,
    Option("--dry-run", "Say what would be written, and write nothing.", bool),
    Option("--diff", "Show the difference to what is there, and write nothing.", bool),
    Option("--stdout", "Print the files, and write nothing.", bool),
    FORMAT,
)
OF_THE_FUNCTION = (
    *(
        item
        for item in SPECIFICATION
        # --surrogate-forward is no key by that name, and is about the Function.
        if item.name not in KEYS or KEYS[item.name].function
    ),
    SPEC,
)
DERIVE = (
    *OF_THE_FUNCTION,
    TEMPLATE_DIR,
    EXPLAIN,
    Option(
        "--sizes", "For the bytes of --explain: 'N=32, D=512, ...=8'.", metavar="SIZES"
    ),
    FORMAT,
)
PICTURES = ("svg", "mermaid", "json")
SHOW = (
    *OF_THE_FUNCTION,
    Option("--sizes", "For the bytes: 'N=32, D=512, ...=8'.", metavar="SIZES"),
    Option(
        "--format",
        format_help(PICTURES),
        metavar="FORMAT",
        choices=PICTURES,
    ),
    Option("--out", "The file (default: NAME.svg or NAME.mmd).", metavar="FILE"),
    Option(
        "--on-conflict",
        "If the file differs: ask, abort, skip, overwrite or merge.",
        metavar="POLICY",
        choices=POLICIES,
    ),
    Option("--dry-run", "Say what would be written, and write nothing.", bool),
    Option("--stdout", "Print the picture, and write nothing.", bool),
)
DTYPES = ("float32", "bfloat16", "float16", "float64")
BENCH = (
    *OF_THE_FUNCTION,
    Option("--sizes", "Its sizes: 'N=32, D=512, ...=8x64'.", list, metavar="SIZES"),
    Option("--dtype", f"One of {', '.join(DTYPES)}.", list, "DTYPE", DTYPES),
    Option("--device", "cpu (default), cuda, cuda:1, ...", metavar="DEVICE"),
    Option("--against", "Another operator: 'F.silu(x)'.", metavar="EXPR"),
    Option("--compile/--no-compile", "Measure torch.compile, too (on).", bool),
    Option("--create-graph", "Measure a backward that can be differentiated.", bool),
    Option("--rounds", "Turns of each variant (default: 15).", int, metavar="NUMBER"),
    Option("--threads", "Threads on the CPU (default: 1).", int, metavar="NUMBER"),
    Option("--plot", "Draw the times into this SVG file.", metavar="FILE"),
    PYTHON,
    Option("--limit", "Seconds for each step (default: 120).", int, metavar="SECONDS"),
    FORMAT,
)


def split_settings(given: "Values") -> "tuple[Values, Values]":
    """Split the given options into keys of the specification and settings of the run; raise ScaffoldError for an outdated value."""
    keys = {option.name for option in SPECIFICATION}
    if given.get("amp") == "lower":  # a table of an older version is read
        hint = "write: --amp region, or leave it out: the backward runs under the autocast of the forward"
        raise ScaffoldError("'lower' is now 'region'", Location("--amp"), hint)
    return (
        {key: value for key, value in given.items() if key in keys},
        {key: value for key, value in given.items() if key not in keys},
    )


def typed_sizes(
    settings: "Values", problems: list[ScaffoldError]
) -> "Mapping[str, int]":
    """Return the number of elements of each dim in --sizes; {} if it is malformed, and then the error is added to `problems`."""
    from scaffold.project.explanation import read_sizes

    try:
        return read_sizes(settings.get("sizes", ""))
    except ScaffoldError as error:
        problems.append(error)
        return {}


def command(
    run: "Callable[[str, Values, Values], None]", help_text: str
) -> Callable[..., None]:
    """Return a Typer command `NAME [options]`: it calls `run` with the name, the given keys and the given settings."""

    def split(name: str, given: "Values") -> None:
        """Call `run` with keys and settings apart."""
        run(name, *split_settings(given))

    return make_command(split, help_text, NAME, (*SPECIFICATION, *SETTINGS))


def make_command(
    run: "Callable[[Any, Values], None]",
    help_text: str,
    argument: Any,
    options: tuple[Option, ...],
) -> Callable[..., None]:
    """Return a Typer command with one argument and these options; it calls `run` with the argument and the values given, by key.

    Typer reads a command's options from its signature, so one is made of the data and set.
    """
    keys = {_identifier(option): option.name for option in options}

    def invoke(argument_: Any, **values: Any) -> None:
        # None or [] is an option not given.
        given = {
            keys[key]: value for key, value in values.items() if value not in (None, [])
        }
        run(argument_, given)

    invoke.__doc__ = help_text
    first = inspect.Parameter(
        "argument_", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=argument
    )
    rows = [_parameter(option) for option in options]
    invoke.__signature__ = inspect.Signature([first, *rows])  # type: ignore[attr-defined]
    invoke.__annotations__ = {row.name: row.annotation for row in (first, *rows)}
    return invoke


NAME = Annotated[
    str, typer.Argument(metavar="NAME", help="The op: rms_norm or RMSNorm.")
]


def _identifier(option: Option) -> str:
    """Return the name of a command's parameter for an option: `save_policy_` for --save-policy, no keyword of Python."""
    return option.name.replace("-", "_") + "_"


def _parameter(option: Option) -> inspect.Parameter:
    """Return the parameter of a command for an option; it is None if the option is not given."""
    kinds = {bool: bool | None, int: int | None, list: list[str] | None}
    kind: Any = kinds.get(option.kind, str | None)
    metavar = None if option.kind is bool else option.metavar
    shown = typer.Option(
        option.flags,
        help=option.help,
        metavar=metavar,
        show_default=False,
        autocompletion=completing(option.choices) if option.choices else None,
    )
    return inspect.Parameter(
        _identifier(option),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, shown],
    )
