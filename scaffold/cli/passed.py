"""What goes on record where the tests of ops pass: that what stands in the file was proven, by its tests.

In: the tests that are run, and which passed. Out: the records; of each op that passed and is not proven all the same, why.
Invariant: a pass counts for the specification and the files that the run began with, where none of them is out of date and nobody
took anything from the generated tests; what is on record already is not written again.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from scaffold import __version__
from scaffold.cli.project import Project, open_project
from scaffold.cli.survey import Op, survey
from scaffold.errors import ScaffoldError
from scaffold.workspace import apply, plan, recover
from scaffold.workspace.reconcile import decoded, present
from scaffold.workspace.records import (
    Proof,
    Record,
    adds_only,
    function_digest,
    written_record,
)

if TYPE_CHECKING:
    from scaffold.cli.tested import Tested

UNKNOWN = "no record tells how it was written: scaffold sync"
STALE = "it is out of date: scaffold check {op}"
MOVED = "it changed while its tests ran"
TAKEN = "its generated tests were changed: put new ones beside them"


class Begun(NamedTuple):
    """An op as a run of its tests finds it."""

    maths: str  # digest of what a proof of it is about
    texts: Mapping[str, str]  # of its files, by role
    objection: str  # why a pass would prove nothing


def begin(found: "Iterable[Tested]") -> dict[str, Begun]:
    """The ops of a project that keeps records, before their tests run."""
    items = {item.name: item for item in found if item.project}
    project = next((item.project for item in items.values()), None)
    if project is None or not project.configuration.project:
        return {}
    return {
        op.listed.name: Begun(
            op.maths,
            _texts(project, op),
            _objection(project, op, items[op.listed.name]),
        )
        for op in survey(project, tuple(items))
    }


def _texts(project: Project, op: Op) -> dict[str, str]:
    files = op.record.files if op.record else ()
    data = {kept.role: (kept.path, present(project.root, kept.path)) for kept in files}
    return {
        role: decoded(content, path)
        for role, (path, content) in data.items()
        if content is not None
    }


def _objection(project: Project, op: Op, tested: "Tested") -> str:
    test = op.record.kept("test") if op.record else None
    if op.record is None or test is None or op.record.kept("op") is None:
        return UNKNOWN
    if "stale" in dict(tested.standing).values():
        return STALE.format(op=op.listed.name)
    known = op.standings[test.path]
    if known.edited:
        base = test.written
        if base is None or not adds_only(base, known.text or ""):
            return TAKEN
    return ""


def record_passed(
    passed: Mapping[str, str], begun: Mapping[str, Begun]
) -> dict[str, str]:
    """Record the ops that passed, each with its version of PyTorch; of each that is not proven now, why."""
    meant = {name: torch for name, torch in passed.items() if name in begun}
    if not meant:
        return {}
    refused: dict[str, str] = {}
    files: dict[str, str | None] = {}
    project = open_project(may_lack=True)
    known = [name for name in meant if name in project.listed]
    for op in survey(project, known) if known else ():
        name = op.listed.name
        if op.proven(project.root).status == "proven":
            continue
        before = begun[name]
        same = (op.maths, _texts(project, op)) == (before.maths, before.texts)
        reason = before.objection or ("" if same else MOVED)
        if reason or op.record is None:
            refused[name] = reason
            continue
        proven = _with_proof(op, op.record, before, meant[name])
        files |= written_record(proven)
    try:
        if files:
            recover(project.root)
            apply(plan(files, project.root, ours=files.keys()))
    except ScaffoldError as error:
        refused |= dict.fromkeys(meant, f"cannot be recorded: {error.message}")
    return refused


def _with_proof(op: Op, record: Record, begun: Begun, torch: str) -> Record:
    kept = record.kept("op")
    assert kept is not None  # or else there was an objection
    as_written = not op.standings[kept.path].edited
    return record._replace(
        proof=Proof(
            op.maths,
            function_digest(begun.texts["op"], op.names),
            kept.text if as_written else "",
            "tests",
            __version__,
            torch,
        )
    )
