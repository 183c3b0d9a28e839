"""An op's files: from its specification to a derivation and texts, of one op or of many.

In: options and settings by key, or a `Project` and the ops whose files are wanted. Out: what was generated, with what is to be
run to prove it; nothing is written.
Invariant: the texts do not depend on how many processes there are; a problem of one op hides none of another's.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from scaffold.derive import Derivation, derive
from scaffold.errors import ScaffoldError, raise_all
from scaffold.files import read_text
from scaffold.formula import Assign, Formula, Node, expressions
from scaffold.project.console import Console
from scaffold.project.places import Places, headed, refuse_sources
from scaffold.project.project import NOTHING, Project
from scaffold.project.specification import (
    Companion,
    Merged,
    Specified,
    Values,
    specification,
    specified,
    specified_table,
)
from scaffold.render.compiled import CompiledTemplates
from scaffold.render.environment import keep_compiled
from scaffold.render.files import render
from scaffold.render.house import House
from scaffold.spec import Configuration, OpSpec
from scaffold.spec.imports import newer_of, runs_code_of
from scaffold.spec.manifest import Listed, proof_digest, text_digest
from scaffold.spec.requirements import check_reason
from scaffold.verify.pool import over, processes_for
from scaffold.workspace import store
from scaffold.workspace.reconcile import Wanted
from scaffold.workspace.records import Proof, function_digest


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


def generate_table(
    name: str,
    said: Merged,
    settings: Values,
    companions: Callable[[Places], tuple[Companion, ...]],
) -> Generated:
    """The files of an op that a table says which is not written yet, and what it names beside it."""
    specified, beside = specified_table(name, said, settings, companions)
    return _generated(specified)._replace(companions=beside)


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


ROLES = ("op", "test")
Known = Mapping[str, tuple[Proof, ...]]  # of each op


class Provable(NamedTuple):
    """What a proof of an op needs: the texts that are run, and what it would be a proof of."""

    proof: Proof  # as it is recorded if the run succeeds, without the version of torch
    op: str = ""
    checks: str = ""
    whose: str | None = None  # what is said of code that runs beside PyTorch's


class Rendering(NamedTuple):
    """What an op's table leads to."""

    op: str
    files: tuple[Wanted, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()  # files that its formulas name
    notes: tuple[str, ...] = ()
    problems: tuple[ScaffoldError, ...] = ()
    code: str = ""  # digest of the Function as it is rendered, where proofs matter
    proof: Proof | None = None  # that is known, of this specification and code
    provable: Provable | None = None  # where there is none


class Setting(NamedTuple):
    """What is the same for every op of a run."""

    configuration: Configuration
    places: Places
    formatted: bool
    proving: bool
    unwritten: Mapping[str, str] = NOTHING  # by path below the root


def render_ops(
    project: Project,
    ops: Sequence[Listed],
    console: Console,
    *,
    formatted: bool = True,
    known: Known | None = None,
) -> dict[str, Rendering]:
    """Render the ops; all of their problems are raised together, one that several have once.

    With the proofs that are `known` comes what proves those that have none.
    """
    if not ops:
        return {}
    proving = known is not None
    stated = (project.configuration, project.places, formatted, proving)
    setting = Setting(*stated, project.unwritten)
    work = partial(_rendered, setting)
    results: dict[str, Rendering] = {}
    items = [(listed, (known or {}).get(listed.name, ())) for listed in ops]
    with console.progress(len(ops), "ops") as update:
        for result in over(work, items, processes_for(len(ops))):
            results[result.op] = result
            update(len(results))
    problems = [problem for item in results.values() for problem in item.problems]
    once = {str(problem): problem for problem in problems}  # a template's is every op's
    raise_all(list(once.values()))
    return results


def _rendered(setting: Setting, item: tuple[Listed, tuple[Proof, ...]]) -> Rendering:
    """One op; runs in any process."""
    listed, known = item
    digests: dict[str, str] = {}
    opened: list[str] = []

    def read(path: str) -> str:
        below = Path(os.path.relpath(path, setting.places.root)).as_posix()
        unwritten = setting.unwritten.get(below)
        text = read_text(path) if unwritten is None else unwritten
        opened.append(path)
        digests[below] = text_digest(text)
        return text

    try:
        stated = (setting.configuration, setting.places)
        spec = specification(listed, *stated, read)
        derivation, files, notes = _files(setting, listed, spec)
        paths = [item.path for item in files]
        refuse_sources(setting.places.root, paths, opened)
    except ScaffoldError as error:
        return Rendering(listed.name, problems=error.problems)
    reads = tuple(sorted(digests.items()))
    found = Rendering(listed.name, files, reads, notes)
    if not setting.proving:
        return found
    maths = proof_digest(listed.entry, setting.configuration, reads)
    names = (spec.name, spec.function_name)
    code = function_digest(files[0].text, names)
    held = (proof for proof in known if (proof.spec, proof.function) == (maths, code))
    proof = next(held, None)
    if proof is not None:
        return found._replace(code=code, proof=proof)
    provable = _provable(setting, spec, derivation, Proof(maths, code))
    return found._replace(code=code, provable=provable)


def _provable(
    setting: Setting, spec: OpSpec, derivation: "Derivation", proof: Proof
) -> Provable:
    """What is to be run; nothing where parts of the op are left to write."""
    from scaffold.render.verification import verification

    missing = missing_of(spec, derivation)
    if missing:
        return Provable(proof._replace(lacks=f"it lacks {', '.join(missing)}"))
    texts = verification(spec, derivation, derivation.derived)
    ran = function_digest(texts.op, (spec.name, spec.function_name))
    whose = runs_code_of(spec)
    return Provable(proof._replace(function=ran), texts.op, texts.checks, whose)


def _files(
    setting: Setting, listed: Listed, spec: OpSpec
) -> tuple["Derivation", tuple[Wanted, ...], tuple[str, ...]]:
    from scaffold.derive import derive
    from scaffold.render.files import drafts
    from scaffold.render.imports import one_style

    start_rendering()
    derivation = derive(spec)
    wanted, once = setting.configuration.require, derivation.once_differentiable
    check_reason(wanted, spec, once, listed.entry.locate)
    places = setting.places
    house = headed(places.house, setting.configuration, listed.manifest)
    texts = drafts(spec, derivation, places.directories, house)
    shown = dict.fromkeys(texts, "")
    if setting.formatted:
        shown = places.formatter(texts, places.directories.line_length)
    files = tuple(
        Wanted(role, path, text_digest(one_style(draft)), shown[path])
        for role, (path, draft) in zip(ROLES, texts.items(), strict=False)
    )
    return derivation, files, notes_of(spec, derivation)
