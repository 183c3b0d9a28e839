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
from scaffold.cli.importing import dotted
from scaffold.derive import derive
from scaffold.errors import ConflictError, Location, ScaffoldError
from scaffold.inspect.adopting import Adopted, Value, adopt, adopt_bodies
from scaffold.inspect.facts import Facts
from scaffold.inspect.formulas import Unfit
from scaffold.render.files import render
from scaffold.render.formatting import format_source
from scaffold.render.layout import Directories
from scaffold.spec import OpSpec, build
from scaffold.spec.toml import read_ops

GRADIENTS = ("grad", "backward")
DIFFERS = (
    "the op that this makes is other code than what is there: state the shapes of its "
    "inputs, and read the difference with scaffold new-op NAME --spec FILE --diff"
)

KEPT = "formulas have no words for all of it: the bodies are functions of {name}"


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
    chosen = choose(Facts(function, meant.module), meant.path)
    root = Path(os.path.abspath(out_dir or "."))
    base = root
    while not base.is_dir():
        base = base.parent
    below = root.relative_to(base)
    files = {f"{chosen.op.name}.toml": chosen.op.toml(), **chosen.files}
    placed = {(below / name).as_posix(): text for name, text in files.items()}
    return Found(placed, base, chosen.notes)


class Chosen(NamedTuple):
    """A specification, and the files that it names."""

    op: Adopted
    files: dict[str, str]
    notes: tuple[str, ...]


def choose(facts: Facts, path: str) -> Chosen:
    """The specification of a Function: formulas, or where they have no words for it, its bodies in a file."""
    try:
        op, same = _chosen(facts)
        return Chosen(op, {}, () if same else (DIFFERS,))
    except (Unfit, ScaffoldError) as reason:
        kept = _with_bodies(facts, path)
        if kept is not None:
            return kept
        raise _refusal(facts, reason, path) from None


def _refusal(facts: Facts, reason: Unfit | ScaffoldError, path: str) -> ConflictError:
    """Why there is no specification, at the statement that stands in the way."""
    node: ast.AST = facts.function.node
    if isinstance(reason, Unfit):
        node, text, hint = reason.node, reason.reason, None
    else:
        text, hint = reason.message, reason.hint
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    message = f"'{facts.function.name}' cannot be adopted: {text}"
    return ConflictError(message, Location(path, line, column), hint)


def _with_bodies(facts: Facts, path: str) -> Chosen | None:
    """The specification that names functions of a file; None where the loader would refuse it."""
    module, _ = dotted(path)
    try:
        op, name, text = adopt_bodies(facts, module)
        text = format_source(text)
        (entry,) = read_ops(op.toml(), f"{op.name}.toml")
        spec = build(op.name, entry.raw, entry.locate, read={name: text}.__getitem__)
        render(replace(spec, test=False), derive(spec), Directories())
    except (Unfit, ScaffoldError):
        return None
    return Chosen(op, {name: text}, (KEPT.format(name=name),))


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
