"""Update of files from a manifest: outdated ops are rendered, settled and written with their records, all or nothing.

The service of `sync` and `upgrade`, and the last step of `new-op` in a project. In: a `Project`, the status of its ops, and the
policy of `--on-conflict`. Out: an `Outcome`.
Invariant: files, records and bases are one plan; a look and a write of the same ops give the same verbs.

Words: an op's *work* are its files as rendered, each a *prospect* with what to do (`need`): "collide" is a file edited by hand,
or not ours, for which there is new text; *settled*: conflicts are decided, or an op needs no rendering; *leave*, *left*: files
of an op stay as they are; *prune*: remove files an op no longer has; a *base* is the text written last, from which edits are
merged; a *verb* is what happens to a file, "update".
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scaffold.errors import (
    ConflictError,
    Location,
    ScaffoldError,
    ScaffoldErrors,
    raise_all,
)
from scaffold.project.console import SILENT, Console, from_here
from scaffold.project.interpreter import Proofs, Run
from scaffold.project.op_testing import shared_record, shared_works
from scaffold.project.project import Project, open_project
from scaffold.project.survey import Op, Work, survey
from scaffold.project.writing import Settled, without_conflicts
from scaffold.workspace import Plan, Policy, apply, plan, recover, rehearse
from scaffold.workspace.merge import merge
from scaffold.workspace.reconcile import Prospect, reconcile, record_files
from scaffold.workspace.records import SHARED, Record, record_path

if TYPE_CHECKING:
    from scaffold.project.rendering import Rendering

# Verbs of files; the last of them that one file of an op has is the op's.
WEIGHT = ("identical", "skip", "create", "remove", "update", "conflict", "left")

# Verbs as the summary of a run has them.
TOLD = {
    "create": "created",
    "update": "updated",
    "remove": "removed",
    "rename": "renamed",
    "conflict": "in conflict",
    "left": "left as is",
    "skip": "edited",
    "identical": "identical",
}
NOTHING: Mapping[str, str] = {}
MADE: Mapping[str, "Rendering"] = {}


class Outcome(NamedTuple):
    """The result of a run, or of a look at its plan; files of records are not counted."""

    settled: Settled
    verbs: dict[str, str]  # by op, the weightiest of its files
    files: int
    notes: tuple[str, ...] = ()
    left: tuple[ScaffoldError, ...] = ()  # why ops were left unchanged

    @property
    def counts(self) -> str:
        """Return the number of ops by verb: `2 created, 98 identical`."""
        counted = Counter(self.verbs.values())
        return ", ".join(
            f"{counted[verb]} {word}" for verb, word in TOLD.items() if counted[verb]
        )


class Asked(NamedTuple):
    """A user's request: the options of the command."""

    policy: Policy
    write: bool
    prune: bool = True  # remove files no longer part of an op
    leave: bool = False  # leave ops that were edited and are out of date
    run: Run | None = None  # of proofs; None: without
    template_dirs: tuple[str, ...] = ()


def bring_up_to_date(
    asked: Asked,
    console: Console,
    *,
    manifests: tuple[str, ...] = (),
    ops: tuple[str, ...] = (),
) -> Outcome:
    """Update the files of the named ops, or of all ops of these manifests; without `asked.write`, only plan it.

    The files of a killed run are restored first, and the project is then read again. Notes tell of ops in no manifest any more,
    of a missing [tool.scaffold], and of edits that git could not bring back.
    """
    project = _project(asked, manifests)
    undone = recover(project.root) if asked.write else ()
    if undone:
        project = _project(asked, manifests)
    found = survey(project, ops)
    unsafe = _uncommitted(project, found) if asked.prune else ()
    outcome = carry_out(
        project,
        found,
        asked.policy,
        write=asked.write,
        prune=asked.prune,
        run=asked.run,
        console=console,
        leave=asked.leave,
    )
    notes = [*unsafe, *outcome.notes]
    if not ops:
        notes += [
            f"op '{record.op}' is in no manifest any more: scaffold remove {record.op}"
            for record in project.orphans()
        ]
    if not project.configuration.project:
        notes.append("no [tool.scaffold] here: nothing is remembered; scaffold init")
    settled = outcome.settled._replace(undone=undone)
    return outcome._replace(settled=settled, notes=tuple(notes))


def _project(asked: Asked, manifests: tuple[str, ...]) -> Project:
    """Return the project with these manifests, or all; raise without records if files are to be removed: nobody knows which are ours."""
    dirs = asked.template_dirs
    return open_project(manifests, settled=asked.prune, template_dirs=dirs)


