"""`scaffold verify`: whether the generated tests pass, or with --mutants how many planted mistakes they find."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.cli.choices import FORMAT, FORMATS, check_choice, offer_ops
from scaffold.errors import Location, ScaffoldError, raise_all

if TYPE_CHECKING:
    from scaffold.cli.interpreter import Interpreter

OPS = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OP...",
        help="Ops of the manifest, or test files (default: every op).",
        autocompletion=offer_ops,
    ),
]
MUTANTS = Annotated[
    bool,
    typer.Option(
        "--mutants", help="Plant mistakes in the op, and see the tests find them."
    ),
]
OP = Annotated[
    str | None,
    typer.Option(
        "--op",
        help="With --mutants: the file with the op (default: the one that the tests import).",
        metavar="FILE",
    ),
]
PYTHON = Annotated[
    str | None,
    typer.Option(
        "--python",
        help="The interpreter that has PyTorch (default: one that has it, from here up).",
        metavar="PATH",
    ),
]
JOBS = Annotated[
    int | None,
    typer.Option("--jobs", help="How many test files run at a time.", metavar="NUMBER"),
]
LIMIT = Annotated[
    int,
    typer.Option(
        "--limit", help="Seconds for one run of a test file.", metavar="SECONDS"
    ),
]


def verify(
    ops: OPS = None,
    mutants: MUTANTS = False,
    op: OP = None,
    python: PYTHON = None,
    jobs: JOBS = None,
    limit: LIMIT = 600,
    format_: FORMAT = "text",
) -> None:
    """Run the tests of ops; see how many planted mistakes they find.

    They run in a process of their own; the files stay as they are. What passes is on record as proven, in .scaffold/. Exit code 1: some test failed, or some part of a skeleton is not written. With --mutants the tests run on the op
    with a mistake planted, one after the other: a missing sum, a wrong transpose, a factor, a sign, a tensor on ctx.
    Exit code 1 then: some mutant survived.

    Example: scaffold verify linear
    """
    from scaffold.cli import mutating, proving
    from scaffold.cli.report import show_notes
    from scaffold.cli.tested import find_tests, for_mutants

    problems = check_choice("--format", format_, FORMATS)
    problems += _numbers(limit, jobs)
    if op is not None and not mutants:
        message = "names the file that mistakes are planted in"
        problems.append(ScaffoldError(message, Location("--op"), "add --mutants"))
    raise_all(problems)
    for_programs = format_ == "json"
    interpreter = _interpreter(python, mutants)
    if not for_programs and python is None:
        show_notes(interpreter.note("run"))
    used = interpreter.path
    found = find_tests(tuple(ops or ()))
    if mutants:
        tests = for_mutants(found, Path(op) if op else None)
        mutating.score_files(tests, mutating.Asked(limit, used, for_programs))
    else:
        proving.show_proofs(found, proving.Asked(used, jobs, limit, for_programs))


def _numbers(limit: int, jobs: int | None) -> list[ScaffoldError]:
    found = []
    if limit < 1:
        message = f"'{limit}' is no number of seconds"
        found.append(ScaffoldError(message, Location("--limit")))
    if jobs is not None and jobs < 1:
        message = f"'{jobs}' is no number of processes"
        found.append(ScaffoldError(message, Location("--jobs")))
    return found


def _interpreter(python: str | None, mutants: bool) -> "Interpreter":
    """The one that runs the tests; what one that is given lacks it says itself, once it is started."""
    from scaffold.cli.interpreter import OPTION, Interpreter, need_interpreter

    if python is not None:
        return Interpreter(python, OPTION)
    return need_interpreter(None, "--mutants" if mutants else "verify")
