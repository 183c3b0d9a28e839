"""The files of many ops: each from its table, spread over processes.

In: a `Project` and the ops whose files are wanted. Out: a `Rendering` an op, in the order asked for.
Invariant: the texts do not depend on how many processes there are; a problem of one op hides none of another's.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from scaffold.cli.house import headed
from scaffold.cli.places import Places, from_here, refuse_sources
from scaffold.cli.project import Project
from scaffold.cli.raw import Given, Merged
from scaffold.cli.scanning import Progress
from scaffold.errors import ScaffoldError, raise_all
from scaffold.spec import Configuration, OpSpec, build
from scaffold.spec.manifest import Listed, text_digest
from scaffold.spec.requirements import check_reason
from scaffold.verify.pool import over, processes_for
from scaffold.workspace.reconcile import Wanted

ROLES = ("op", "test")


class Rendering(NamedTuple):
    """What an op's table leads to."""

    op: str
    files: tuple[Wanted, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()  # files that its formulas name
    notes: tuple[str, ...] = ()
    problems: tuple[ScaffoldError, ...] = ()


class Setting(NamedTuple):
    """What is the same for every op of a run."""

    configuration: Configuration
    places: Places
    formatted: bool


def render_ops(
    project: Project, ops: Sequence[Listed], *, formatted: bool = True
) -> dict[str, Rendering]:
    """Render the ops; all of their problems are raised together, one that several have once."""
    if not ops:
        return {}
    setting = Setting(project.configuration, project.places, formatted)
    work = partial(_rendered, setting)
    results: dict[str, Rendering] = {}
    with Progress(len(ops), "ops") as progress:
        for result in over(work, ops, processes_for(len(ops))):
            results[result.op] = result
            progress.update(len(results))
    problems = [problem for item in results.values() for problem in item.problems]
    once = {str(problem): problem for problem in problems}  # a template's is every op's
    raise_all(list(once.values()))
    return results


def _rendered(setting: Setting, listed: Listed) -> Rendering:
    """One op; runs in any process."""
    reads: dict[str, str] = {}
    opened: list[str] = []

    def read(path: str) -> str:
        text = Path(path).read_text(encoding="utf-8")
        opened.append(path)
        below = os.path.relpath(path, setting.places.root)
        reads[Path(below).as_posix()] = text_digest(text)
        return text

    try:
        spec = specification(setting, listed, read)
        files, notes = _files(setting, listed, spec)
        paths = [item.path for item in files]
        refuse_sources(setting.places.root, paths, opened)
    except ScaffoldError as error:
        return Rendering(listed.name, problems=error.problems)
    return Rendering(listed.name, files, tuple(sorted(reads.items())), notes)


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
) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
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
    return files, notes_of(spec, derivation)
