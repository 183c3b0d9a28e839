"""The files of many ops: each from its table, spread over processes; and what is to be run to prove them.

In: a `Project`, the ops whose files are wanted, the proofs that are known. Out: a `Rendering` an op, in the order asked for.
Invariant: the texts do not depend on how many processes there are; a problem of one op hides none of another's.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scaffold.cli.house import headed
from scaffold.cli.places import Places, from_here, refuse_sources
from scaffold.cli.project import NOTHING, Project
from scaffold.cli.raw import Given, Merged
from scaffold.cli.scanning import Progress
from scaffold.errors import ScaffoldError, raise_all
from scaffold.files import read_text
from scaffold.spec import Configuration, OpSpec, build
from scaffold.spec.imports import runs_code_of
from scaffold.spec.manifest import Listed, proof_digest, text_digest
from scaffold.spec.requirements import check_reason
from scaffold.verify.pool import over, processes_for
from scaffold.workspace.reconcile import Wanted
from scaffold.workspace.records import Proof, function_digest

if TYPE_CHECKING:
    from scaffold.derive import Derivation

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
    with Progress(len(ops), "ops") as progress:
        for result in over(work, items, processes_for(len(ops))):
            results[result.op] = result
            progress.update(len(results))
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
        spec = specification(setting, listed, read)
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
    from scaffold.cli.generate import missing_of
    from scaffold.render.verification import verification

    missing = missing_of(spec, derivation)
    if missing:
        return Provable(proof._replace(lacks=f"it lacks {', '.join(missing)}"))
    texts = verification(spec, derivation, derivation.derived)
    ran = function_digest(texts.op, (spec.name, spec.function_name))
    whose = runs_code_of(spec)
    return Provable(proof._replace(function=ran), texts.op, texts.checks, whose)


def specification(
    setting: Setting, listed: Listed, read: Callable[[str], str]
) -> OpSpec:
    """The op that a table of a manifest describes."""
    manifest = Path(from_here(setting.places.root, listed.manifest))
    merged = Merged(listed.entry, Given(), manifest.parent)
    return build(
        listed.entry.name,
        merged.raw,
        merged.locate,
        setting.configuration,
        read,
        packaged=setting.places.directories.package is not None,
    )


def _files(
    setting: Setting, listed: Listed, spec: OpSpec
) -> tuple["Derivation", tuple[Wanted, ...], tuple[str, ...]]:
    from scaffold.cli.generate import notes_of, start_rendering
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
