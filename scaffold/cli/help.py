"""Help pages: commands in groups, options in panels, the commonest ones first.

`app.py` fills a `Page` from Typer's commands, and shows what `page` makes of it in place of Typer's own help.

Words: a *row* is a name with its meaning; a *panel* a heading with some options of a command, *common* if it is shown without
--help-all; `every` asks for all options.

In: rows of names and their meanings. Out: text of the terminal's width.
Invariant: an option or a command in no panel is shown too, in a panel of its own behind `--help-all`. Slow imports are avoided: the
first page is shown without Typer.
"""

import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from scaffold.cli.terminal import paint, width_of

Rows = Sequence[tuple[str, str]]

SUMMARY = """Write custom PyTorch operators: Function, wrapper, Module and tests.

Say what an op computes; its backward is derived, and proven against PyTorch's autograd before anything is written.
"""
# The first page's line for each command, in its groups.
GROUPS: dict[str, dict[str, str]] = {
    "Write an op": {
        "new-op": "Write an op: its Function, wrapper, Module and tests.",
        "derive": "Print the Function of an op, its backward derived.",
        "show": "Draw an op: forward, backward, and what is saved in between.",
        "bench": "Measure an op beside plain autograd and torch.compile.",
        "examples": "Print complete commands to copy: a norm, a loss, ...",
    },
    "Keep the ops of a project": {
        "init": "Make a directory a project.",
        "sync": "Write the files of every op of a manifest, or update them.",
        "check": "Check that the files are up to date with the manifest.",
        "verify": "Run the tests of ops, or check hand-written Functions.",
        "upgrade": "Bring ops up to date and keep what was edited by hand.",
        "rename": "Rename an op: its files, its entry in the manifest, its names.",
        "remove": "Remove ops: their files, records and entries in the manifest.",
        "list": "List the ops of the manifest and their files.",
    },
    "Functions written by hand": {
        "lint": "Find mistakes in hand-written autograd.Functions.",
        "test-stub": "Write gradient tests for hand-written autograd.Functions.",
        "adopt": "Write the specification of a hand-written Function, as TOML.",
    },
    "Look up and adapt": {
        "help": "Show help: scaffold help new-op.",
        "rules": "Show the rules of differentiation; check a table of yours.",
        "templates": "List, start, compare and check templates of yours.",
        "config": "Show the configuration, and where each value is set.",
        "schema": "Print the JSON Schema of a file of ops.",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
# The options of every command, and their meanings.
SHARED = {
    "-q, --quiet": "Print only the result and errors.",
    "-v, --verbose": "Print more: the configuration, every file and note, the time.",
    "-h, --help": "Show this page.",
    "--help-all": "Show every option.",
}
FIRST_PAGE = {
    "-V, --version": "Show the version.",
    **SHARED,
}
EXAMPLES = (
    "scaffold new-op swish --inputs 'x' --forward 'x * torch.sigmoid(x)'",
    "scaffold examples norm",
    "scaffold help new-op",
)


class Panel(NamedTuple):
    """Options of a command under a heading."""

    title: str
    options: tuple[str, ...]  # by their first long name
    common: bool = True  # or only with --help-all


_SAID_OTHERWISE = Panel(
    "Inputs and outputs, in other forms",
    (*("--schema", "--optional", "--nondiff", "--require"),),
    common=False,
)
_GRADIENTS = Panel(
    "Gradients, in detail",
    (
        *("--derive", "--once-differentiable", "--reason"),
        *("--materialize-grads", "--save-policy", "--transforms"),
        *("--forward-ad", "--amp"),
    ),
    common=False,
)
_STYLE = Panel(
    "How the Function is written",
    ("--class-name", "--doc", "--style", "--namespace", "--sharding", "--shape-checks"),
    common=False,
)
_MATHS = (
    Panel(
        "What it computes",
        ("--inputs", "--forward", "--outputs", "--import", "--dirty"),
    ),
    Panel(
        "Gradients of your own, in place of derived ones",
        ("--grad", "--backward", "--surrogate", "--surrogate-forward"),
    ),
)
_OPERATION = (
    Panel(
        "What is written",
        ("--dry-run", "--diff", "--on-conflict", "--verify", "--prove"),
    ),
)
# Commands with few options have no panels: theirs are shown together.
PANELS: dict[str, tuple[Panel, ...]] = {
    "new-op": (
        *_MATHS,
        Panel(
            "What is written",
            (
                *("--params", "--module", "--kernels", "--out-dir", "--dry-run"),
                "--stdout",
            ),
        ),
        _SAID_OTHERWISE,
        _GRADIENTS,
        _STYLE,
        Panel("The nn.Module", ("--buffers", "--update", "--init"), common=False),
        Panel(
            "Tests and proof",
            (
                *("--verify", "--test", "--samples", "--test-shapes"),
                *("--tolerance", "--python", "--limit"),
            ),
            common=False,
        ),
        Panel(
            "Files",
            (
                *("--spec", "--test-dir", "--template-dir", "--on-conflict"),
                *("--diff", "--format"),
            ),
            common=False,
        ),
    ),
    "derive": (
        *_MATHS,
        Panel("What is printed", ("--explain", "--sizes", "--format")),
        _SAID_OTHERWISE,
        _GRADIENTS,
        _STYLE,
    ),
    "show": (
        *_MATHS,
        Panel("What is drawn", ("--format", "--sizes", "--out", "--stdout")),
        _SAID_OTHERWISE,
        _GRADIENTS,
        _STYLE,
    ),
    "bench": (
        *_MATHS,
        Panel(
            "What is measured",
            (
                *("--sizes", "--dtype", "--device", "--against", "--compile"),
                *("--create-graph", "--rounds", "--threads"),
            ),
        ),
        Panel("What is shown", ("--format", "--plot")),
        _SAID_OTHERWISE,
        _GRADIENTS,
        _STYLE,
    ),
    "sync": _OPERATION,
    "upgrade": _OPERATION,
}
# How inputs are written, for the commands about an op: a newcomer sees it nowhere else.
OF_AN_OP = ("new-op", "derive", "show", "bench")
INPUTS = {
    "x": "a tensor of any shape",
    "x[N, D]": "of this shape",
    "x[..., D]": "any leading dims, each input's own: they broadcast",
    "x[*batch, D]": "any leading dims, the same wherever the name stands",
    "x[N, half]": "names or numbers, and a formula may read the names; for D // 2: --require 'D == 2 * half'",
    "bias[D]?": "may be None",
    "mask[N; bool]": "bool or int; index(C): integers below C",
    "z[N; complex]": "complex; positive, distinct, ...: the values in tests",
    "cos[T, D; const]": "has no gradient",
    "eps: float = 1e-6": "float, int, bool or str; its default",
    "*tensors": "any number of tensors",
}


class Page(NamedTuple):
    """The contents of a command's help page."""

    path: str  # "scaffold new-op"
    usage: str
    text: str
    arguments: Rows
    options: dict[str, tuple[str, str]]  # by the first long name
    shared: Rows
    commands: Rows = ()

    @property
    def name(self) -> str:
        """Return the command's name, `new-op` or `rules list`."""
        return self.path.removeprefix("scaffold ")


def first_page(every: bool = False) -> str:
    """Return the help of the tool itself; with `every` option, the ones of shell completion too."""
    lines = [*_usage("scaffold COMMAND [OPTIONS]"), *_text(SUMMARY)]
    for title, commands in GROUPS.items():
        lines += _section(title, list(commands.items()), cells=9)
    completion = {
        "--install-completion": "Install completion for the current shell.",
        "--show-completion": "Show completion for the current shell, to copy it.",
    }
    options = FIRST_PAGE | (completion if every else {})
    lines += _section("Options", list(options.items()))
    return "\n".join([*lines, *_examples(EXAMPLES)])


def page(asked: Page, every: bool = False) -> str:
    """Return the help of a command; without `every`, the common options alone, and the number of others."""
    text, examples = _split(asked.text)
    lines = [*_usage(f"{asked.path} {asked.usage}"), *_text(text)]
    lines += _section("Arguments", asked.arguments)
    lines += _section("Commands", asked.commands)
    left = 0
    for panel in _panels(asked):
        rows = [asked.options[name] for name in panel.options if name in asked.options]
        if panel.common or every:
            lines += _section(panel.title, rows)
        else:
            left += len(rows)
    if asked.name in OF_AN_OP:
        lines += _section("How --inputs are written", list(INPUTS.items()))
    if every:
        lines += _section("Of every command", asked.shared)
    lines += _examples(examples)
    if not every:
        what = f"{left} more options" if left else "-q, -v and all else"
        lines += ["", f"{what}: {asked.path} --help-all"]
    return "\n".join(lines)


def _panels(asked: Page) -> Iterator[Panel]:
    """Yield the panels of a command, in order; a last one has the options in none of them, as none may be lost."""
    panels = PANELS.get(asked.name, ())
    yield from panels
    named = {name for panel in panels for name in panel.options}
    rest = tuple(name for name in asked.options if name not in named)
    yield Panel("More" if panels else "Options", rest, common=not panels)


def _split(text: str) -> tuple[str, list[str]]:
    """Return a command's text without its examples, and these: the paragraphs `Example: scaffold ...`."""
    paragraphs = textwrap.dedent(text).strip().split("\n\n")
    begin = "Example: "
    examples = [item for item in paragraphs if item.startswith(begin)]
    rest = [item for item in paragraphs if not item.startswith(begin)]
    return "\n\n".join(rest), [item.removeprefix(begin) for item in examples]


def _usage(text: str) -> list[str]:
    """Return the line `Usage: ...` and a blank one."""
    return [f"{paint('Usage:', 'heading', sys.stdout)} {text}", ""]


def _width() -> int:
    """Return the columns for text: those of the terminal, within limits for reading."""
    return max(50, min(width_of(sys.stdout), 100) - 2)


def _text(text: str) -> list[str]:
    """Return the paragraphs of a text, indented and wrapped to the width, with blank lines in between."""
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [*_filled(" ".join(paragraph.split()), "  "), ""]
    return lines[:-1]


def _filled(text: str, indent: str) -> list[str]:
    """Return a paragraph's lines, wrapped to the width; words stay whole."""
    return textwrap.wrap(
        text,
        _width(),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _section(title: str, rows: Rows, cells: int = 0) -> list[str]:
    """Return a heading and its rows, names beside their meanings in a column at least `cells` wide; [] without rows."""
    if not rows:
        return []
    widest = _width() // 3
    # The meaning of a longer name stands below it; so 20 columns do if all are longer.
    fitting = [len(name) for name, _ in rows if len(name) <= widest]
    column = max(cells, *fitting) if fitting else max(cells, 20)
    lines = ["", paint(f"{title}:", "heading", sys.stdout)]
    for name, meaning in rows:
        lines += _row(name, meaning, column)
    return lines


def _row(name: str, meaning: str, column: int) -> Iterable[str]:
    """Return the lines of one row: the meaning begins beside the name, or below a name longer than the column."""
    painted = paint(name, "option", sys.stdout)
    indent = " " * (column + 4)
    filled = _filled(meaning, indent) or [indent]
    if len(name) > column:
        return [f"  {painted}", *filled]
    first = f"  {painted}{' ' * (column - len(name))}  {filled[0].strip()}".rstrip()
    return [first, *filled[1:]]


def _examples(examples: Sequence[str]) -> list[str]:
    """Return the examples below their heading; [] without any."""
    if not examples:
        return []
    heading = paint("Examples:", "heading", sys.stdout)
    return ["", heading, *textwrap.indent("\n".join(examples), "  ").split("\n")]
