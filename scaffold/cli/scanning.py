"""One function over many files: those that matter are read, the work is spread over processes, progress is shown.

In: paths and a function of a file. Out: its results in the order of the files.
Invariant: the results do not depend on how many processes there are.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, TypeVar

import typer

from scaffold.cli.sources import find_sources, read_source
from scaffold.errors import ScaffoldError
from scaffold.inspect import function_names, may_matter
from scaffold.verify.pool import over, processes_for

Result = TypeVar("Result")
OFTEN = 16  # files between two updates of the progress line


class Tree(NamedTuple):
    """The files of a run: all, those that can hold something, and what they define for each other."""

    paths: tuple[str, ...]
    relevant: tuple[str, ...]
    known: frozenset[str]
    unread: tuple[ScaffoldError, ...]
    named: frozenset[str]  # files that the user named: they do not just lie in a tree


def look_through(paths: Sequence[str]) -> Tree:
    """Find the files and those among them that are worth parsing: a file that was named is."""
    found = find_sources(paths)
    named = frozenset(os.path.normpath(path) for path in paths).intersection(found)
    texts, unread = {}, []
    known: set[str] = set()
    for path in found:
        try:
            text = read_source(path)
        except ScaffoldError as error:
            unread.append(error)
            continue
        known |= function_names(text)
        if path in named or may_matter(text) or "class " in text:
            texts[path] = text
    names = frozenset(known)
    relevant = tuple(
        path for path, text in texts.items() if path in named or may_matter(text, names)
    )
    return Tree(found, relevant, names, tuple(unread), named)


def each(
    function: Callable[[str], Result], tree: Tree, processes: int | None = None
) -> list[Result]:
    """The function of every relevant file."""
    paths = tree.relevant
    count = processes or processes_for(len(paths))
    results = []
    with Progress(len(paths)) as progress:
        for result in over(function, paths, count):
            results.append(result)
            progress.update(len(results))
    return results


class Progress:
    """A line on the terminal that says how far a run is; nothing where there is no terminal."""

    def __init__(self, total: int, things: str = "files") -> None:
        self.total, self.things = total, things
        terminal = bool(sys.stderr and sys.stderr.isatty())
        self.shown = terminal and total > OFTEN

    def __enter__(self) -> Self:
        return self

    def update(self, done: int) -> None:
        """Show how many are done."""
        if self.shown and (done % OFTEN == 0 or done == self.total):
            typer.echo(f"\r{done}/{self.total} {self.things}", nl=False, err=True)

    def __exit__(self, *_: object) -> None:
        if self.shown:
            typer.echo("\r\033[K", nl=False, err=True)
