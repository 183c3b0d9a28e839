"""`scaffold templates`: list, start, compare and check templates.

A team changes generated files by templates (Jinja) of its own, which replace *blocks* of ours.

Words: a template *extends* the one below it, its *parent*; templates lie in *layers*: --template-dir, the directories of the
configuration, ours at the bottom; an *outline* is a template's blocks; a *house* is how a team's files look.

In: the configuration and `--template-dir`. Out: text on stdout, or one JSON object; `eject` writes one file.
Invariant: exit 0 of `lint` means that the templates render the sample ops to Python. Each problem is reported once, not for each
op.
"""

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from scaffold.cli.options import (
    DIFF,
    DRY_RUN,
    FORMAT,
    ON_CONFLICT,
    TEMPLATE_DIR,
    check_format,
    check_policy,
    completing,
)
from scaffold.cli.output import TERMINAL, Showing, as_problem, show_object, tell
from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.files import read_bytes
from scaffold.project.configuration import configuration_here
from scaffold.project.places import Places, configured_directories, find_templates
from scaffold.project.rendering import Setting, make, start_rendering, within_limits
from scaffold.project.writing import Known, look, undisturbed, write_once
from scaffold.render.blocks import Outline, outline, parent_of
from scaffold.render.file_style import House
from scaffold.render.layout import Directories
from scaffold.render.op_testing import op_testing_draft
from scaffold.render.sample_ops import SOURCE, sample_ops
from scaffold.render.sandbox import TOO_LONG
from scaffold.render.templates import (
    BUILT_IN_NAME,
    WRITTEN,
    Source,
    Templates,
    built_in,
    read_templates,
)
from scaffold.spec import Configuration
from scaffold.spec.problems import always_at

if TYPE_CHECKING:
    from scaffold.project.writing import Settled


NAMES = {
    "op": "op.py.jinja",
    "test": "test.py.jinja",
    "op_testing": "op_testing.py.jinja",
}

templates = typer.Typer(
    help="List, start, compare and check templates of yours.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
NAME = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="op, test or op_testing, whose built-in template it starts from.",
        autocompletion=completing(NAMES),
    ),
]
BLOCK = Annotated[
    list[str] | None,
    typer.Option("--block", help="Override this block alone.", metavar="BLOCK"),
]


@templates.command("list")
def list_templates(template_dir: TEMPLATE_DIR = None, format_: FORMAT = "text") -> None:
    """List the templates: where each comes from, and which blocks it overrides."""

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
    known = NAMES.get(name, name)
    if known not in NAMES.values():
        hint = did_you_mean(name, NAMES) or f"one of: {', '.join(NAMES)}"
        raise ScaffoldError(f"there is no template '{name}'", Location("NAME"), hint)
    policy = check_policy(on_conflict)
    directory = first_directory(template_dir)
    settle = look if dry_run or diff else write_once

    def attempt() -> "Settled":
        found = ejected(known, tuple(block or ()), directory)
        adds = found.added and policy == "ask"  # the file keeps its content
        reads = Known(reads={found.path: found.before})
        files = {found.path: found.text}
        # Nothing of the user's is lost, so nothing is asked; another policy was chosen, and holds.
        chosen = "overwrite" if adds else policy
        return settle(files, found.root, chosen, reads, TERMINAL)

    tell(undisturbed(attempt), Showing(diff=diff))


@templates.command("diff")
def diff_templates(template_dir: TEMPLATE_DIR = None) -> None:
    """Show what your templates change in those below them, block by block."""

    for difference in differences(_templates(template_dir)):
        typer.echo(difference, nl=False)


@templates.command("lint")
def lint_templates(template_dir: TEMPLATE_DIR = None, format_: FORMAT = "text") -> None:
    """Check that templates render sample ops to Python."""

    check_format(format_)
    found = _templates(template_dir)
    problems = problems_of(found)
    if format_ == "json":
        data = [as_problem(problem) for problem in problems]
        show_object({"problems": data})
        raise typer.Exit(ScaffoldError.exit_code if problems else 0)
    raise_all(problems)
    count = len(found.sources)
    typer.echo(f"{count} template{'s' * (count != 1)}, no problem")


def _templates(given: list[str] | None) -> "Templates":
    """Return the templates in effect: from these directories, the configuration's, and ours."""
    return find_templates(configuration_here(), {"template-dir": given or []})


def first_directory(given: list[str] | None) -> Path:
    """Return the directory for a new template: that of --template-dir, or the first of the configuration; raise an error if none is."""
    if given:
        return Path(given[0])
    configuration = configuration_here()
    if not configuration.template_dirs:
        hint = "use --template-dir DIR, or write in [tool.scaffold]: template-dirs = ['DIR']"
        raise ScaffoldError("there is no directory of templates", None, hint)
    return Path(configuration.root, configuration.template_dirs[0])


class Row(NamedTuple):
    """A template that applies, and the blocks it overrides."""

    name: str
    path: str
    extends: str | None  # the path of the template below it
    blocks: tuple[str, ...]


class Ejected(NamedTuple):
    """A template to write below an existing directory, and whether it only adds to the file."""

    root: Path
    path: str
    text: str
    added: bool
    before: bytes | None  # the existing content, as read


def listed_templates(templates: Templates) -> tuple[Row, ...]:
    """Return a row for each template in effect; of one name the user's before ours."""
    sources = [*templates.sources, *map(built_in, WRITTEN)]
    ordered = sorted(sources, key=lambda one: (one.name not in WRITTEN, one.name))
    return tuple(_row(source, templates) for source in ordered)


