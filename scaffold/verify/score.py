"""The mutation score of an op's tests: how many planted mistakes they find.

In: a test file and the file with the Functions that it is about. Out: an `Outcome` for each mutant, as it becomes known.
Invariant: the files stay as they are: a process of its own runs the tests where they are, and reads the op's file with
the mistake in it.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import ScaffoldError
from scaffold.files import read_text
from scaffold.verify.mutants import Mutant, mutants
from scaffold.verify.processes import CHILD, ChildProcess
from scaffold.verify.subjects import read_module

RUNNER = str(CHILD / "suite.py")
GRACE = 60.0  # seconds beyond the limit of a run that is given to its process
LIMIT = 600  # seconds for a run of the tests


class Outcome(NamedTuple):
    """What the tests made of a mutant."""

    function: str
    mistake: str
    place: str
    killed: bool
    by: str  # the test that failed first, or how the run ended otherwise


def planted(op: Path) -> tuple[Mutant, ...]:
    """The mutants of a file."""
    read_module(op)
    found = mutants(read_text(op, "utf-8-sig"))
    if not found:
        hint = "a Function needs a forward and a backward with something to get wrong"
        raise ScaffoldError(f"no mistake can be planted in '{op}'", hint=hint)
    return found


def score(
    test: Path,
    op: Path,
    found: tuple[Mutant, ...],
    limit: int = LIMIT,
    python: str = sys.executable,
) -> Iterator[Outcome]:
    """Run the tests on the op as it is, which must pass, then on each mutant."""
    request = {"test": str(test.resolve()), "op": str(op.resolve()), "limit": limit}
    with closing(ChildProcess(python, RUNNER)) as process:
        first = _answer(process, request, limit)
        if first["status"] != "passed":
            message = f"the tests of '{test}' do not pass as they are: {first['by']}"
            raise ScaffoldError(message, hint="mend them, then plant mistakes")
        for mutant in found:
            answer = _answer(process, {"text": mutant.text}, limit)
            killed = answer["status"] != "passed"
            by = answer["by"] if killed else ""
            yield Outcome(mutant.function, mutant.mistake, mutant.place, killed, by)


def _answer(
    process: ChildProcess, request: Mapping[str, Any], limit: float
) -> dict[str, str]:
    """One line; a process that has none is an error of the run, not of the mutant."""
    process.ask(request)
    answer = process.answer(limit + GRACE)
    if not answer:
        message = "the process that runs the tests has ended"
        raise ScaffoldError(message, hint="it needs torch and pytest")
    return answer
