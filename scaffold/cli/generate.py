"""An op's files from the options of the command line: spec, derivation and text, composed.

In: options and settings by key. Out: a `Generated`; nothing is written.
Invariant: all that is wrong with what the user gave is raised together.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scaffold.cli.here import configuration_here, working_directory
from scaffold.cli.options import Values
from scaffold.cli.places import Places, find_places, refuse_sources
from scaffold.cli.raw import Given, Merged, read_options
from scaffold.derive import Derivation, derive
from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.files import read_text
from scaffold.formula import Assign, Formula, Node, expressions
from scaffold.render.compiled import CompiledTemplates
from scaffold.render.environment import keep_compiled
from scaffold.render.files import render
from scaffold.render.house import House
from scaffold.spec import Configuration, OpSpec, build
from scaffold.spec.imports import newer_of
from scaffold.spec.names import op_names
from scaffold.spec.problems import Locate, Problems
from scaffold.spec.requirements import check_reason
from scaffold.workspace import store
from scaffold.workspace.records import Proof

if TYPE_CHECKING:
    from scaffold.spec.manifest import Listed
    from scaffold.spec.toml import Entry


class Specified(NamedTuple):
    """An op as options, files and configuration say it, and where it goes."""

    spec: OpSpec
    places: Places
    raw: Mapping[str, Any]  # its keys, as a file beside us would hold them
    configuration: Configuration
    typed: str  # its name: RMSNorm says how classes call it
    locate: Locate
    reads: tuple[str, ...]  # files that its formulas name


class Companion(NamedTuple):
    """A file that formulas of an op name, and that is written together with the op."""

    path: str  # below the root
    module: str  # by which the op imports it
    text: str


class Generated(NamedTuple):
    """The texts of an op by their path below `root`, and what to say of them."""

    files: dict[str, str]
    root: Path
    notes: tuple[str, ...]
    missing: tuple[str, ...]  # what is left for the user to write
    spec: OpSpec
    derivation: Derivation
    derived: frozenset[str]  # inputs whose gradients follow from the forward
    source: str  # the op's directory below `root`
    specified: Specified
    house: House
    proof: Proof | None = None  # of the code, where it was run; of what, is said later
    companions: "tuple[Companion, ...]" = ()


def generate(
    name: str, values: Values, settings: Values, found: list[ScaffoldError]
) -> Generated:
    """The files of an op; `found` are problems that the caller knows of."""
    return _generated(specified(name, values, settings, found))


def specified(
    name: str, values: Values, settings: Values, found: list[ScaffoldError]
) -> Specified:
    """The op that the options and the configuration say, and where it goes."""
    given = read_options(values)
    problems = Problems(given.locate)
    for problem in (*found, *given.problems):
        problems.add(problem)
    working_directory()  # without one there is nothing else to say
    known = problems.attempt(configuration_here) or Configuration()
    where = problems.attempt(lambda: find_places(known, settings))
    packaged = where is not None and where.directories.package is not None
    said = problems.attempt(lambda: _said(name, given, settings, known, packaged))
    reads: list[str] = []

    def read(path: str) -> str:
        reads.append(path)
        return read_text(path)

    spec = said and problems.attempt(
        lambda: build(said.name, said.raw, said.locate, known, read, packaged=packaged)
    )
    problems.raise_found()
    assert said and spec and where  # or else there was a problem
    stated = (said.raw, known, said.name, said.locate)
    return Specified(spec, where, *stated, tuple(reads))


def generate_table(
    name: str,
    said: Merged,
    settings: Values,
    companions: Callable[[Places], tuple[Companion, ...]],
) -> Generated:
    """The files of an op that a table says which is not written yet, and what it names beside it."""
    known = configuration_here()
    where = find_places(known, settings)
    beside = companions(where)
    unwritten = {str(where.root / item.path): item.text for item in beside}
    reads: list[str] = []

    def read(path: str) -> str:
        reads.append(path)
        text = unwritten.get(os.path.abspath(path))
        return read_text(path) if text is None else text

    packaged = where.directories.package is not None
    spec = build(name, said.raw, said.locate, known, read, packaged=packaged)
    stated = (said.raw, known, name, said.locate)
    specified_ = Specified(spec, where, *stated, tuple(reads))
    return _generated(specified_)._replace(companions=beside)


def start_rendering() -> None:
    """Let templates be compiled once and for all."""
    keep_compiled(CompiledTemplates(store))


def _generated(specified: Specified) -> Generated:
    spec, where = specified.spec, specified.places
    start_rendering()
    derivation = derive(spec)
    wanted, once = specified.configuration.require, derivation.once_differentiable
    check_reason(wanted, spec, once, specified.locate)
    files = render(spec, derivation, where.directories, where.house, where.formatter)
    refuse_sources(where.root, files, specified.reads)
    missing = missing_of(spec, derivation)
    return Generated(
        files=files,
        root=where.root,
        notes=(*notes_of(spec, derivation), *_without_gain(specified, derivation)),
        missing=missing,
        spec=spec,
        derivation=derivation,
        derived=derivation.derived,
        source=where.directories.source,
        specified=specified,
        house=where.house,
    )


def _without_gain(specified: Specified, derivation: Derivation) -> tuple[str, ...]:
    """That a policy which was asked for of this op changes nothing there."""
    asked = specified.raw.get("save-policy") == "balanced" and derivation.derived
    if not asked or derivation.intermediates or derivation.once_differentiable:
        return ()
    return ("balanced saves no more than recompute: nothing is gained by it",)


class _Said(NamedTuple):
    """What is said of an op, and what it is called there."""

    name: str
    raw: Mapping[str, Any]
    locate: Locate


def _said(
    name: str, given: Given, settings: Values, known: Configuration, packaged: bool
) -> _Said:
    """The keys from a file, which options override; where none says a thing, from the project's manifest."""
    path = settings.get("spec")
    stated: Given | Merged = given
    if path is not None:
        stated = Merged(_entry(path, name), given, Path(path).parent)
    elif known.project and not given.places:
        listed = _listed(name, known, packaged)
        if listed is not None:
            name, stated = listed.entry.name, from_manifest(listed)
    return _Said(name, stated.raw, stated.locate)


