"""The mutation score of an op's tests: how many planted mistakes they find.

In: a test file and the file with the Functions that it is about. Out: an `Outcome` for each mutant, as it becomes known.
Invariant: the files stay as they are: a process of its own runs the tests where they are, and reads the op's file with
the mistake in it.
"""

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import ScaffoldError
from scaffold.files import read_text
from scaffold.verify.mutants import Mutant, mutants
from scaffold.verify.process import CHILD, child_command, ended_with
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
    command = child_command(python, RUNNER)
    with ended_with(command, subprocess.DEVNULL) as process:
        _ask(process, request)
        first = _answer(process, limit)
        if first["status"] != "passed":
            message = f"the tests of '{test}' do not pass as they are: {first['by']}"
            raise ScaffoldError(message, hint="mend them, then plant mistakes")
        for mutant in found:
            _ask(process, {"text": mutant.text})
            answer = _answer(process, limit)
            killed = answer["status"] != "passed"
            by = answer["by"] if killed else ""
            yield Outcome(mutant.function, mutant.mistake, mutant.place, killed, by)


def _ask(process: "subprocess.Popen[bytes]", request: dict[str, Any]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # the missing answer says so
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()


def _answer(process: "subprocess.Popen[bytes]", limit: float) -> dict[str, str]:
    """One line; a process that has none is an error of the run, not of the mutant."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], limit + GRACE)
    line = process.stdout.readline() if ready else b""
    try:
        answer: dict[str, str] = json.loads(line)
    except ValueError:
        message = "the process that runs the tests has ended"
        raise ScaffoldError(message, hint="it needs torch and pytest") from None
    return answer