def _uncommitted(project: Project, ops: tuple[Op, ...]) -> tuple[str, ...]:
    """Return a note on edited files of ops to be rendered that git does not have as they are: a merge may change them; () without any."""
    paths = [
        path
        for op in ops
        if not op.settled
        for path, known in op.standings.items()
        if known.edited
    ]
    if not paths:
        return ()
    from scaffold.verify.external_tools import uncommitted  # most runs merge nothing

    found = uncommitted(project.root, paths)
    shown = ", ".join(f"'{from_here(project.root, path)}'" for path in found)
    return (f"not committed: {shown}; git could not undo this",) if found else ()


def weigh(
    project: Project,
    ops: tuple[Op, ...],
    run: Run | None = None,
    console: Console = SILENT,
    rendered: Mapping[str, "Rendering"] = MADE,
) -> tuple[Work, ...]:
    """Return the work on each op that has to be rendered: its files as they should be, compared with the disk.

    `rendered` has ops rendered already. With a `run` of proofs each work has the op's known proof or the texts to make one; a run
    of all proofs renders each unproven op too.
    """
    open_ = [op for op in ops if _is_open(project, op, run)]
    if not open_:
        return ()
    from scaffold.project.rendering import render_ops

    known = None if run is None else {op.listed.name: run.known(op) for op in open_}
    left = [op.listed for op in open_ if op.listed.name not in rendered]
    rendered = {**rendered, **render_ops(project, left, console, known=known)}
    works = []
    for op in open_:
        result = rendered[op.listed.name]
        prospects = reconcile(project.root, op.record, result.files)
        proven = (result.code, result.proof, result.provable)
        works.append(Work(op, prospects, result.reads, result.notes, *proven))
    return tuple(works)


def _is_open(project: Project, op: Op, run: Run | None) -> bool:
    """Return whether an op has to be rendered: it may be out of date, its record has files of an old format, or `run` is to prove it."""
    if not op.settled or (op.record is not None and op.record.former):
        return True
    proves_all = run is not None and run.every
    return proves_all and op.proven(project.root).status == "unproven"


def carry_out(
    project: Project,
    ops: tuple[Op, ...],
    policy: Policy,
    *,
    write: bool,
    prune: bool,
    run: Run | None,
    console: Console,
    leave: bool = False,
    manifests: Mapping[str, str] = NOTHING,
    rendered: Mapping[str, "Rendering"] = MADE,
    adding: bool = False,
) -> Outcome:
    """Update the files of the ops and the shared test module in one step; without `write`, only plan it.

    A changed Function is proven first, unless `run` is None. With `leave`, all files of an op that was edited and is out of date
    stay as they are; when `adding` an op, an edited shared module does. `manifests` are written too.
    """
    of_ops = weigh(project, ops, run, console, rendered)
    shared = shared_works(project, leave_edited=adding)
    works, listed = (*of_ops, *shared.works), (*ops, *shared.ops)
    left = _left_alone(project.root, works, listed) if leave else {}
    if left:
        works = tuple(work for work in works if work.op.listed.name not in left)
    if not leave:
        # `sync --on-conflict skip` minds markers only in files it has new text for (`works`).
        _check_markers(project.root, works, listed if prune or policy != "skip" else ())
    others = {**manifests, **_exports(project, works, left)}
    planned = _planned(project, works, policy, prune, others)
    settled = _settled(project.root, works, planned, policy, write, console)
    proofs = Proofs({})
    if not settled.problems:
        rehearse(settled.plan)  # an unwritable plan need not be proven
        proven = [work for work in works if work.op in ops]
        if run is not None and proven:
            from scaffold.project.proofs import prove_works  # this imports the engine

            proofs = prove_works(project, proven, settled.plan, run, console)
        recorded = _with_records(project, works, settled.plan, proofs)
        (apply if write else rehearse)(recorded)
    verbs = _verbs(ops, works, settled.plan)
    verbs |= {op: "left" for op in left if op in verbs}
    notes = (*_notes(works, prune, planned), *proofs.notes)
    reasons = tuple(reason for reasons in left.values() for reason in reasons)
    settled = settled._replace(told=shared.notes)
    return Outcome(settled, verbs, _count(ops, works), notes, reasons)


def _left_alone(
    root: Path, works: tuple[Work, ...], ops: tuple[Op, ...]
) -> dict[str, list[ScaffoldError]]:
    """Return the ops to leave alone, by name: with a file that was edited and is out of date, or has conflict markers; and why, for each."""
    left: dict[str, list[ScaffoldError]] = {}

    def leave(op: Op, path: str, what: str, hint: str) -> None:
        """Add a reason: the file at `path` "was edited and is out of date"."""
        place = Location(from_here(root, path))
        problem = ConflictError(f"{what}; left as it is", place, hint)
        left.setdefault(op.listed.name, []).append(problem)

    marked = set()
    for op in ops:
        for path, known in op.standings.items():
            if known.condition == "conflict-markers":
                marked.add(path)
                leave(op, path, "holds conflict markers", "resolve them")
    for work in works:
        for item in work.prospects:
            edited = item.need == "collide" and item.standing and item.standing.edited
            # Of a file with conflict markers that has been said above.
            if edited and item.kept and item.kept.path not in marked:
                path = item.moved_from or item.path
                leave(work.op, path, "was edited and is out of date", work.op.upgrade)
    return left


