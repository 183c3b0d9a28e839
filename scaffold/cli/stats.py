"""`scaffold stats`: how the Functions of a code base are written, as a table.

In: paths. Out: the table, for people or for programs.
Invariant: a file that cannot be read or parsed is named and counts nothing.
"""

from functools import partial
from typing import Annotated, Any, NamedTuple

import typer

from scaffold.cli.options import FORMAT, check_format
from scaffold.cli.output import TERMINAL, show_notes, show_object
from scaffold.errors import Location, ScaffoldError
from scaffold.inspect import TOO_DEEP, NotReadable, inspect_text
from scaffold.inspect.statistics import (
    ROWS,
    Counted,
    count,
    describe,
    is_test,
    words_of,
)
from scaffold.project.source_files import each, look_through, read_source

PATHS = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files and directories (default: here)."),
]


def stats(paths: PATHS = None, format_: FORMAT = "text") -> None:
    """Count the autograd.Functions of a code base, by their traits.

    Example: scaffold stats src tests
    """

    check_format(format_)
    counted = count_below(tuple(paths or ["."]))
    for error in counted.unread:
        show_notes([f"{error.location}: {error.message}"])
    if format_ == "json":
        show_object(as_object(counted))
    else:
        typer.echo(as_text(counted), nl=False)


class Tally(NamedTuple):
    """What was counted, and of how many files."""

    files: int
    counted: tuple[Counted, ...]
    unread: tuple[ScaffoldError, ...]


def count_below(paths: tuple[str, ...]) -> Tally:
    """Count everything at or below the paths."""
    tree = look_through(paths)
    results = each(partial(_count_file, tree.known), tree, TERMINAL)
    rest = set(tree.paths) - set(tree.relevant)
    tests = [Counted(mentioned=_words(path)) for path in sorted(rest) if is_test(path)]
    unread = [item for item in results if isinstance(item, ScaffoldError)]
    counted = [item for item in results if isinstance(item, Counted)]
    return Tally(len(tree.paths), (*counted, *tests), (*tree.unread, *unread))


def _words(path: str) -> frozenset[str]:
    try:
        return words_of(read_source(path), path)
    except ScaffoldError:
        return frozenset()


def _count_file(known: frozenset[str], path: str) -> Counted | ScaffoldError:
    """One file; runs in any process."""
    try:
        return describe(inspect_text(read_source(path), path, known))
    except ScaffoldError as error:
        return error
    except RecursionError:
        return NotReadable(TOO_DEEP, Location(path))


def as_text(tally: Tally) -> str:
    """The table for people: a number and its share of all Functions."""
    totals = count(tally.counted)
    every = totals["functions"]
    lines = [
        f"{totals['functions']:6}  Functions in {tally.files} file{'s' * (tally.files != 1)}"
    ]
    for key, title in list(ROWS.items())[1:]:
        share = f"{100 * totals[key] / every:4.0f}%" if every else ""
        share = "" if key == "custom_ops" else share
        lines.append(f"{totals[key]:6}  {title:32}{share}".rstrip())
    return "\n".join(lines) + "\n"


def as_object(tally: Tally) -> dict[str, Any]:
    """The table for programs, with each Function."""
    functions = [
        {
            "path": item.path,
            "line": item.line,
            "name": item.name,
            "traits": sorted(item.traits),
        }
        for file in tally.counted
        for item in file.functions
    ]
    return {
        "files": tally.files,
        "totals": count(tally.counted),
        "functions": functions,
    }
