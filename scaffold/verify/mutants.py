"""Mutants, an op's file with one mistake planted, and the score of an op's tests: how many of them they find.

In: the text of a module with autograd.Functions, generated or hand-written; a test file. Out: a `Mutant` for each mistake and place; an
`Outcome` for each, as it becomes known.
Invariant: a mutant parses and differs from the op; what lies outside the changed methods is the same text. The files stay as they are: a
process of its own runs the tests where they are, and reads the op's file with the mistake in it.
"""

import ast
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import ScaffoldError
from scaffold.files import read_text
from scaffold.verify.mistakes import MISTAKES, Mistake
from scaffold.verify.op_tree import Op, function_classes
from scaffold.verify.processes import CHILD, ChildProcess
from scaffold.verify.subjects import read_module


class Mutant(NamedTuple):
    """A module with a mistake in it."""

    function: str  # the class
    mistake: str  # what is wrong: "missing_sum"
    place: str  # where: the expression or the name that it concerns
    text: str

    @property
    def name(self) -> str:
        return f"{self.mistake}: {self.place}"


def mutants(text: str) -> tuple[Mutant, ...]:
    """All mutants of a module, each text once."""
    found = {
        mutant.text: mutant
        for node in reversed(function_classes(ast.parse(text)))
        for mistake in reversed(MISTAKES)
        for mutant in reversed(list(_mutants(text, node.name, mistake)))
    }
    return tuple(reversed(found.values()))


def _mutants(text: str, function: str, mistake: Mistake) -> Iterator[Mutant]:
    for number in range(len(list(mistake(Op(text, function))))):
        op = Op(text, function)
        place, plant = list(mistake(op))[number]
        plant()
        mutated = _replaced(text, Op(text, function), op)
        if mutated != text:
            yield Mutant(function, mistake.__name__, place, mutated)


def _replaced(text: str, before: Op, after: Op) -> str:
    """The text with the methods that have changed, the last one first so that lines keep their numbers."""
    lines = text.splitlines(keepends=True)
    pairs = zip(before.methods, after.methods, strict=True)
    for old, new in sorted(pairs, key=lambda pair: -pair[0].lineno):
        if ast.dump(old) != ast.dump(new):
            above = [node.lineno for node in old.decorator_list]
            first = min([old.lineno, *above]) - 1
            indent = " " * old.col_offset
            code = textwrap.indent(ast.unparse(new), indent)
            lines[first : old.end_lineno] = [f"{code}\n"]
    return "".join(lines)


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
