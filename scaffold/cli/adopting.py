"""A Function becomes a file of TOML.

In: `PATH::CLASS`. Out: the text, by its path.
Invariant: what is written loads as a specification; otherwise there is an error that says where it would not.
"""

import ast
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from scaffold.cli.existing import find_functions
from scaffold.derive import derive
from scaffold.errors import ConflictError, Location, ScaffoldError
from scaffold.inspect.adopting import Adopted, Value, adopt
from scaffold.inspect.facts import Facts
from scaffold.inspect.formulas import Unfit
from scaffold.render.files import render
from scaffold.render.layout import Directories
from scaffold.spec import OpSpec, build
from scaffold.spec.toml import read_ops

GRADIENTS = ("grad", "backward")
DIFFERS = (
    "the op that this makes is other code than what is there: state the shapes of its "
    "inputs, and read the difference with scaffold new-op NAME --spec FILE --diff"
)


class Found(NamedTuple):
    """What is to be written, and what to know of it."""

    files: dict[str, str]
    root: Path
    notes: tuple[str, ...]


def adopted(target: str, out_dir: str | None) -> Found:
    """The specification of one Function."""
    found = find_functions((target,)).meant
    functions = [(meant, function) for meant in found for function in meant.functions]
    if len(functions) != 1:
        names = ", ".join(function.qualname for _, function in functions)
        hint = f"one of: {names}"
        place = Location(target.partition("::")[0])
        raise ScaffoldError("holds several Functions: name one", place, hint)
    ((meant, function),) = functions
    try:
        op, same = _chosen(Facts(function, meant.module))
    except Unfit as reason:
        line = getattr(reason.node, "lineno", 1)
        column = getattr(reason.node, "col_offset", 0) + 1
        message = f"'{function.name}' cannot be adopted: {reason.reason}"
        raise ConflictError(message, Location(meant.path, line, column)) from None
    root = Path(os.path.abspath(out_dir or "."))
    base = root
    while not base.is_dir():
        base = base.parent
    path = (root.relative_to(base) / f"{op.name}.toml").as_posix()
    notes = () if same else (DIFFERS,)
    return Found({path: op.toml()}, base, notes)


def _chosen(facts: Facts) -> tuple[Adopted, bool]:
    """The first table that leads to the same code; where none does, the one of the Function's own statements.

    Formulas of gradients are stated only where what is derived is other code.
    """
    last = None
    for last in adopt(facts):
        derived = last._replace(keys=_without_gradients(last.keys))
        for table in (derived, last):
            if _leads_back(table, facts):
                return table, True
    assert last is not None
    _spec(last)  # what the loader refuses is the error
    return last, False


def _without_gradients(keys: Mapping[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in keys.items() if key not in GRADIENTS}


def _spec(op: Adopted) -> OpSpec:
    (entry,) = read_ops(op.toml(), f"{op.name}.toml")
    return build(op.name, entry.raw, entry.locate)


def _leads_back(op: Adopted, facts: Facts) -> bool:
    """Whether the op that a table makes has the Function that is there."""
    try:
        spec = replace(_spec(op), test=False)
        (text,) = render(spec, derive(spec), Directories()).values()
    except ScaffoldError:
        return False
    made = {
        node.name: node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }
    name = facts.function.name
    return name in made and ast.dump(made[name]) == ast.dump(facts.function.node)