def _settled(
    root: Path,
    works: tuple[Work, ...],
    planned: Plan,
    policy: Policy,
    write: bool,
    console: Console,
) -> Settled:
    """Return the plan with its conflicts decided by the policy, or by asking on the console; undecided, and not written, if they cannot be.

    Then `refusal` has the error; or `obstacle`, if the plan is only to be shown (`write` is False) and the policy decides nothing.
    """
    settled = Settled(planned, written=False)
    # Nobody is asked in a look: it shows the conflicts, and the error that a run would raise.
    if not write and planned.conflicts and policy in ("ask", "abort"):
        return settled._replace(obstacle=_refusal(root, works))
    try:
        return Settled(without_conflicts(planned, policy, console), write)
    except ConflictError as error:
        # If the policy is to merge, the error says why a file cannot be.
        refusal = error if policy == "merge" else _refusal(root, works)
        return settled._replace(refusal=refusal)


def _count(ops: tuple[Op, ...], works: tuple[Work, ...]) -> int:
    """Return the number of files of the ops, for the summary of a run; the shared test module counts only if it changes."""
    rendered = {work.op.listed.name for work in works}
    files = sum(len(op.standings) for op in ops if op.listed.name not in rendered)
    touched = (
        item
        for work in works
        for item in work.prospects
        if work.op in ops or item.need not in ("same", "keep")
    )
    return files + sum(1 for _ in touched)


def _exports(
    project: Project, works: tuple[Work, ...], left: Collection[str]
) -> dict[str, str]:
    """Return the new text of the package's `__init__.py` by path, if it changes; ops in `left` are not updated, so not exported anew.

    `moved` are former paths of files, `lost` has, by op, the names its new text no longer defines: imports of both go.
    """
    if not project.configuration.exports:
        return {}
    from scaffold.project.exports import exports_of, names_lost

    listed = {op: item for op, item in project.listed.items() if op not in left}
    project = project._replace(listed=listed)
    moved: list[str] = []
    lost = {}
    for work in works:
        op = work.op.listed.name
        for item in work.prospects:
            moved += [item.moved_from] if item.moved_from else []
            if item.kept and item.wanted and item.wanted.role == "op":
                lost[op] = names_lost(item.kept.written or "", item.wanted.text)
    return exports_of(project, moved, lost)


def _check_markers(root: Path, works: tuple[Work, ...], ops: tuple[Op, ...]) -> None:
    """Raise ConflictError for each file with unresolved conflict markers, of files to be written (`works`) and files of `ops`."""
    touched = {
        item.kept.path: item.standing
        for work in works
        for item in work.prospects
        if item.need == "collide" and item.kept and item.standing
    }
    for op in ops:
        touched |= op.standings
    raise_all(
        [
            ConflictError(
                "holds conflict markers; nothing was written",
                Location(from_here(root, path)),
                "resolve them first",
            )
            for path, known in touched.items()
            if known.condition == "conflict-markers"
        ]
    )


def _planned(
    project: Project,
    works: tuple[Work, ...],
    policy: Policy,
    prune: bool,
    manifests: Mapping[str, str],
) -> Plan:
    """Return the plan of the works' files, writes, moves and removals, and of `manifests`, texts by path; conflicts are not decided yet.

    Without `prune`, a file no longer part of its op stays. `ours` are paths overwritten or removed without asking.
    """
    files: dict[str, str | None] = {}
    ours = set(manifests)
    bases: dict[str, str] = {}
    for work in works:
        for item in work.prospects:
            wanted, moved = item.wanted, item.moved_from
            # A file that was removed by hand is dropped without asking: only its record is left.
            if item.need == "drop" and (prune or item.is_gone):
                files[item.path] = None
                ours.add(item.path)
            if wanted is None or item.need in ("same", "keep"):
                continue
            if item.need == "update":
                ours.add(item.path)
            base = _base(item)
            if base is not None:
                bases[item.path] = base
            files[item.path] = wanted.text
            # `standing`: what moves was recorded, so it has one.
            if moved is not None and item.standing:
                # Its edits would be lost with the old file.
                if item.standing.edited:
                    files[item.path] = _edits_moved(project, work, item, policy)
                files[moved] = None
                ours.add(moved)
    files |= manifests
    return plan(files, project.root, ours=ours, bases=bases, reads=project.reads)


