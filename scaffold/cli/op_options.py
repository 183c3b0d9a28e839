"""The options of `new-op` as data, and a Typer command made of them.

In: rows of a table. Out: a signature that Typer reads. Invariant: an option of the specification is one key of its TOML
form, so what the command line accepts is what a file accepts.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from scaffold.cli.options import FORMATS, completing
from scaffold.workspace import POLICIES

if TYPE_CHECKING:
    from scaffold.project.specification import Values


class Option(NamedTuple):
    """One option: its flags, the key of the specification it sets, its help."""

    flags: str  # "--outputs", or "--materialize-grads/--no-materialize-grads"
    help: str
    kind: type = str  # str, bool, or list: given several times
    key: str = ""  # where it is not the flag's own name; "name=" rows fill a table
    metavar: str = "TEXT"
    choices: tuple[str, ...] = ()  # the words that it takes, where it takes only some

    @property
    def name(self) -> str:
        """The key of the specification, or of the command's own settings."""
        return self.key or self.flags.split("/")[0].removeprefix("--")


FORMAT = Option("--format", "text or json.", metavar="FORMAT", choices=FORMATS)
SPECIFICATION = (
    Option(
        "--inputs", "Inputs in call order: 'x[..., D], weight[D]?, eps: float = 1e-6'."
    ),
    Option(
        "--outputs", "Outputs: 'values, indices[N; int]' (default: one, named output)."
    ),
    Option(
        "--schema", "A PyTorch schema instead: 'scale(Tensor x, float a) -> Tensor'."
    ),
    Option("--class-name", "What classes call the op (default: from NAME)."),
    Option("--doc", "First line of the docstring."),
    Option(
        "--forward", "Expression, statements with a return, or '@file.py[:function]'."
    ),
    Option(
        "--grad", "Formula of one gradient: 'weight=grad_output.t() @ input'.", list
    ),
    Option(
        "--backward", "Statements that assign grad_<input>, or '@file.py[:function]'."
    ),
    Option(
        "--surrogate/--no-surrogate",
        "The gradient is not the forward's derivative.",
        bool,
    ),
    Option("--surrogate-forward", "The function whose derivative the gradient is."),
    Option(
        "--import", "A function of yours to use: 'my_kernels:forward_kernel'.", list
    ),
    Option(
        "--optional", "Inputs that may be None, as 'name?' says.", list, metavar="NAMES"
    ),
    Option(
        "--nondiff",
        "Inputs without a gradient, as '; const' says.",
        list,
        metavar="NAMES",
    ),
    Option(
        "--dirty", "Inputs that the forward changes in place.", list, metavar="NAMES"
    ),
    Option("--require", "A condition on the sizes: 'H % G == 0'.", list),
    Option("--samples", "Test inputs of your own: '@file.py:make'."),
    Option(
        "--derive/--no-derive",
        "Leave gradients that no formula states a skeleton.",
        bool,
    ),
    Option(
        "--once-differentiable/--no-once-differentiable",
        "Forbid a second derivative.",
        bool,
    ),
    Option("--reason", "Why the op can be differentiated only once."),
    Option(
        "--transforms/--no-transforms", "A vmap rule and tests of torch.func.", bool
    ),
    Option(
        "--materialize-grads/--no-materialize-grads", "Zeros for unused outputs.", bool
    ),
    Option(
        "--style",
        "setup-context or combined.",
        metavar="STYLE",
        choices=("setup-context", "combined"),
    ),
    Option(
        "--save-policy",
        "recompute or balanced.",
        metavar="POLICY",
        choices=("recompute", "balanced"),
    ),
    Option(
        "--shape-checks/--no-shape-checks",
        "Raise where a declared shape is broken that the backward relies on.",
        bool,
    ),
    Option("--tolerance", "For gradcheck: 'eps=1e-6, atol=1e-4, nondet_tol=0'."),
    Option("--module/--no-module", "Write an nn.Module.", bool),
    Option(
        "--params", "Inputs that the module owns as parameters.", list, metavar="NAMES"
    ),
    Option(
        "--buffers", "Inputs that the module owns as buffers.", list, metavar="NAMES"
    ),
    Option("--update", "New value of a buffer in training: 'running_mean=...'.", list),
    Option("--init", "Start of a parameter: 'weight=kaiming_uniform(a=5**0.5)'.", list),
    Option("--test/--no-test", "Write the test file.", bool),
)
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
SETTINGS = (
    Option("--spec", "Read the op from this TOML file: [ops.NAME].", metavar="FILE"),
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
OF_THE_FUNCTION = tuple(
    option
    for option in SPECIFICATION
    if option.name
    not in ("module", "params", "buffers", "update", "init", "test", "samples")
    and option.name not in ("tolerance", "require")
)
DERIVE = (
    *OF_THE_FUNCTION,
    Option("--spec", "Read the op from this TOML file: [ops.NAME].", metavar="FILE"),
    TEMPLATE_DIR,
    Option("--explain", "Show the steps before the Function.", bool),
    Option(
        "--sizes", "For the bytes of --explain: 'N=32, D=512, ...=8'.", metavar="SIZES"
    ),
    Option(
        "--verify/--no-verify",
        "Run it against PyTorch's autograd before it is printed (default: no).",
        bool,
    ),
    PYTHON,
    LIMIT,
    FORMAT,
)


def split_settings(given: "Values") -> "tuple[Values, Values]":
    """The keys of the specification, and what is about the run."""
    keys = {option.name for option in SPECIFICATION}
    return (
        {key: value for key, value in given.items() if key in keys},
        {key: value for key, value in given.items() if key not in keys},
    )


def command(
    run: "Callable[[str, Values, Values], None]", help_text: str
) -> Callable[..., None]:
    """A Typer command `NAME [options]` that hands what was given to `run`, by key."""

    def split(name: str, given: "Values") -> None:
        run(name, *split_settings(given))

    return make_command(split, help_text, NAME, (*SPECIFICATION, *SETTINGS))


def make_command(
    run: "Callable[[Any, Values], None]",
    help_text: str,
    argument: Any,
    options: tuple[Option, ...],
) -> Callable[..., None]:
    """A Typer command with one argument that hands the options that were given to `run`, by key."""
    keys = {_identifier(option): option.name for option in options}

    def invoke(argument_: Any, **values: Any) -> None:
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
    return option.flags.split("/")[0].removeprefix("--").replace("-", "_") + "_"


def _parameter(option: Option) -> inspect.Parameter:
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
