"""`scaffold test-stub`: gradient tests for Functions you already have.

Words: a *stub* is a test file for the Functions of one source file; a Function is *ready* if its arguments are known, *tried* if some
that may fit are tried, *waiting* if the user has to fill them in; *recorded* calls are those that the user's own tests make.

In: what the user points at, and a directory. Out: test files; notes on how they import what they test, and what they lack.
Invariant: no two files of a run have one name; the text is formatted and parses.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from scaffold.cli.options import (
    DIFF,
    DRY_RUN,
    FORMAT,
    ON_CONFLICT,
    PYTHON,
    check_format,
    check_policy,
)
from scaffold.cli.output import TERMINAL, Showing, put
from scaffold.errors import raise_all
from scaffold.inspect.stubs import Source, write_stub
from scaffold.project.configuration import configuration_here
from scaffold.project.hand_written import dotted, find_functions, target
from scaffold.project.stub_files import stub_file
from scaffold.verify.question_text import function_questions

if TYPE_CHECKING:
    from scaffold.project.recorded_calls import Recorded

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
RECORD = Annotated[
    str | None,
    typer.Option(
        "--record",
        help="Tests of yours: run once, for the arguments that they call Functions with.",
        metavar="TESTS",
    ),
]
COMPILE = Annotated[bool, typer.Option("--compile", help="Check torch.compile, too.")]
LIMIT = Annotated[
    int,
    typer.Option("--limit", help="Seconds for the tests of --record.", metavar="N"),
]


def test_stub(
    paths: PATHS,
    out_dir: OUT_DIR = None,
    record: RECORD = None,
    compiled: COMPILE = False,
    python: PYTHON = None,
    limit: LIMIT = 600,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    stdout: STDOUT = False,
    format_: FORMAT = "text",
) -> None:
    """Write gradient tests for hand-written autograd.Functions.

    They run gradcheck and the checks of `scaffold verify FILE`. If the arguments of a Function are unknown, its test is
    skipped, and the reason names them.

    With --record, your tests run once, in a process of their own. The stubs then call each Function with tensors of the
    same shapes, dtypes and strides as your tests.

    Example: scaffold test-stub src/ops.py::ScaleFunction

    Example: scaffold test-stub src --record tests
    """
    check_policy(on_conflict)
    check_format(format_)
    stubs = stubs_for(tuple(paths), out_dir, _recorder(record, python, limit), compiled)
    showing = Showing(dry_run, diff, stdout, format_)
    put(stubs.files, stubs.root, on_conflict, showing, stubs.notes)


Recorder = Callable[[], "Recorded"]


def _recorder(tests: str | None, python: str | None, limit: int) -> Recorder | None:
    """Return a function to run the tests named by --record and return their calls; None without the option."""
    if tests is None:
        return None
    from scaffold.project.interpreter import check_limit, need_interpreter
    from scaffold.project.recorded_calls import record_calls

    raise_all(check_limit(limit))
    interpreter = need_interpreter(python, "--record")
    return partial(record_calls, interpreter.path, tests, limit)


class Stubs(NamedTuple):
    """The test files, their root, and notes."""

    files: dict[str, str]
    root: Path
    notes: tuple[str, ...]


def stubs_for(
    targets: tuple[str, ...],
    out_dir: str | None,
    recorder: "Recorder | None" = None,
    compiled: bool = False,
) -> Stubs:
    """Return the test files for the targets' Functions, one for each source file, with notes on what they lack.

    `recorder`, with --record, runs the user's tests for arguments; `compiled` asks for checks of torch.compile.
    """
    found = find_functions(targets)
    with TERMINAL.proving(["tests"], "running") if recorder else nullcontext():
        recorded = recorder() if recorder else None
    configuration = configuration_here()
    tests = configuration.tests
    where = target(out_dir, Path(configuration.root, tests) if tests else ".")
    files: dict[str, str] = {}
    questions = function_questions()
    notes = [*found.notes, *(recorded.notes(found.meant) if recorded else ())]
    ready = tried = waiting = 0
    for meant in found.meant:
        module, start = dotted(meant.path, configuration)
        search = os.path.relpath(start, where.directory)
        seen = recorded.rows(meant) if recorded else {}
        stub = write_stub(
            meant.module,
            meant.functions,
            Source(module, search),
            seen,
            questions=questions,
            compiled=compiled,
        )
        name = _free(module, files, where.below)
        files[name] = stub_file(stub.text)
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
    """Return a path for a module's test file not in `files` yet: its last name, and as much of its package as needed."""
    parts = module.replace("-", "_").split(".")
    # `ops.norm` gives test_norm_gradients.py, or, if that is taken, test_ops_norm_gradients.py.
    for count in range(1, len(parts) + 1):
        name = f"test_{'_'.join(parts[-count:])}_gradients.py"
        path = (below / name).as_posix()
        if path not in files:
            return path
    number = len(files)
    return (below / f"test_{'_'.join(parts)}_{number}_gradients.py").as_posix()
