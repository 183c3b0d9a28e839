"""The proofs of a run over ops: before a file is written, those whose Function changes are proven.

In: what is to be done about the ops, the plan as it will be carried out, how proofs are to be run. Out: the `Proof` of each op
that was proven or cannot be; an error that names every failure at its place in the manifest.
Invariant: where nothing is to be proven no process is started; what is on record as proven was run.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

import typer

from scaffold import __version__
from scaffold.cli.interpreter import ANOTHER, NONE_FOUND, UNPROVEN, find_interpreter
from scaffold.cli.prover import LIMIT
from scaffold.errors import Location, ScaffoldError, VerificationError, raise_all
from scaffold.files import read_text
from scaffold.workspace.reconcile import present
from scaffold.workspace.records import Proof, function_digest

if TYPE_CHECKING:
    from scaffold.cli.project import Project
    from scaffold.cli.rendering import Provable
    from scaffold.cli.survey import Op, Work
    from scaffold.verify import Verdict
    from scaffold.workspace import Plan

OTHER = (
    "not proven as it stands: its Function is not the generated one; "
    "scaffold verify {op} runs its tests"
)


@dataclass(frozen=True, slots=True)
class Run:
    """How proofs are to be run, and what this run has proven already: it may have to start again."""

    python: str | None = None
    limit: int = LIMIT
    every: bool = False  # also of what has none and does not change
    insists: str = ""  # the option by which not to prove is an error
    done: dict[str, Proof] = field(default_factory=dict)

    def known(self, op: "Op") -> tuple[Proof, ...]:
        """The proofs that there are of an op, of whatever they may be."""
        on_record = op.record.proof if op.record else None
        return tuple(filter(None, (on_record, self.done.get(op.listed.name))))


class Proofs(NamedTuple):
    """What became of the proofs of a run."""

    found: Mapping[str, Proof]
    notes: tuple[str, ...] = ()


def prove_works(
    project: "Project",
    works: "Sequence[Work]",
    resolved: "Plan",
    run: Run | None,
) -> Proofs:
    """Prove what is to be proven; VerificationError of all that fails."""
    if run is None:
        return Proofs({})
    found: dict[str, Proof] = {}
    asked: dict[str, Provable] = {}
    notes = []
    for work in works:
        name, code = work.op.listed.name, _codes(project, work, resolved)
        if not _is_due(project, work, code, run.every):
            continue
        if work.provable is None:
            proof = work.proof
        else:
            proof, done = work.provable.proof, run.done.get(name)
            if proof.lacks:
                found[name] = proof._replace(tool=__version__)
            elif done and (done.spec, done.function) == (proof.spec, proof.function):
                found[name] = done
            else:
                asked[name] = work.provable
        if proof and code.after and proof.function != code.after:
            notes.append(f"{name}: {OTHER.format(op=name)}")
    if asked:
        made = _verdicts(project, asked, run)
        found |= made.found
        run.done.update(made.found)
        notes += made.notes
    return Proofs(found, tuple(notes))


class _Codes(NamedTuple):
    """Digests of the Function in the op's file, before the run and after it; "" where there is none to be read."""

    before: str
    after: str


def _codes(project: "Project", work: "Work", resolved: "Plan") -> _Codes:
    path = next(
        item.path for item in work.prospects if item.wanted and item.wanted.role == "op"
    )
    change = next((one for one in resolved.writes if one.path == path), None)
    if change is None:
        same = _code(work, present(project.root, path))
        return _Codes(same, same)
    return _Codes(_code(work, change.before), _code(work, change.after))


def _code(work: "Work", data: bytes | None) -> str:
    if data is None:
        return ""
    return function_digest(data.decode("utf-8", "replace"), work.op.names)


def _is_due(project: "Project", work: "Work", code: _Codes, every: bool) -> bool:
    """Whether the op is new to the records, its Function will be another, or is to be proven for something else."""
    record = work.op.record
    if record is None and project.configuration.project:
        return True
    proof = record.proof if record else None
    if proof and (proof.spec, proof.function) == (work.op.maths, code.after):
        return False
    moved = proof is not None and proof.spec != work.op.maths
    return every or moved or code.before != code.after


def _verdicts(project: "Project", asked: "Mapping[str, Provable]", run: Run) -> Proofs:
    from scaffold.verify import Request, import_path, processes_for, verify_many

    interpreter = find_interpreter(run.python)
    if interpreter is None:
        if run.insists:
            raise ScaffoldError(NONE_FOUND, Location(run.insists), ANOTHER)
        return Proofs({}, (UNPROVEN,))
    path = import_path(project.root, project.root / project.places.directories.source)
    requests = [Request(item.op, item.checks, path) for item in asked.values()]
    count = processes_for(len(requests))
    verdicts = verify_many(requests, interpreter.path, run.limit, count)
    found: dict[str, Proof] = {}
    notes = list(interpreter.note())
    problems: list[ScaffoldError] = []
    with _Progress(list(asked)) as progress:
        for name, verdict in zip(asked, verdicts, strict=True):
            progress.update(len(found) + len(problems) + 1)
            if verdict.failure is not None:
                problems.append(_error(project, name, verdict))
                continue
            proof = asked[name].proof
            found[name] = proof._replace(tool=__version__, torch=verdict.torch)
            said = filter(None, (*verdict.notes, asked[name].whose))
            notes += [f"{name}: {note}" for note in said]
    if problems:
        problems[0].details = (*interpreter.note(), *problems[0].details)
    raise_all(problems)
    return Proofs(found, tuple(notes))


def _error(project: "Project", name: str, verdict: "Verdict") -> VerificationError:
    """What failed, at its place in the manifest."""
    from scaffold.cli.proof import Subject, error_of
    from scaffold.cli.rendering import Setting, specification
    from scaffold.derive import derive

    listed = project.listed[name]
    setting = Setting(project.configuration, project.places, False, False)
    spec = specification(setting, listed, _read)
    derived = derive(spec).derived
    error = error_of(Subject(spec, derived, listed.entry.locate), verdict)
    place = error.location or listed.entry.locate((), key=True)
    details = tuple(f"{name}: {line}" for line in error.details)
    return VerificationError(error.message, place, error.hint, details)


def _read(path: str) -> str:
    return read_text(path)


class _Progress:
    """A line on the terminal that says how far the proofs are; nothing where there is no terminal."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._shown = bool(sys.stderr and sys.stderr.isatty())

    def __enter__(self) -> Self:
        self.update(0)
        return self

    def update(self, done: int) -> None:
        """Show how many are done."""
        if self._shown:
            count = len(self._names)
            what = f"{done}/{count} ops" if count > 1 else self._names[0]
            typer.echo(f"\rproving {what} ...", nl=False, err=True)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            typer.echo("\r\033[K", nl=False, err=True)
