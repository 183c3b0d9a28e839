"""Adding ops to a project for `new-op` and `adopt`: tables go into the manifest, files and records are written with them.

The last step of these commands, after the ops were rendered (`rendering`) and perhaps proven (`proofs`).
In: generated ops, and the policy of `--on-conflict`. Out: a `Settled`, the plan of the files, the manifest among them.
Invariant: existing manifest text keeps its form and its comments; a differing op of the same name is replaced only if the
policy is `overwrite`.

Words: a *manifest* is a TOML file of ops, `ops.toml`; an op's *table* is its `[ops.swish]` in there, the *entry* that table as read;
*companions* are files that formulas of the op name and that are written with it, such as a copy of an adopted forward.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scaffold.errors import ConflictError, Location, ScaffoldError, raise_all
from scaffold.files import read_bytes
from scaffold.project.console import Console, from_here
from scaffold.project.interpreter import Run
from scaffold.project.manifest_edits import replaced
from scaffold.project.project import Project, new_manifest, open_project
from scaffold.project.rendering import Generated, rendering_of
from scaffold.project.specification import (
    FORMULAS,
    Specified,
    from_manifest,
    with_files,
)
from scaffold.project.survey import survey
from scaffold.project.update import carry_out
from scaffold.project.writing import Settled, undisturbed
from scaffold.spec import Configuration
from scaffold.spec.manifest import list_ops
from scaffold.spec.toml import op_table, toml_text
from scaffold.workspace import Policy, recover


def add_ops(
    generated: Sequence[Generated],
    policy: Policy,
    *,
    write: bool,
    run: Run | None,
    console: Console,
) -> Settled:
    """Write the tables and files of ops and record their proofs, all or none; without `write` (`--dry-run`), only plan them.

    `run` says how to prove the ops that are proven or lack parts, None: not at all. If another process changes a file in between,
    everything is read and planned again.
    """
    return undisturbed(partial(_add_ops, generated, policy, write, run, console))


def _add_ops(
    generated: Sequence[Generated],
    policy: Policy,
    write: bool,
    run: Run | None,
    console: Console,
) -> Settled:
    """Write the ops' files, their tables in the manifest and their records in one plan, or only plan them; one attempt of `add_ops`.

    It reads the project anew, so that it can be repeated. The project is then surveyed as if the new manifest were on disk already, so
    the rest is what `sync` does for ops of a manifest (`carry_out`). Raise ConflictError if an op or file of that name differs.
    """
    undone = recover(generated[0].root) if write else ()
    project = open_project(may_lack=True)
    for one in generated:
        project = _with_op(project, one, policy)
    ops = survey(project, [one.spec.name for one in generated])
    # None was proven, none lacks parts: a proof is not wanted, or impossible, and `carry_out` makes none.
    if not any(one.proof or one.missing for one in generated):
        run = None
    rendered = {}
    for one, op in zip(generated, ops, strict=True):
        known = run.known(op) if run and (one.proof or one.missing) else None
        rendering = rendering_of(one, project, known)
        # None: its files would differ under the project's settings, and carry_out renders them.
        if rendering is not None:
            rendered[op.listed.name] = rendering
    outcome = carry_out(
        project,
        ops,
        policy,
        write=write,
        prune=True,
        run=run,
        console=console,
        manifests=project.unwritten,
        rendered=rendered,
        adding=True,
    )
    return outcome.settled._replace(undone=undone)


def _with_op(project: Project, generated: Generated, policy: Policy) -> Project:
    """Return the project with the op's table and its companions as texts to write; raise ConflictError if it has others of their names."""
    project = _as_generated(project, generated)
    specified = generated.specified
    path = _manifest(project, specified.spec.name)
    keys = _for_manifest(specified.raw, project.root / path)
    text = project.texts.get(path, "")
    changed = _with_table(project, text, specified, keys, policy)
    companions = {item.path: item.text for item in generated.companions}
    if policy != "overwrite":
        _refuse_to_replace(project.root, companions)
    # An unchanged manifest is not written again.
    table = {path: changed} if changed != text else {}
    unwritten = {**project.unwritten, **table, **companions}
    return listing(project, path, changed)._replace(unwritten=unwritten)


