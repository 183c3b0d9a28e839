"""How many planted mistakes the tests of an op find: `scaffold verify --mutants`.

In: test files, generated or hand-written, each with the file of its op where that is known. Out: a table on stdout, one line
a mutant, and the score.
Invariant: exit 0 means that every mutant of every file was killed; no file is changed.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from scaffold.cli.programs import show_object
from scaffold.errors import ScaffoldError, raise_all

if TYPE_CHECKING:
    from scaffold.verify.mutants import Mutant
    from scaffold.verify.score import Outcome

SURVIVED = 1  # exit code


class Asked(NamedTuple):
    """How the tests are to be run, and what is said of it."""

    limit: int
    python: str
    for_programs: bool


class Subject(NamedTuple):
    """A test file, the file that it is about, and the mutants of that."""

    test: Path
    op: Path
    mutants: "tuple[Mutant, ...]"


def score_files(tests: Sequence[tuple[Path, Path | None]], asked: Asked) -> None:
    """Say what became of every mutant, and exit with 1 where one survived."""
    subjects = _subjects(tests)
    results: list[tuple[Subject, list[Outcome]]] = []
    for subject in subjects:
        if not asked.for_programs:
            typer.echo(
                f"{subject.test}: {len(subject.mutants)} mutants of {subject.op}"
            )
        outcomes = []
        for outcome in _scored(subject, asked):
            outcomes.append(outcome)
            if not asked.for_programs:
                _show(outcome)
        results.append((subject, outcomes))
        if not asked.for_programs:
            _show_score(outcomes)
    if asked.for_programs:
        _show_json(results)
    if not all(item.killed for _, outcomes in results for item in outcomes):
        sys.exit(SURVIVED)


def _subjects(tests: Sequence[tuple[Path, Path | None]]) -> list[Subject]:
    """What the tests are about; all problems of all files together."""
    from scaffold.verify.score import planted
    from scaffold.verify.subjects import find_subject, read_module

    found, problems = [], []
    for test, named in tests:
        try:
            read_module(test)
            op = named or _from_here(find_subject(test))
            found.append(Subject(test, op, planted(op)))
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    return found


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _scored(subject: Subject, asked: Asked) -> "Iterator[Outcome]":
    """The outcomes, with the number of the mutant on a terminal until it is known."""
    from scaffold.verify.score import score

    outcomes = score(
        subject.test, subject.op, subject.mutants, asked.limit, asked.python
    )
    shown = bool(sys.stderr and sys.stderr.isatty())
    for number in range(len(subject.mutants)):
        if shown:
            text = f"mutant {number + 1} of {len(subject.mutants)} ..."
            typer.echo(text, nl=False, err=True)
        outcome = next(outcomes)
        if shown:
            typer.echo("\r\x1b[K", nl=False, err=True)
        yield outcome


def _show(outcome: "Outcome") -> None:
    verb = "killed" if outcome.killed else "survived"
    mistake = outcome.mistake.replace("_", " ")
    typer.echo(f"{verb:8}  {outcome.function}  {mistake}: {outcome.place}")


def _show_score(outcomes: "list[Outcome]") -> None:
    killed = sum(item.killed for item in outcomes)
    share = 100 * killed // len(outcomes)  # 100 only where all are
    typer.echo(f"score: {killed} of {len(outcomes)} mutants killed ({share}%)")


def _show_json(results: "list[tuple[Subject, list[Outcome]]]") -> None:
    files = [
        {
            "test": str(subject.test),
            "op": str(subject.op),
            "killed": sum(item.killed for item in outcomes),
            "mutants": [item._asdict() for item in outcomes],
        }
        for subject, outcomes in results
    ]
    show_object({"files": files})
