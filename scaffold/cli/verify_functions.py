"""`scaffold verify FILE:CLASS`: judge hand-written Functions.

Each Function is called with suitable inputs in a process of its own; its gradients are compared with finite differences, or with a
reference.

Words: a *question* is a Function to judge, in its file, with what the user stated of it; its *verdict* has the checks made; a Function is
*not judged* if no call worked; `run` is how processes are run.

In: files, their classes, directories; the user's declarations. Out: a line for each Function, then the failures, each with its
line; an exit code.
Invariant: exit 0 means that every Function was called and no check failed; a Function without accepted inputs is reported, with exit 2.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import typer

from scaffold.annotations import annotation
from scaffold.cli.output import TERMINAL, say_hint, show_notes, show_object
from scaffold.errors import ConflictError, ScaffoldError, raise_all
from scaffold.inspect import Function
from scaffold.project.function_verdicts import Question, Stated, judge, unnamed
from scaffold.project.hand_written import find_functions
from scaffold.verify import Verdict, processes_for
from scaffold.verify.prover import Checked

UNCALLED = "not judged"
STATUSES = ("passed", "failed", UNCALLED)
SUBJECTS = {
    "inputs": "refuses all inputs that were tried: ",
    "module": "its module ",
}
DECLARE = "give its inputs: --inputs 'x[N, D], eps: float = 1e-6', or --samples '@file.py:make'"
REFUSES = "backward refuses"
NESTED = "which is defined inside a function"
BASE = "whose backward only raises NotImplementedError"


class Judged(NamedTuple):
    """A Function and its verdict."""

    question: Question
    verdict: Verdict

    @property
    def place(self) -> str:
        """Return its file and line."""
        return f"{self.question.meant.path}:{self.question.function.node.lineno}"

    @property
    def name(self) -> str:
        return self.question.function.qualname

    @property
    def failed(self) -> list[Checked]:
        """Return the checks that failed."""
        return [one for one in self.verdict.checks if one.status == "failed"]

    @property
    def status(self) -> str:
        """Return one of STATUSES."""
        if self.words.startswith(UNCALLED):
            return UNCALLED
        return "failed" if self.failed else "passed"

    @property
    def words(self) -> str:
        """Return the status in words, with numbers of checks, or the reason why it was not judged."""
        failure = self.verdict.failure
        if failure is not None:
            subject = SUBJECTS.get(failure.subject, "")
            return f"{UNCALLED}: {subject}{failure.words}"
        if not self.verdict.checks:
            return UNCALLED
        # Every check was skipped: the first says why.
        if not self.verdict.cases:
            words = self.verdict.checks[0].words
            return f"{UNCALLED}: {words}" if words.startswith(REFUSES) else words
        if not self.failed:
            return f"{self.verdict.cases} checks pass"
        return f"{len(self.failed)} of {self.verdict.cases} checks fail"


class Run(NamedTuple):
    """How to run the processes."""

    python: str
    jobs: int | None
    limit: int


def show_verdicts(
    names: Sequence[str], said: Mapping[str, Any], run: Run, format_: str
) -> None:
    """Judge the named Functions and report; exit with 1 if a check failed, with 2 if a Function could not be called.

    `said` are the user's options about inputs and reference, by name. Functions that no call could judge, nested in a function or
    without a backward of their own, are skipped with a note.
    """
    stated = Stated(**said)
    raise_all(unnamed(stated))
    found = find_functions(tuple(_target(name) for name in names))
    named = [Question(x, each, stated) for x in found.meant for each in x.functions]
    questions, notes = [], [*found.notes]
    for asked in named:
        function = asked.function
        # No import reaches a nested one; a base class is meant to be inherited from.
        reason = NESTED if function.nested else BASE if function.is_base else ""
        if reason:
            notes.append(f"skipped: {function.qualname}, {reason}")
        else:
            questions.append(asked)
    processes = run.jobs or processes_for(len(questions))
    verdicts = judge(questions, run.python, run.limit, processes)
    judged = []
    shown = in_columns([(x.meant.path, x.function) for x in questions])
    for place_and_name, one in zip(shown, _each(questions, verdicts), strict=True):
        judged.append(one)
        if format_ == "text":
            show_row(place_and_name, one.words)
            if len(questions) == 1:
                _show_details(one)
    if format_ == "json":
        show_object({"functions": [_as_object(one) for one in judged]})
    elif format_ == "github":
        for line in _annotations(judged):
            typer.echo(line)
    else:
        _show_rest(judged, notes)
    _exit(judged)


def _target(name: str) -> str:
    """Return a name as `find_functions` takes it: `FILE.py::CLASS` for `FILE.py:CLASS`, others as they were typed."""
    path, colon, last = name.rpartition(":")
    # Not for `FILE.py::CLASS`, whose path then ends with a colon.
    if colon and path.endswith(".py"):
        return f"{path}::{last}"
    return name


def _each(
    questions: Sequence[Question], verdicts: Iterator[Verdict]
) -> Iterator[Judged]:
    """Yield each Function with its verdict as soon as it is known, with a progress line."""
    names = [question.function.qualname for question in questions]
    if not names:
        return
    with TERMINAL.proving(names, "judging") as update:
        for done, question in enumerate(questions, start=1):
            found = Judged(question, next(verdicts))
            update(done)
            yield found


def in_columns(functions: Sequence[tuple[str, Function]]) -> list[str]:
    """Return the place and the name of each Function, padded to common widths; each comes with the path of its file."""
    rows = [(f"{path}:{one.node.lineno}", one.qualname) for path, one in functions]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [f"{place:{widths[0]}}  {name:{widths[1]}}" for place, name in rows]


def show_row(place_and_name: str, words: str) -> None:
    """Print a row of `in_columns`, then words about its Function."""
    typer.echo(f"{place_and_name}  {words}".encode(errors="surrogateescape"))


def _show_details(one: Judged) -> None:
    """Print the failed checks, then notes."""
    path = one.question.meant.path
    width = max((len(item.name) for item in one.failed), default=0)
    for item in one.failed:
        hint = f": {item.hint}" if item.hint else ""
        text = f"  {item.name:{width}}  {item.words}{hint}  {path}:{item.line}"
        typer.echo(text.encode(errors="backslashreplace"))
    if one.verdict.call:
        typer.echo(f"  called with {one.verdict.call}")
    for note in one.verdict.notes:
        typer.echo(f"  note: {note}")


def _show_rest(judged: Sequence[Judged], notes: Sequence[str]) -> None:
    """Print the details of each Function with a failure or notes, if there are several, then counts, notes and hints."""
    # Of a single Function the details were printed below its line.
    for one in judged if len(judged) > 1 else ():
        if one.status != "passed" or one.verdict.notes:
            typer.echo(f"\n{one.place}  {one.name}")
            _show_details(one)
    if len(judged) > 1:
        counted = Counter(one.status for one in judged)
        counts = [f"{counted[name]} {name}" for name in STATUSES if counted[name]]
        typer.echo("\n" + ", ".join(counts))
    show_notes(notes)
    refused = [one.verdict.failure for one in judged if one.verdict.failure]
    if len(judged) == 1 and refused:
        show_notes(refused[0].lines)
    hints = (x.hint or DECLARE * (x.subject == "inputs") for x in refused)
    for hint in filter(None, dict.fromkeys(hints)):
        say_hint(hint)


def _as_object(one: Judged) -> dict[str, Any]:
    """Return a Function's result as a JSON object."""
    return {
        "name": one.name,
        "path": one.question.meant.path,
        "line": one.question.function.node.lineno,
        "status": one.status,
        "words": one.words,
        "call": one.verdict.call,
        "checks": [item._asdict() for item in one.verdict.checks],
        "notes": list(one.verdict.notes),
    }


def _annotations(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield GitHub's annotations: an error for each failed check, notes, and a warning for a Function not judged."""
    for one in judged:
        path, line = one.question.meant.path, one.question.function.node.lineno
        for item in one.failed:
            hint = f": {item.hint}" if item.hint else ""
            words = f"{one.name}: {item.name}: {item.words}{hint}"
            yield annotation("error", path, item.line, 1, words, title="verify")
        for note in one.verdict.notes:
            yield annotation("notice", path, line, 1, f"{one.name}: {note}", "verify")
        if one.status == UNCALLED:
            words = f"{one.name}: {one.words}"
            yield annotation("warning", path, line, 1, words, title="verify")


def _exit(judged: Sequence[Judged]) -> None:
    """Exit with 1 if a check failed, with 2 if a Function was not judged or there was none; otherwise return."""
    statuses = {one.status for one in judged}
    if "failed" in statuses:
        sys.exit(ConflictError.exit_code)
    if UNCALLED in statuses or not judged:
        sys.exit(ScaffoldError.exit_code)