def _as_generated(project: Project, generated: Generated) -> Project:
    """Return the project with the templates the op was generated with, so survey and record name these: `--template-dir` may add some."""
    house, used = project.places.house, generated.specified.places.house
    places = project.places._replace(house=house._replace(templates=used.templates))
    return project._replace(places=places)


def _refuse_to_replace(root: Path, files: Mapping[str, str]) -> None:
    """Raise ConflictError for each of `files`, companions by path below the root, that exists with another text."""
    raise_all(
        [
            ConflictError(
                "exists and differs; nothing was written",
                Location(from_here(root, path)),
                "give the op another name, or use --on-conflict overwrite",
            )
            for path, text in files.items()
            if (root / path).exists()
            and read_bytes(root / path).decode(errors="replace") != text
        ]
    )


def _manifest(project: Project, op: str) -> str:
    """Return the manifest (its path below the root) with the op, or the one to add a new op to.

    Raise ScaffoldError if several are possible: the configuration names only patterns, `manifest = ["a/*.toml", "b/*.toml"]`.
    """
    if op in project.listed:
        return project.listed[op].manifest
    new = new_manifest(project.configuration, op)
    if new is None:
        patterns = project.configuration.manifest
        raise ScaffoldError(
            f"there is no single manifest for the op: {', '.join(patterns)}",
            hint="write its table by hand and run 'scaffold sync', or put one file first "
            f"in [tool.scaffold]: manifest = {toml_text([*Configuration().manifest, *patterns])}",
        )
    return new


def _for_manifest(raw: Mapping[str, Any], manifest: Path) -> dict[str, Any]:
    """Return an op's keys as a manifest holds them: files of formulas are named from the manifest's directory, not from here.

    In ops/ops.toml, `forward = "@ops/f.py:swish"` becomes `"@f.py:swish"`.
    """

    def seen_from_it(path: str) -> Path:
        return Path(os.path.relpath(path, os.path.relpath(manifest.parent)))

    return {
        key: with_files(value, seen_from_it) if key in FORMULAS else value
        for key, value in raw.items()
    }


def _with_table(
    project: Project,
    text: str,
    specified: Specified,
    keys: Mapping[str, Any],
    policy: Policy,
) -> str:
    """Return the manifest's new `text`: a new op's table at the end, a known op's with the new keys; the same text for equal keys.

    `keys` are the op's, as a manifest holds them. Raise ConflictError if the op is there with other keys, unless the policy is `overwrite`.
    """
    op = specified.spec.name
    listed = project.listed.get(op)
    if listed is None:
        above = f"{text.rstrip()}\n\n" if text.strip() else ""
        return above + op_table(specified.typed, keys)  # typed: "RMSNorm", not rms_norm
    manifest = project.root / listed.manifest
    if _for_manifest(from_manifest(listed).raw, manifest) == keys:
        return text
    if policy != "overwrite":
        message = f"op '{op}' is here already, and differs; nothing was written"
        hint = "edit it and run 'scaffold sync', or use --on-conflict overwrite"
        raise ConflictError(message, listed.entry.locate((), key=True), hint)
    place = listed.entry.locate((), key=True)
    return replaced(text, listed.entry.name, keys, place)


def listing(project: Project, path: str, text: str) -> Project:
    """Return the project as if its manifest at `path`, below the root, had this text, to survey an op before its table is written.

    `rename` does so too. A run stops if a file it read changed: `reads` notes the manifest, unless read before, as not existing yet.
    """
    shown = from_here(project.root, path)
    packaged = project.places.directories.package is not None
    listed = {
        item.name: item._replace(manifest=path)
        for item in list_ops({shown: text}, packaged, project.configuration.names)
    }
    return project._replace(
        listed={**project.listed, **listed},
        texts={**project.texts, path: text},
        reads={path: None, **project.reads},  # None: the file does not exist yet
    )