def _listed(name: str, known: Configuration, packaged: bool) -> "Listed | None":
    """The op of that name that a manifest of the project holds."""
    from scaffold.cli.project import open_project

    try:
        op = op_names(name, Location("NAME"), packaged, known.names)[0]
    except ScaffoldError:  # whoever builds the op says so
        return None
    return open_project(may_lack=True).listed.get(op)


def from_manifest(listed: "Listed") -> Merged:
    """What a manifest says of an op, as seen from here."""
    shown = listed.entry.locate((), key=True).source
    return Merged(listed.entry, Given(), Path(shown).parent)


def _entry(path: str, name: str) -> "Entry":
    """The op of that name in a TOML file."""
    from scaffold.spec.toml import read_ops

    try:
        text = read_text(path, "utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        message = f"cannot read '{path}': {reason}"
        raise ScaffoldError(message, Location("--spec")) from None
    entries = {entry.name: entry for entry in read_ops(text, path)}
    if not entries:
        hint = "write a table: [ops.NAME]"
        raise ScaffoldError("the file holds no op", Location(path), hint)
    if name not in entries:
        hint = did_you_mean(name, entries) or f"its ops: {', '.join(entries)}"
        raise ScaffoldError(f"no op '{name}' in the file", Location(path), hint)
    return entries[name]


def missing_of(spec: OpSpec, derivation: Derivation) -> tuple[str, ...]:
    """What is left for the user to write."""
    forward = ("forward",) if derivation.forward is None else ()
    named = (
        item.name for item in spec.differentiable if item.name in derivation.missing
    )
    return (*forward, *(f"grad_{name}" for name in named))


def _unread(spec: OpSpec) -> list[str]:
    """The inputs that no formula reads, though there is a forward."""
    if spec.forward is None:
        return []
    shown = spec.surrogate.forward if spec.surrogate else None
    stated = (spec.forward, shown, spec.backward, *(one for _, one in spec.gradients))
    updates = spec.module.updates if spec.module else ()
    formulas = (*stated, *(one for _, one in updates))
    read = frozenset[str]().union(*(_names(one) for one in formulas if one))
    return [item.name for item in spec.inputs if item.name not in read]


def _names(formula: Formula) -> frozenset[str]:
    return frozenset[str]().union(*(node.names() for node in _nodes(formula)))


def _nodes(formula: Formula) -> list[Node]:
    nodes = [node for item in formula.statements for node in expressions(item)]
    return nodes + ([formula.result] if formula.result else [])


def _flat(spec: OpSpec, derivation: Derivation) -> list[str]:
    """The inputs whose derived gradient is zeros; not where `detach` says that this is meant."""
    if spec.forward is None:
        return []
    parts = (part for node in _nodes(spec.forward) for part in node.walk())
    if any("detach" in part.label for part in parts):
        return []
    assigned = [
        item
        for block in derivation.blocks
        for item in block.statements
        if isinstance(item, Assign) and _is_zeros(item.value)
    ]
    names = {f"grad_{name}": name for name in derivation.derived - set(_unread(spec))}
    return [names[one.target.label] for one in assigned if one.target.label in names]


def _is_zeros(value: Node) -> bool:
    made = value.kind == "call" and value.args[0].kind == "attribute"
    return made and value.args[0].label in ("new_zeros", "zeros_like")


def notes_of(spec: OpSpec, derivation: Derivation) -> tuple[str, ...]:
    """What was taken for granted, what was decided, what is left to write."""
    missing = missing_of(spec, derivation)
    notes = []
    if spec.conventional:
        shapes = (
            f"{name}[{', '.join(map(str, dims))}]" for name, dims in spec.conventional
        )
        notes.append(f"conventional shapes: {', '.join(shapes)}")
    notes += [f"the forward never reads '{name}'" for name in _unread(spec)]
    notes += [
        f"grad_{name} is zero everywhere; one that is meant to differ from the derivative is stated: "
        f"--grad '{name}=grad_output' --surrogate"
        for name in _flat(spec, derivation)
    ]
    notes += derivation.notes
    notes += [f"the table of operators has no '{name}'" for name in newer_of(spec)]
    if missing:
        notes.append(f"left for you to write: {', '.join(missing)}")
    return tuple(notes)
