"""A name that PyTorch does not have, which a verification has come upon.

In: an `OpSpec` and what it raised. Out: where a formula says the name, and what may have been meant. Invariant: what is
proposed is an operator of the shipped table. The name is newer than that table, or else a formula with it is no formula.
"""

import ast
import re
from typing import NamedTuple

from scaffold.errors import Location
from scaffold.formula import meant
from scaffold.spec import OpSpec

MISSING = re.compile(
    r"raised AttributeError: (?:module '([\w.]+)'|'Tensor' object) has no attribute '(\w+)'"
)


class Misnamed(NamedTuple):
    """Where the name stands, and a hint."""

    place: Location | None
    hint: str | None


def misnamed(spec: OpSpec, words: str) -> Misnamed | None:
    """What can be said of an attribute that is not there; None if the words are about something else."""
    found = MISSING.match(words)
    if found is None:
        return None
    module, name = found.groups()
    stated = (spec.forward, spec.backward, *dict(spec.gradients).values())

    def says(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == name

    places = (formula.locate(says) for formula in stated if formula)
    return Misnamed(next(filter(None, places), None), meant(module, name))
