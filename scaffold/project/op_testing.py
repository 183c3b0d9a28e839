"""The test module shared by a project, `op_testing.py`: kept like an op's files, with its own record.

Generated tests import their questions from it; without one each test has a copy of them. `survey` and `update` treat it as one
more op, called SHARED. In: a `Project`. Out: the module's status, the work on it, its changes in a run for another purpose.
Invariant: the module exists while some op has a test; an edited one is neither overwritten nor removed.
Words: the module is *wanted* while some op has a test; a *kept* file is one on record; a *prospect* is a file with what a run does with it.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from scaffold.project.console import from_here
from scaffold.project.project import Project
from scaffold.project.survey import Op, Work
from scaffold.render.file_style import PLAIN, SHARED_HEADER
from scaffold.render.formatting import keep_formatted
from scaffold.render.layout import OpTesting
from scaffold.render.templates import OP_TESTING, digest
from scaffold.spec.manifest import Listed, configuration_digest, text_digest
from scaffold.spec.other_tools import LINE_LENGTH
from scaffold.spec.problems import always_at
from scaffold.spec.toml import Entry
from scaffold.version import __version__
from scaffold.workspace.reconcile import (
    Prospect,
    Wanted,
    reconcile,
    record_files,
    standing,
)
from scaffold.workspace.records import (
    SHARED,
    Origin,
    Record,
    state_paths,
)

ROLE = "op_testing"
UPGRADE = "scaffold upgrade"


def survey_shared(project: Project) -> Op | None:
    """Return the module compared with its record, as if it were an op: it has no specification, and no proof.

    None if the project's tests share no module, or there is neither a test nor a record.
    """
    places, record = project.places, project.shared
    if not project.configuration.project or places.directories.op_testing is None:
        return None
    if record is None and not is_wanted(project):
        return None
    # The line length changes only the formatting: that alone makes nothing stale.
    directories = places.directories._replace(line_length=0)
    origin = Origin(
        __version__,
        "",
        configuration_digest(project.configuration, directories, ""),
        digest(places.house.templates),
    )
    files = record.files if record else ()
    standings = {kept.path: standing(project.root, kept) for kept in files}
    changed = origin.changed_since(record.origin) if record else ()
    listed = Listed(SHARED, "", Entry(SHARED, {}, always_at("[tool.scaffold.testing]")))
    return Op(listed, record, origin, standings, changed, "", ())


def is_wanted(project: Project) -> bool:
    """Return whether any op of the project has a test: then the shared module is needed.

    The tables of the manifests read tell, and for ops of other manifests their records: a kept test with a draft is still wanted.
    """
    defaults = dict(project.configuration.defaults)
    tables = ({**defaults, **item.entry.raw} for item in project.listed.values())
    if any(raw.get("test", True) is not False for raw in tables):
        return True
    return any(
        kept is not None and kept.draft != ""
        for op, record in project.records.items()
        if op not in project.listed and record.manifest not in project.texts
        for kept in [record.kept("test")]
    )


def wanted_files(project: Project, *, formatted: bool = True) -> tuple[Wanted, ...]:
    """Return the module as it should be, in a tuple like the files of an op; () if no op has a test. Without `formatted` it has no text."""
    shared = project.places.directories.op_testing
    return (_file(project, shared, formatted),) if shared and is_wanted(project) else ()


def _file(project: Project, shared: OpTesting, formatted: bool) -> Wanted:
    """Return the module as it should be, rendered from its template; `shared` has its path and import name.

    Without `formatted` its text is "": the digest of the draft, before black, is enough to see whether it is out of date.
    """
    from scaffold.project.rendering import start_rendering, within_limits
    from scaffold.render.imports import one_style
    from scaffold.render.op_testing import op_testing_draft

    start_rendering()
    places = project.places
    header = SHARED_HEADER if project.configuration.header else ""
    house = places.house._replace(header=header)
    said = project.configuration.testing
    draft = within_limits(house, lambda: op_testing_draft(house, said, shared.module))
    text = ""
    if formatted:
        length = places.directories.line_length
        # Our template is formatted already, for this length: only parts changed by the team's settings need it.
        # Formatting takes as long as twenty tests.
        if length == LINE_LENGTH and house.templates.find(OP_TESTING) is None:
            keep_formatted(op_testing_draft(PLAIN), length)  # now cached as it is
        text = places.formatter({shared.path: draft}, length)[shared.path]
    return Wanted(ROLE, shared.path, text_digest(one_style(draft)), text)


def weigh_shared(project: Project, op: Op) -> Work | None:
    """Return the work on the module, surveyed as `op`: to write, update or remove it; None if it is up to date."""
    wanted = is_wanted(project)
    if wanted and op.settled:
        return None
    prospects = reconcile(project.root, op.record, wanted_files(project))
    return Work(op, prospects, (), ())


class Shared(NamedTuple):
    """The module as one more op of a run, with its work; or notes on one left alone."""

    ops: tuple[Op, ...] = ()
    works: tuple[Work, ...] = ()
    notes: tuple[str, ...] = ()


def shared_works(project: Project, *, leave_edited: bool) -> Shared:
    """Return the module as one more op of a run that updates ops, with the work on it.

    With `leave_edited`, as of `new-op`, an edited one is left alone, with a note; no note if nothing new was generated for it
    (`need` "keep").
    """
    op = survey_shared(project)
    work = weigh_shared(project, op) if op else None
    # Without work it is an op of the run all the same: conflict markers in it stop a run of `sync`.
    if op is None or work is None:
        return Shared((op,) if op and not leave_edited else ())
    edited = [
        item
        for item in work.prospects
        if item.kept and item.standing and item.standing.edited and item.need != "same"
    ]
    if not leave_edited or not edited:
        return Shared((op,), (work,))
    outdated = (item for item in edited if item.need != "keep")
    return Shared(notes=tuple(left_alone(project, item) for item in outdated))


class Beside(NamedTuple):
    """Changes of the module in a run for another purpose: texts and records by path, None for removals; notes on the rest."""

    texts: Mapping[str, str | None] = MappingProxyType({})
    state: Mapping[str, str | None] = MappingProxyType({})
    notes: tuple[str, ...] = ()


def kept_in_step(
    project: Project, *, forced: bool = False, only_drop: bool = False
) -> Beside:
    """Return the changes of the module in a run that adds, removes or renames ops: it is created, updated or removed as they require.

    An edited one is only removed, and only if `forced`; else a note says that it is left. With `only_drop`, it is removed if no op
    needs it, and otherwise left as it is.
    """
    op = survey_shared(project)
    if op is None or only_drop and is_wanted(project):
        return Beside()
    work = weigh_shared(project, op)
    if work is None:
        return Beside()
    texts: dict[str, str | None] = {}
    notes = []
    for item in work.prospects:
        if item.wanted is not None and item.need in ("create", "update"):
            texts[item.path] = item.wanted.text
            if item.moved_from:
                texts[item.moved_from] = None
        # `leave`: it was edited; --force removes it all the same.
        elif item.need == "drop" or item.need == "leave" and forced:
            texts[item.path] = None
        elif item.need in ("collide", "leave"):
            notes.append(left_alone(project, item))
    return Beside(texts, shared_record(op, work.prospects, texts), tuple(notes))


def shared_record(
    op: Op, prospects: tuple[Prospect, ...], written: Collection[str]
) -> dict[str, str | None]:
    """Return the path and text of the module's record after a run; None as text, for removal, if no file of it is left.

    `prospects` are its files with the action for each, `written` the paths the run writes or removes.
    """
    record = Record(SHARED, "", op.origin, ())
    # All but an unwanted file the run removes.
    remaining = tuple(
        item
        for item in prospects
        if item.wanted is not None or item.path not in written
    )
    files = record_files(record, remaining, written)
    # No file is left to remember.
    if not files and op.record is not None:
        return dict.fromkeys(state_paths(op.record))
    return files


def left_alone(project: Project, item: Prospect) -> str:
    """Return the note on the module left alone by a run, since somebody edited it or it is not ours, and what to do about it."""
    shown = from_here(project.root, item.moved_from or item.path)
    if item.wanted is None:
        return f"'{shown}' serves no test any more, but was edited"
    if item.kept is None:
        return (
            f"'{shown}' is not as the tests need it: {UPGRADE} --on-conflict overwrite"
        )
    return (
        f"'{shown}' was edited and is out of date, tests may ask more of it: {UPGRADE}"
    )
