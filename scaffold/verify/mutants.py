"""Mutants: an op's file with one mistake planted.

In: the text of a module with autograd.Functions, generated or hand-written. Out: a `Mutant` for each mistake and place.
Invariant: a mutant parses and differs from the op; what lies outside the changed methods is the same text.
"""

import ast
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.verify.mistakes import MISTAKES, Mistake
from scaffold.verify.op_tree import Op, function_classes


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