def _row(source: Source, templates: Templates) -> Row:
    """Return a template's row: its name and path, the template it extends, and the blocks it replaces."""
    found = outline(source, templates)
    parent = parent_of(found, templates.layer_of(source), templates)
    blocks = tuple(block.name for block in found.blocks)
    return Row(source.name, source.path, parent.path if parent else None, blocks)


def ejected(name: str, blocks: tuple[str, ...], directory: Path) -> Ejected:
    """Return the text of a template to start from: a copy of the one in effect below the directory, or an extension with some `blocks`.

    Blocks are added to a template that exists in the directory, if it extends another. Nothing is written here.
    """
    target = directory / name
    before = read_bytes(target) if target.is_file() else None
    own = read_templates([(directory, Location("--template-dir"))] * directory.is_dir())
    mine = own.source(name) if own.find(name) is not None else None
    lower = _below(directory)
    parent = lower.source(name)
    root = directory
    while not root.is_dir():  # files are written below a directory that exists
        root = root.parent
    path = target.relative_to(root).as_posix()
    # A copy of the whole template.
    if not blocks:
        return Ejected(root, path, parent.text, False, before)
    # Blocks can only be added to a file that extends another; a whole copy is replaced.
    extended = mine is not None and outline(mine, own).extends is not None
    head = mine.text.rstrip("\n") + "\n" if mine and extended else _extends(parent)
    present = {block.name for block in outline(mine, own).blocks} if mine else set()
    texts = [
        _text(block, parent, lower)
        for block in dict.fromkeys(blocks)
        # A block that is there stays as the team has it.
        if not (extended and block in present)
    ]
    return Ejected(root, path, "\n".join([head, *texts]), extended, before)


def _below(directory: Path) -> Templates:
    """Return the templates one in this directory may extend: of configured directories listed after it, and ours."""
    listed = configured_directories(configuration_here())
    resolved = [path.resolve() for path in listed]
    own = directory.resolve()
    start = resolved.index(own) + 1 if own in resolved else 0
    place = Location("pyproject.toml")
    # A missing directory holds no templates: it may be the next to be started.
    return read_templates([(path, place) for path in listed[start:] if path.is_dir()])


def _extends(parent: Source) -> str:
    """Return the first line of a template that extends `parent`: ours by its full name, a team's by its file name."""
    ours = parent.path.startswith(BUILT_IN_NAME)
    return f'{{% extends "{parent.path if ours else parent.name}" %}}\n'


def _text(block: str, source: Source, templates: Templates) -> str:
    """Return the text of a block, from the template or the nearest one it extends; raise ScaffoldError for an unknown block."""
    known: list[str] = []
    found: Source | None = source
    while found is not None:
        shape = outline(found, templates)
        if any(item.name == block for item in shape.blocks):
            return shape.text(block)
        known += [item.name for item in shape.blocks]
        found = parent_of(shape, templates.layer_of(found), templates)
    hint = did_you_mean(block, known) or f"they are: {', '.join(known)}"
    message = f"'{source.name}' has no block '{block}'"
    raise ScaffoldError(message, Location("--block"), hint)


def differences(templates: Templates) -> Iterator[str]:
    """Yield the diff of each template of the team: of its blocks from the template it extends, of a whole copy from ours."""
    for source in templates.sources:
        found = outline(source, templates)
        parent = parent_of(found, templates.layer_of(source), templates)
        if parent is not None:
            yield from _of_blocks(found, outline(parent, templates))
        # A whole copy of one of ours; a template of the team's own has nothing to compare it with.
        elif found.extends is None and source.name in WRITTEN:
            yield _difference(built_in(source.name).text, source.text, source, "")


def _of_blocks(found: Outline, below: Outline) -> Iterator[str]:
    """Yield the diff of each block a template replaces in the one below it."""
    known = {block.name for block in below.blocks}
    for block in found.blocks:
        if block.name in known:
            before, after = below.text(block.name), found.text(block.name)
            yield _difference(before, after, found.source, f", block {block.name}")


def _difference(before: str, after: str, source: Source, block: str) -> str:
    """Return the unified diff from the text `before` to the user's `after`, in a template `source`; `block` is added to both names."""
    old, new = f"{BUILT_IN_NAME}{source.name}{block}", f"{source.path}{block}"
    lines = unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), old, new
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def problems_of(templates: Templates) -> list[ScaffoldError]:
    """Return the errors of rendering sample ops with these templates, each problem once, sorted by place."""
    start_rendering()
    by_place: dict[tuple[Location | None, str], ScaffoldError] = {}
    with TERMINAL.proving(["templates"], "checking"):
        found = within_limits(House(templates), lambda: _of_rendering(templates))
    for problem in found:  # the words after a comma are about one op
        by_place.setdefault((problem.location, problem.message.split(",")[0]), problem)
    return sorted(by_place.values(), key=lambda item: item.location or Location(""))


def _of_rendering(templates: Templates) -> list[ScaffoldError]:
    """Return the errors of rendering sample ops, in two styles in turn: plain, and with a header and NumPy's docstrings.

    A template that takes too long ends the run, since it would for each op.
    """
    found: list[ScaffoldError] = []
    houses = (
        House(templates),
        House(templates, ("# A licence",), "# A header", "numpy", True),
    )
    for house in houses:
        try:
            op_testing_draft(house)
        except ScaffoldError as error:
            found += error.problems
    for number, spec in enumerate(sample_ops()):
        try:
            places = Places(Path(), Directories(), houses[number % 2])
            make(
                spec,
                Setting(Configuration(), places, formatted=False),
                always_at(SOURCE),
            )
        except ScaffoldError as error:
            found += error.problems
            if any(problem.message == TOO_LONG for problem in error.problems):
                break
    return found
