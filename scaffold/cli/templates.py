"""`scaffold templates`: which templates apply, a start for one of your own, what yours change, what is wrong with them.

In: the configuration and `--template-dir`. Out: text on stdout, or one JSON object; `eject` writes one file.
Invariant: exit 0 of `lint` means that every template renders every kind of op to Python.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.cli.choices import FORMAT, check_format, completing
from scaffold.cli.programs import as_problem, show_object
from scaffold.cli.test_stub import DIFF, DRY_RUN, ON_CONFLICT
from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all

if TYPE_CHECKING:
    from scaffold.cli.settle import Settled
    from scaffold.render.templates import Templates

NAMES = {"op": "op.py.jinja", "test": "test.py.jinja"}

templates = typer.Typer(
    help="List, start, compare and check templates of yours.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
NAME = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="op or test, whose built-in template it starts from.",
        autocompletion=completing(NAMES),
    ),
]
BLOCK = Annotated[
    list[str] | None,
    typer.Option("--block", help="Override this block alone.", metavar="BLOCK"),
]
TEMPLATE_DIR = Annotated[
    list[str] | None,
    typer.Option(
        "--template-dir",
        help="Templates of yours, before those of the configuration.",
        metavar="DIR",
    ),
]


@templates.command("list")
def list_templates(template_dir: TEMPLATE_DIR = None, format_: FORMAT = "text") -> None:
    """List the templates: where each comes from, and which blocks it overrides."""
    from scaffold.cli.ejecting import listed_templates

    check_format(format_)
    rows = listed_templates(_templates(template_dir))
    if format_ == "json":
        found = [row._asdict() for row in rows]
        show_object({"templates": found})
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        blocks = f": {', '.join(row.blocks)}" if row.extends and row.blocks else ""
        over = f" over {row.extends}{blocks}" if row.extends else ""
        typer.echo(f"{row.name:{width}}  {row.path}{over}")


@templates.command("eject")
def eject(
    name: NAME,
    block: BLOCK = None,
    template_dir: TEMPLATE_DIR = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
) -> None:
    """Write a template of yours to start from: some blocks of ours, or with no --block all of it.

    A block that is overridden alone leaves the others to us, so that they go on to improve.

    Example: scaffold templates eject op --block wrapper --template-dir templates
    """
    from scaffold.cli.choices import check_policy
    from scaffold.cli.ejecting import ejected
    from scaffold.cli.report import tell
    from scaffold.cli.settle import Known, look, undisturbed, write_once

    known = NAMES.get(name, name)
    if known not in NAMES.values():
        hint = did_you_mean(name, NAMES) or f"one of: {', '.join(NAMES)}"
        raise ScaffoldError(f"there is no template '{name}'", Location("NAME"), hint)
    policy = check_policy(on_conflict)
    directory = first_directory(template_dir)
    settle = look if dry_run or diff else write_once

    def attempt() -> "Settled":
        found = ejected(known, tuple(block or ()), directory)
        adds = found.added and policy == "ask"  # nothing of the file is lost
        reads = Known(reads={found.path: found.before})
        files = {found.path: found.text}
        return settle(files, found.root, "overwrite" if adds else policy, reads)

    tell(undisturbed(attempt), with_diff=diff)


@templates.command("diff")
def diff_templates(template_dir: TEMPLATE_DIR = None) -> None:
    """Show what your templates change in those below them, block by block."""
    from scaffold.cli.ejecting import differences

    for difference in differences(_templates(template_dir)):
        typer.echo(difference, nl=False)


@templates.command("lint")
def lint_templates(template_dir: TEMPLATE_DIR = None, format_: FORMAT = "text") -> None:
    """Check templates: their syntax, their blocks, and what they make of every kind of op.

    Exit code 1: a block overrides nothing; 2: a template cannot be rendered, or not to Python.
    """
    from scaffold.cli.trying import problems_of

    check_format(format_)
    found = _templates(template_dir)
    problems = problems_of(found)
    if format_ == "json":
        data = [as_problem(problem) for problem in problems]
        show_object({"problems": data})
        raise typer.Exit(max((item.exit_code for item in problems), default=0))
    raise_all(problems)
    count = len(found.sources)
    typer.echo(f"{count} template{'s' * (count != 1)}, no problem")


def _templates(given: list[str] | None) -> "Templates":
    from scaffold.cli.here import configuration_here
    from scaffold.cli.house import find_templates

    return find_templates(configuration_here(), {"template-dir": given or []})


def first_directory(given: list[str] | None) -> Path:
    """Where a template of the user's goes: the option's directory, or the configuration's first."""
    from scaffold.cli.here import configuration_here

    if given:
        return Path(given[0])
    configuration = configuration_here()
    if not configuration.template_dirs:
        hint = "say --template-dir DIR, or in [tool.scaffold]: template-dirs = ['DIR']"
        raise ScaffoldError("there is no directory of templates", None, hint)
    return Path(configuration.root, configuration.template_dirs[0])
