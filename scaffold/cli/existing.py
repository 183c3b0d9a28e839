"""Functions that a user points at, and what commands that write for them share.

In: `PATH[::CLASS]` as typed. Out: files with the Functions that are meant; texts written, or shown.
Invariant: what is pointed at and is not there is an error with a place; nothing is written before all is found.
"""

import os
from pathlib import Path
from typing import NamedTuple

import typer

from scaffold.cli.scanning import look_through
from scaffold.cli.sources import read_source
from scaffold.errors import (
    Location,
    ScaffoldError,
    did_you_mean,
    raise_all,
)
from scaffold.inspect import Function, Module, NotReadable, inspect_text


class Meant(NamedTuple):
    """A file, and those of its Functions that were asked for."""

    path: str
    module: Module
    functions: tuple[Function, ...]


class Found(NamedTuple):
    """All that was pointed at, and the files that were passed over."""

    meant: tuple[Meant, ...]
    notes: tuple[str, ...]


def find_functions(targets: tuple[str, ...]) -> Found:
    """The Functions that the targets name; those of a directory are all that it holds."""
    problems: list[ScaffoldError] = []
    meant: list[Meant] = []
    notes: list[str] = []
    for target in targets:
        path, _, name = target.partition("::")
        try:
            found = _in(path, name, notes)
        except ScaffoldError as error:
            problems.append(error)
            continue
        if not found:
            message = "holds no autograd.Function"
            problems.append(ScaffoldError(message, Location(path)))
        meant += found
    raise_all(problems)
    return Found(tuple(meant), tuple(notes))


def _in(path: str, name: str, notes: list[str]) -> list[Meant]:
    tree = look_through([path])
    if not Path(path).is_dir():
        raise_all(list(tree.unread))
    found = []
    for source in tree.relevant:
        try:
            module = inspect_text(read_source(source), source, tree.known)
        except NotReadable as error:
            if not Path(path).is_dir():
                raise
            notes.append(f"passed over: {error}")
            continue
        functions = _named(module, name) if name else module.functions
        if functions:
            found.append(Meant(source, module, functions))
    return found


def _named(module: Module, name: str) -> tuple[Function, ...]:
    chosen = tuple(f for f in module.functions if name in (f.name, f.qualname))
    if not chosen:
        known = [function.name for function in module.functions]
        hint = did_you_mean(name, known) or f"its Functions: {', '.join(known)}"
        message = f"no Function '{name}' in the file"
        raise ScaffoldError(message, Location(module.path), hint)
    return chosen


class Target(NamedTuple):
    """Where files go: a directory that is there, and the one of the files as counted from it."""

    root: Path
    below: Path

    @property
    def directory(self) -> Path:
        """The directory of the files, which need not be there yet."""
        return self.root / self.below


def target(out_dir: str | None, otherwise: str | Path = ".") -> Target:
    """The directory that `--out-dir` says, or the other one."""
    directory = Path(os.path.abspath(otherwise if out_dir is None else out_dir))
    root = directory
    while not root.is_dir():
        root = root.parent
    return Target(root, directory.relative_to(root))


def put(
    files: dict[str, str],
    root: Path,
    policy: str,
    *,
    dry_run: bool,
    diff: bool,
    stdout: bool,
) -> None:
    """Write the files, or show them, or what would become of them."""
    from scaffold.cli.report import tell
    from scaffold.cli.settle import look, write

    if stdout:
        typer.echo("\n".join(files.values()).encode(errors="surrogateescape"), nl=False)
        return
    settle = look if dry_run or diff else write
    settled = settle(files, root, policy)  # type: ignore[arg-type]
    tell(settled, with_diff=diff)