def _base(item: Prospect) -> str | None:
    """Return the text of a file written last, from which its edits are merged; None if it has no edits in the way of new text."""
    if item.kept is None or item.need != "collide":
        return None
    return item.kept.written


def _edits_moved(project: Project, work: Work, item: Prospect, policy: Policy) -> str:
    """Return the new text of an edited file that moves, with the edits merged in; raise ConflictError unless the policy is to merge."""
    assert item.wanted is not None and item.standing is not None
    base, mine = _base(item), item.standing.text
    # Without the text written last (`base`), which a record may have lost, edits cannot be told apart.
    if policy != "merge" or base is None or mine is None:
        message = (
            f"was edited, but the op's file is now '{item.path}'; nothing was written"
        )
        place = Location(from_here(project.root, item.moved_from or item.path))
        raise ConflictError(message, place, work.op.upgrade)
    return merge(base, mine, item.wanted.text).text


def _refusal(root: Path, works: tuple[Work, ...]) -> ScaffoldError:
    """Return the error of a run that stops at conflicts, of each file in conflict one, with a hint: merge, or see the difference."""
    problems = []
    for work in works:
        for item in work.prospects:
            if item.need == "collide":
                # Ours, at its place, and edited; otherwise a file that is not ours is in the way.
                known = item.kept is not None and item.moved_from is None
                hint = (
                    f"{work.op.upgrade} merges the two"
                    if known
                    else "see the difference with --diff; then use --on-conflict skip or overwrite"
                )
                what = (
                    "was edited and is out of date" if known else "exists and differs"
                )
                message = f"{what}; nothing was written"
                shown = from_here(root, item.path)
                problems.append(ConflictError(message, Location(shown), hint))
    return problems[0] if len(problems) == 1 else ScaffoldErrors(problems)


def _notes(works: tuple[Work, ...], prune: bool, planned: Plan) -> Iterator[str]:
    """Yield notes for the user: of ops to be written, on files no longer part of an op, and on records this run mends."""
    for work in works:
        name = work.op.listed.name
        if any(item.need in ("create", "update") for item in work.prospects):
            yield from (f"{name}: {note}" for note in work.notes)
        what = "the tests" if name == SHARED else f"'{name}'"
        for item in work.prospects:
            if item.need == "leave":
                yield f"'{item.path}' is not part of {what} any more, but was edited"
            elif item.need == "drop" and not prune:
                yield f"'{item.path}' is not part of {what} any more: {work.op.upgrade}"
            # With an undecided conflict nothing is written, so the record is not mended either.
            if item.mends and item.kept and not planned.unsettled:
                yield f"'{record_path(name)}' had lost how '{item.path}' was written: it says so again"


def _verbs(
    ops: tuple[Op, ...], works: tuple[Work, ...], planned: Plan
) -> dict[str, str]:
    """Return for each op the verb of its files that weighs most, for the table of a run: "update" if one is updated, whatever the others."""
    of_path = {change.path: change.verb for change in planned.changes}
    # Without work: an edited file is told as "edited".
    found: dict[str, str] = {}
    for op in ops:
        edited = any(item.edited for item in op.standings.values())
        found[op.listed.name] = "skip" if edited else "identical"
    for work in works:
        name = work.op.listed.name
        if name not in found:
            continue  # the shared test module
        verbs: list[str] = [
            of_path.get(item.path, "identical") for item in work.prospects
        ]
        found[name] = max([*verbs, found[name]], key=WEIGHT.index)
    return found


def _with_records(
    project: Project, works: tuple[Work, ...], resolved: Plan, proofs: Proofs
) -> Plan:
    """Return the plan with the records of its ops added, to be written in the same step; unchanged outside a project, which has none.

    `done` are the files that will be as the plan has them: a skipped one keeps its former entry in the record. A proof made now
    goes before one known, and that before the recorded one.
    """
    if not project.configuration.project:
        return resolved
    done = {change.path for change in resolved.changes if change.verb != "skip"}
    files: dict[str, str | None] = {}
    for work in works:
        origin = work.op.origin._replace(reads=work.reads)
        listed = work.op.listed
        if listed.name == SHARED:
            files |= shared_record(work.op, work.prospects, done)
            continue
        before = work.op.record.proof if work.op.record else None
        proof = proofs.found.get(listed.name) or work.proof or before
        former = work.op.record.former if work.op.record else ()
        record = Record(listed.name, listed.manifest, origin, (), proof, former)
        files |= record_files(record, work.prospects, done, work.code)
    return with_state(resolved, plan(files, project.root, ours=files.keys()))


def with_state(planned: Plan, state: Plan) -> Plan:
    """Return one plan of the user's files and the records below `.scaffold/`, so all are written or none."""
    return planned._replace(changes=(*planned.changes, *state.changes))
