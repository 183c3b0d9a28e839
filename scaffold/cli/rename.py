"""`scaffold rename`: rename an op: its files, names in them, record, and manifest table.

Words: the *base* of a file is its text as last written by scaffold, `mine` the present text, which may have edits; `wanted` is a file
as generated under the new name; a file's *role* is op, test, ...; a *record* is what .scaffold/ keeps of an op; `later` is the
project after the renaming.

In: an op of the project and its new name. Out: an `Outcome`.
Invariant: everything moves or nothing; edits by hand are kept, with the op's names changed in them, and merged with the code
generated under the new name. A `class-name` in the table is the user's, and stays.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from scaffold.cli.options import DIFF, DRY_RUN, FORMAT, check_format, offer_ops
from scaffold.cli.output import TERMINAL, say_outcome
from scaffold.errors import ConflictError, Location, ScaffoldError, raise_all
from scaffold.inspect.renaming import Names, Renaming, renamed
from scaffold.project.adding import listing
from scaffold.project.console import Console, from_here
from scaffold.project.exports import exports_of
from scaffold.project.manifest_edits import renamed as renamed_table
from scaffold.project.op_testing import Beside, kept_in_step
from scaffold.project.project import Project, exporting_path, open_project
from scaffold.project.rendering import Rendering, render_ops
from scaffold.project.source_files import find_sources, read_source
from scaffold.project.survey import Op, survey
from scaffold.project.update import Outcome, weigh, with_state
from scaffold.project.writing import Settled
from scaffold.spec.manifest import Listed, defined_names
from scaffold.spec.names import op_names
from scaffold.spec.op_spec import definitions_of
from scaffold.workspace import Plan, apply, plan, recover
from scaffold.workspace.merge import merge
from scaffold.workspace.reconcile import Wanted, decoded, present, standing
from scaffold.workspace.records import (
    Proof,
    Record,
    function_digest,
    kept_file,
    state_paths,
    written_record,
)

OP = Annotated[
    str,
    typer.Argument(
        metavar="OP", help="An op of the project.", autocompletion=offer_ops
    ),
]
NEW = Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
PLACE = Location("NEW")
_WORD = re.compile(r"[A-Za-z_]\w*")


def rename(
    op: OP,
    new: NEW,
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    format_: FORMAT = "text",
) -> None:
    """Rename an op: its files, its entry in the manifest, its names.

    Your edits are kept, under the new name. If an edit and the new text changed the same lines, the file gets conflict
    markers, and the exit code is 1.

    Example: scaffold rename linear dense
    """
    check_format(format_)
    write = not (dry_run or diff)
    say_outcome(
        lambda: rename_op(op, new, write=write, console=TERMINAL), format_, diff
    )


class _File(NamedTuple):
    """A file of the op: the last written text, and the present one."""

    path: str
    base: str
    mine: str


class _Moved(NamedTuple):
    """A file under the new name."""

    wanted: Wanted
    text: str
    conflicts: int


def rename_op(op: str, new: str, *, write: bool, console: Console) -> Outcome:
    """Rename an op, or without `write` only plan it, and return the outcome; raise an error if something is in the way."""
    project = open_project()
    undone = recover(project.root) if write else ()
    if undone:
        project = open_project()
    listed = project.chosen([op])[op]
    name = _new_name(project, listed, new)
    manifest, place = listed.manifest, listed.entry.locate((), key=True)
    text = renamed_table(project.texts[manifest], listed.entry.name, new, place)
    # `listing` adds the ops of the new text: without this the op would be there twice.
    others = {name: item for name, item in project.listed.items() if name != op}
    later = listing(project._replace(listed=others), manifest, text)
    rendering = render_ops(later, [later.listed[name]], console)[name]
    files = _files(project, op)
    # A file that the user has removed is not made again.
    wanted = {item.role: item for item in rendering.files if item.role in files}
    _check_free(project, wanted.values(), files.values())
    renaming = _renaming(project, listed, later.listed[name])
    moved = {role: _moved(files[role], item, renaming) for role, item in wanted.items()}
    texts: dict[str, str | None] = {manifest: text}
    texts |= {file.path: None for file in files.values()}
    texts |= {item.wanted.path: item.text for item in moved.values()}
    texts |= exports_of(later, [file.path for file in files.values()])
    # Only a test imports the shared module.
    shared = kept_in_step(later) if "test" in moved else Beside()
    texts |= shared.texts
    planned = plan(texts, project.root, ours=texts.keys(), reads=project.reads)
    planned = _marked(planned, moved.values())
    if write:
        record = project.records.get(op)
        proof = record and record.proof and _proof(record.proof, files, renaming)
        state = _state(later, survey(later, [name])[0], moved, rendering, proof)
        if record is not None:
            state |= dict.fromkeys(state_paths(record))
        state |= shared.state
        apply(with_state(planned, plan(state, project.root, ours=state.keys())))
    uses = _uses(project, renaming, [file.path for file in files.values()])
    verb = "conflict" if any(item.conflicts for item in moved.values()) else "rename"
    settled = Settled(planned, write, undone=undone)
    return Outcome(settled, {name: verb}, len(moved), (*uses, *shared.notes))


def _new_name(project: Project, listed: Listed, new: str) -> str:
    """Return the op's new name, as in code; raise ScaffoldError if it is invalid or taken."""
    packaged = project.places.directories.package is not None
    name = op_names(new, PLACE, packaged, project.configuration.names)[0]
    if name == listed.name:
        message = f"op '{name}' has that name already"
        raise ScaffoldError(message, PLACE, "give it another one")
    if name in project.listed:
        where = project.listed[name].entry.locate((), key=True)
        message = f"there is an op '{name}' already"
        raise ScaffoldError(message, PLACE, f"it is here: {where}")
    # Its files would be taken for those of the renamed op.
    if name in project.records:
        message = f"files of an op '{name}' are left, which is in no manifest any more"
        raise ScaffoldError(
            message, PLACE, f"remove them first: scaffold remove {name}"
        )
    return name


