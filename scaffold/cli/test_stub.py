"""`scaffold test-stub`: gradient tests for Functions that are there already.

In: what the user points at, and a directory. Out: test files; notes on how they import what they test, and what they lack.
Invariant: no two files of a run have one name; the text is formatted and parses.
"""

import os
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from scaffold.cli.options import (
    DIFF,
    DRY_RUN,
    FORMAT,
    ON_CONFLICT,
    check_format,
    check_policy,
)
from scaffold.cli.output import Showing, put
from scaffold.inspect.stubs import Source, write_stub
from scaffold.project.configuration import configuration_here
from scaffold.project.hand_written import dotted, find_functions, target
from scaffold.render.formatting import format_source

PATHS = Annotated[
    list[str],
    typer.Argument(metavar="PATH[::CLASS]...", help="Files, directories, Functions."),
]
OUT_DIR = Annotated[
    str | None,
    typer.Option(
        "--out-dir",
        help="Where the tests go (default: the project's tests, else here).",
        metavar="DIR",
    ),
]
STDOUT = Annotated[
    bool, typer.Option("--stdout", help="Print the tests, write nothing.")
]


def test_stub(
    paths: PATHS,
    out_dir: OUT_DIR = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    stdout: STDOUT = False,
    format_: FORMAT = "text",
) -> None:
    """Write gradient tests for hand-written autograd.Functions.

    They ask gradcheck and what training relies on, as `scaffold verify FILE` does. What the text of a Function does not tell is
    left open: such a test is skipped, and says what it needs.

    Example: scaffold test-stub src/ops.py::ScaleFunction
    """
    check_policy(on_conflict)
    check_format(format_)
    stubs = stubs_for(tuple(paths), out_dir)
    showing = Showing(dry_run, diff, stdout, format_)
    put(stubs.files, stubs.root, on_conflict, showing, stubs.notes)


class Stubs(NamedTuple):
    """What is to be written."""

    files: dict[str, str]
    root: Path
    notes: tuple[str, ...]


def stubs_for(targets: tuple[str, ...], out_dir: str | None) -> Stubs:
    """The test files for all that the targets name."""
    found = find_functions(targets)
    configuration = configuration_here()
    tests = configuration.tests
    where = target(out_dir, Path(configuration.root, tests) if tests else ".")
    files: dict[str, str] = {}
    notes = list(found.notes)
    ready = tried = waiting = 0
    for meant in found.meant:
        module, start = dotted(meant.path, configuration)
        search = os.path.relpath(start, where.directory)
        stub = write_stub(meant.module, meant.functions, Source(module, search))
        name = _free(module, files, where.below)
        files[name] = format_source(stub.text)
        ready, waiting = ready + len(stub.ready), waiting + len(stub.waiting)
        tried += len(stub.tried)
        notes += [f"{function} needs {needs}" for function, needs in stub.waiting]
        notes += [f"{function}: {why}" for function, why in stub.left_out]
    trying = f"{tried} try inputs that may fit, " if tried else ""
    notes.append(
        f"{ready} can run as they are, {trying}{waiting} are skipped until filled in"
    )
    return Stubs(files, where.root, tuple(notes))


def _free(module: str, files: dict[str, str], below: Path) -> str:
    """A name for the test file: of the module, with as much of its package as it takes."""
    parts = module.replace("-", "_").split(".")
    for count in range(1, len(parts) + 1):
        name = f"test_{'_'.join(parts[-count:])}_gradients.py"
        path = (below / name).as_posix()
        if path not in files:
            return path
    number = len(files)
    return (below / f"test_{'_'.join(parts)}_{number}_gradients.py").as_posix()
