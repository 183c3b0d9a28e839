"""`scaffold verify --mutants`: how many planted mistakes the tests of an op find.

In: test files, generated or hand-written. Out: a table on stdout, one line a mutant, and the score.
Invariant: exit 0 means that every mutant of every file was killed; no file is changed.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from scaffold.cli.interpreter import without_torch
from scaffold.cli.options import TEST_FILES, VERIFY, Values, make_command
from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all

if TYPE_CHECKING:
    from scaffold.verify.mutants import Mutant
    from scaffold.verify.score import Outcome

HELP = """See how many planted mistakes the tests of an op find.

A missing sum, a wrong transpose, a factor, a sign, a tensor on ctx: each mistake is a mutant. The tests
run on each, in a process of its own; the files stay as they are. Exit code 1: some mutant survived.

Example: scaffold verify --mutants test_linear.py
"""
FORMATS = ("text", "json")
JSON_VERSION = 1
SURVIVED = 1  # exit code


class Subject(NamedTuple):
    """A test file, the file that it is about, and the mutants of that."""

    test: Path
    op: Path
    mutants: "tuple[Mutant, ...]"
    limit: int


def _run(files: list[str], settings: Values) -> None:
    raise_all(_problems(settings))
    subjects = _subjects([Path(file) for file in files], settings)
    for_programs = settings.get("format") == "json"
    results: list[tuple[Subject, list[Outcome]]] = []
    for subject in subjects:
        if not for_programs:
            typer.echo(
                f"{subject.test}: {len(subject.mutants)} mutants of {subject.op}"
            )
        outcomes = []
        for outcome in _scored(subject):
            outcomes.append(outcome)
            if not for_programs:
                _show(outcome)
        results.append((subject, outcomes))
        if not for_programs:
            _show_score(outcomes)
    if for_programs:
        _show_json(results)
    if not all(item.killed for _, outcomes in results for item in outcomes):
        sys.exit(SURVIVED)


def _problems(settings: Values) -> list[ScaffoldError]:
    found = []
    if not settings.get("mutants"):
        hint = "say: scaffold verify --mutants TEST_FILE"
        found.append(ScaffoldError("what to verify is not said", hint=hint))
    else:
        found += without_torch("--mutants")
    value = settings.get("format", "text")
    if value not in FORMATS:
        hint = did_you_mean(value, FORMATS) or f"one of: {', '.join(FORMATS)}"
        message = f"unknown value '{value}'"
        found.append(ScaffoldError(message, Location("--format"), hint))
    if settings.get("limit", 1) < 1:
        message = f"'{settings['limit']}' is no number of seconds"
        found.append(ScaffoldError(message, Location("--limit")))
    return found


def _subjects(files: list[Path], settings: Values) -> list[Subject]:
    """What the tests are about; all problems of all files together."""
    from scaffold.verify.score import LIMIT, planted
    from scaffold.verify.subjects import find_subject, read_module

    found, problems = [], []
    for test in files:
        try:
            read_module(test)
            named = Path(settings["op"]) if "op" in settings else None
            op = named or _from_here(find_subject(test))
            limit = settings.get("limit", LIMIT)
            found.append(Subject(test, op, planted(op), limit))
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    return found


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _scored(subject: Subject) -> "Iterator[Outcome]":
    """The outcomes, with the number of the mutant on a terminal until it is known."""
    from scaffold.verify.score import score

    outcomes = score(subject.test, subject.op, subject.mutants, subject.limit)
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
    typer.echo(json.dumps({"version": JSON_VERSION, "files": files}, indent=2))


verify = make_command(_run, HELP, TEST_FILES, VERIFY)