def _files(project: Project, op: str) -> dict[str, _File]:
    """Return the existing files of the op, by role, with their texts.

    Raise ConflictError for one whose generated text is unknown: edits in it could not be told from what was written.
    """
    found = {}
    problems: list[ScaffoldError] = []
    for role, path, base in _known(project, op):
        data = present(project.root, path)
        if data is None:
            continue
        if base is None:
            message = "there is no record of its generated text; nothing was renamed"
            hint = f"scaffold sync, or scaffold upgrade {op}"
            place = Location(from_here(project.root, path))
            problems.append(ConflictError(message, place, hint))
            continue
        found[role] = _File(path, base, decoded(data, path))
    raise_all(problems)
    return found


def _known(project: Project, op: str) -> list[tuple[str, str, str | None]]:
    """Return role, path and text as last written of each file of the op; the text is None if it is unknown.

    Without a record, an existing file counts as written if it is as it would be rendered now.
    """
    record = project.records.get(op)
    if record is not None:
        _check_markers(project, record)
        return [(kept.role, kept.path, kept.written) for kept in record.files]
    return [
        (item.wanted.role, item.path, item.wanted.text if item.need == "same" else None)
        for work in weigh(project, survey(project, [op]))
        for item in work.prospects
        if item.wanted is not None
    ]


def _check_markers(project: Project, record: Record) -> None:
    """Raise ConflictError for each recorded file with unresolved conflict markers."""
    raise_all(
        [
            ConflictError(
                "holds conflict markers; nothing was renamed",
                Location(from_here(project.root, kept.path)),
                "resolve them first",
            )
            for kept in record.files
            if standing(project.root, kept).condition == "conflict-markers"
        ]
    )


def _check_free(
    project: Project, wanted: Iterable[Wanted], files: Iterable[_File]
) -> None:
    """Raise ConflictError for each wanted path taken by a file other than the op's own."""
    own = {file.path for file in files}
    raise_all(
        [
            ConflictError(
                "is in the way; nothing was renamed",
                Location(from_here(project.root, item.path)),
                "move it, or choose another name",
            )
            for item in wanted
            if item.path not in own and present(project.root, item.path) is not None
        ]
    )


def _renaming(project: Project, before: Listed, after: Listed) -> Renaming:
    """Return the op's names before and after, and the words in its signature.

    By these an argument with the name of the op is recognized: such a word is renamed only where it is called.
    """
    return Renaming(
        _names(project, before),
        _names(project, after),
        frozenset(_WORD.findall(_signature(before))),
    )


def _signature(listed: Listed) -> str:
    """Return the text of an op's inputs and outputs: names in it are arguments, types and sizes."""
    raw = listed.entry.raw
    schema = str(raw.get("schema", "")).partition("(")[2]
    return f"{raw.get('inputs', '')} {raw.get('outputs', '')} {schema}"


def _names(project: Project, listed: Listed) -> Names:
    """Return the names an op has in code: its function, its module, its classes."""
    op, *classes = defined_names(listed.entry, project.configuration)
    module = project.configuration.names.op_file(op).removesuffix(".py")
    return Names(op, module, tuple(classes))


def _moved(file: _File, wanted: Wanted, renaming: Renaming) -> _Moved:
    """Return a file under the new name: its names changed, and its edits merged into the newly generated text."""
    base, mine = renamed(file.base, renaming), renamed(file.mine, renaming)
    merged = merge(base, mine, wanted.text)
    return _Moved(wanted, merged.text, merged.conflicts)


def _marked(planned: Plan, moved: Iterable[_Moved]) -> Plan:
    """Return the plan with the verb "conflict" for each file with conflict markers after the merge."""
    conflicts = {item.wanted.path: item.conflicts for item in moved if item.conflicts}
    changes = (
        (
            change._replace(verb="conflict", conflicts=conflicts[change.path])
            if change.path in conflicts
            else change
        )
        for change in planned.changes
    )
    return planned._replace(changes=tuple(changes))


def _state(
    project: Project,
    op: Op,
    moved: Mapping[str, _Moved],
    rendering: Rendering,
    proof: Proof | None,
) -> dict[str, str | None]:
    """Return the path and text of the op's record under its new name; {} outside a project. `moved` has its files by role."""
    if not project.configuration.project:
        return {}
    name = op.listed.name
    kept = tuple(kept_file(*item.wanted) for item in moved.values())
    origin = op.origin._replace(reads=rendering.reads)
    record = Record(name, op.listed.manifest, origin, kept, proof)
    return written_record(record) if kept else {}


def _proof(
    proof: Proof, files: Mapping[str, _File], renaming: Renaming
) -> Proof | None:
    """Return the proof on record for the renamed code, as names do not change what it computes.

    None if neither the written nor the present text is the proven one.
    """
    before, after = (
        definitions_of(names.op, names.classes[0])
        for names in (renaming.before, renaming.after)
    )
    file = files.get("op")
    # The proof may be of the text as written, or of the file with edits.
    for text in (file.base, file.mine) if file else ():
        if function_digest(text, before) == proof.function:
            code = function_digest(renamed(text, renaming), after)
            return proof._replace(function=code, text="")
    return None


def _uses(project: Project, renaming: Renaming, own: list[str]) -> tuple[str, ...]:
    """Return notes on other files that import the op's module under its old name, for the user to change; `own` are done already."""
    names = project.configuration.exports
    exporting = [exporting_path(project.places)] if names else []
    found = uses_of(project.root, renaming.before.module, [*own, *exporting])
    return tuple(
        f"{place}: imports '{renaming.before.module}' still" for place in found
    )


def uses_of(root: Path, module: str, own: Collection[str]) -> Iterator[str]:
    """Yield `path:line` of each import of a module in a Python file below the root; files in `own` are left out."""
    mine = {(root / path).resolve() for path in own}
    for path in find_sources([str(root)]):
        if Path(path).resolve() in mine:
            continue
        try:
            text = read_source(path)
            # Parsing is slow: most files have no such word.
            if module not in text:
                continue
            tree = ast.parse(text)
        except (ScaffoldError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            if _imports(node, module):
                line = getattr(node, "lineno", 1)
                yield f"{from_here(Path.cwd(), path)}:{line}"


def _imports(node: ast.AST, module: str) -> bool:
    """Return whether a statement imports a module of this name, from whatever package: `from ops import linear`."""
    match node:
        case ast.ImportFrom(str(name), names):
            found = name.rpartition(".")[2] == module
            return found or any(alias.name == module for alias in names)
        # `from . import linear`.
        case ast.ImportFrom(None, names):
            return any(alias.name == module for alias in names)
        case ast.Import(names):
            return any(alias.name.rpartition(".")[2] == module for alias in names)
    return False
