"""Proofs of ops: a changed Function is proven before a file is written; passed tests are recorded as proofs.

Three parts: `prove_works` for the ops of a manifest (`sync`), `prove` for one op not written yet (`new-op`, `adopt`), and
`begin` and `record_passed` for tests run by `scaffold verify OP`. `verify` runs the code; here is decided what to run, and what counts.
In: the work on the ops, the plan to be carried out, the settings of proofs; or the passed tests. Out: the
`Proof` of each op proven or unprovable; an error naming every failure at its place.
Invariant: without anything to prove no process is started; a recorded proof was run. Passed tests count for the
specification and the files at the start of the run, if no file is out of date and nothing was removed from the
generated tests.

Words: a *proof* holds for a specification and for the code of a Function, by their digests; a proof that *lacks* something says
why there can be none; a *work* is an op of a run with its planned files (`survey.Work`); *provable* are the texts to run as a
proof; an op's *standing* compares a file on disk with the text once written, its *maths* is the digest of all a proof depends on.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.derive import derive
from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.project.console import Console
from scaffold.project.interpreter import (
    ANOTHER,
    NONE_FOUND,
    UNPROVEN,
    Proofs,
    Proving,
    Run,
    find_interpreter,
)
from scaffold.project.op_testing import ROLE, survey_shared
from scaffold.project.project import Project, open_project
from scaffold.project.proof_errors import (
    Subject,
    as_options,
    declared_shapes,
    error_of,
    test_shapes,
)
from scaffold.project.rendering import Generated, Provable, generate, provable_of
from scaffold.project.specification import Values, specification
from scaffold.project.survey import Op, Work, survey
from scaffold.spec.imports import runs_code_of
from scaffold.verify import Request, Verdict, import_path, processes_for
from scaffold.version import __version__
from scaffold.workspace import Plan, apply, plan, recover
from scaffold.workspace.reconcile import Standing, decoded, present
from scaffold.workspace.records import (
    Kept,
    Proof,
    Record,
    adds_only,
    function_digest,
    written_record,
)

OTHER = (
    "not proven as it stands: its Function is not the generated one; "
    "scaffold verify {op} runs its tests"
)


def prove_works(
    project: Project,
    works: Sequence[Work],
    resolved: Plan,
    run: Run,
    console: Console,
) -> Proofs:
    """Prove the ops without a valid proof, before their files are written; raise VerificationError with all failures.

    `resolved` is the plan of the files. Returned are the proofs by op, to be recorded, and notes for the user. The run may have been
    disturbed and start again: proofs are kept in `run.done`, and not made a second time.
    """
    found: dict[str, Proof] = {}
    to_run: dict[str, Provable] = {}
    notes = []
    for work in works:
        name, code = work.op.listed.name, _codes(project, work, resolved)
        if not _is_due(project, work, code, run.every):
            continue
        if work.provable is None:  # there is a proof of the rendered code already
            proof = work.proof
        else:
            proof, done = work.provable.proof, run.done.get(name)
            # There is nothing to run: parts are left to write. The record says so.
            if proof.lacks:
                found[name] = proof._replace(tool=__version__)
            elif done and (done.spec, done.function) == (proof.spec, proof.function):
                found[name] = done
            else:
                to_run[name] = work.provable
        # The user edited the Function: what was proven is not in the file.
        if proof and code.after and proof.function != code.after:
            notes.append(f"{name}: {OTHER.format(op=name)}")
    if to_run:
        made = _verdicts(project, to_run, run, console)
        found |= made.found
        run.done.update(made.found)
        notes += made.notes
    return Proofs(found, tuple(notes))


class _Codes(NamedTuple):
    """Digests of the Function in the op's file, before and after the run; "" if there is none."""

    before: str
    after: str


def _codes(project: Project, work: Work, resolved: Plan) -> _Codes:
    """Return the digests of the op's Function as on disk, and as it will be after the plan `resolved`; equal if its file stays."""
    # Every op of a manifest has such a file, and only those are proven.
    path = next(
        item.path for item in work.prospects if item.wanted and item.wanted.role == "op"
    )
    change = next((one for one in resolved.writes if one.path == path), None)
    if change is None:
        same = _code(work, present(project.root, path))
        return _Codes(same, same)
    return _Codes(_code(work, change.before), _code(work, change.after))


def _code(work: Work, data: bytes | None) -> str:
    """Return the digest of an op's Function in the bytes of its file; "" without a file."""
    if data is None:
        return ""
    return function_digest(data.decode("utf-8", "replace"), work.op.names)


def _is_due(project: Project, work: Work, code: _Codes, every: bool) -> bool:
    """Return whether an op needs a proof: it has no record, its Function changes, or its proof is of another specification.

    `every` (`--prove`) asks for one even if nothing changed; a recorded proof of this very Function and specification is enough in any case.
    """
    record = work.op.record
    if record is None and project.configuration.project:
        return True  # it is new; outside a project there are no records
    proof = record.proof if record else None
    if proof and (proof.spec, proof.function) == (work.op.maths, code.after):
        return False
    other_spec = proof is not None and proof.spec != work.op.maths
    return every or other_spec or code.before != code.after


def _verdicts(
    project: Project, asked: Mapping[str, Provable], run: Run, console: Console
) -> Proofs:
    """Prove the `asked` ops, by name, in other processes, with a progress bar; raise all failures together.

    Without an interpreter that has torch, return no proofs and a note, or raise ScaffoldError if an option asked for proofs (`run.insists`).
    """
    from scaffold.verify import verify_many  # in each call: tests replace it there

    interpreter = find_interpreter(run.python)
    if interpreter is None:
        if run.insists:
            raise ScaffoldError(NONE_FOUND, Location(run.insists), ANOTHER)
        return Proofs({}, (UNPROVEN,))
    path = import_path(project.root, project.root / project.places.directories.source)
    requests = [
        Request(item.op, item.checks, path, kernels=item.kernels)
        for item in asked.values()
    ]
    count = processes_for(len(requests))
    verdicts = verify_many(requests, interpreter.path, run.limit, count)
    found: dict[str, Proof] = {}
    notes = list(interpreter.note())
    problems: list[ScaffoldError] = []
    with console.proving(list(asked)) as update:
        for name, verdict in zip(asked, verdicts, strict=True):
            update(len(found) + len(problems) + 1)
            if verdict.failure is not None:
                problems.append(_error(project, name, verdict))
                continue
            proof = asked[name].proof
            found[name] = proof._replace(tool=__version__, torch=verdict.torch)
            said = filter(None, (*verdict.notes, asked[name].whose))
            notes += [f"{name}: {note}" for note in said]
    if problems:  # once for all of them
        problems[0].details = (*interpreter.note(), *problems[0].details)
    raise_all(problems)
    return Proofs(found, tuple(notes))


def _error(project: Project, name: str, verdict: Verdict) -> ScaffoldError:
    """Return the failure of an op as an error, at its place in the manifest; each line of its details begins with the op's name."""
    listed = project.listed[name]
    spec = specification(listed, project.configuration, project.places)
    derived = derive(spec).derived
    inputs = listed.entry.raw.get("inputs", "")
    error = error_of(Subject(spec, derived, listed.entry.locate, inputs), verdict)
    error.location = error.location or listed.entry.locate((), key=True)
    error.details = tuple(f"{name}: {line}" for line in error.details)
    return error


NOT_OURS = (
    "not proven as it stands: a template changes its Function; scaffold verify runs "
    "its tests"
)
FITTED = "sizes of the tests as the forward wants them"
USED = "tests use shapes found by running the forward; these options declare them: {}"
TESTS = "tests"  # the subject of a failure in the tests, not the op
Again = Callable[[Mapping[str, Any]], Generated]  # generates the op with more keys


def fitting(generated: Generated, values: Values, settings: Values) -> Again | None:
    """Return a function to generate the same op with more keys, for `prove`: with test shapes the forward accepts, say.

    `values` are the keys given by options, `settings` the options of the run. None if the keys are not ours to choose: they are in a
    file, or sizes and shapes are stated already.
    """
    # From a file or a schema the inputs are not ours to change.
    stated = "inputs" in values or generated.specified.inferred is not None
    if not stated or "spec" in settings or {"require", "test-shapes"} & values.keys():
        return None
    name = generated.specified.typed
    return lambda keys: generate(name, {**values, **keys}, settings, [])


def prove(
    generated: Generated,
    proving: Proving,
    again: Again | None = None,
    *,
    tested: bool = True,
) -> Generated:
    """Return the op with its proof and notes for the user; raise VerificationError if the proof fails.

    If the forward refuses the tests' default shapes, the op is generated `again` with shapes it accepts, for its tests alone: the op still
    takes any shape. If declared sizes depend on each other, that condition is added likewise. If the op is not `tested` (its test file is
    not written), a failure in the tests alone is a note. An op with parts left to write, or without an interpreter, gets a note, no proof.
    """
    if proving.interpreter is None:
        return _add_note(generated, UNPROVEN)
    if generated.missing:
        lacks = f"not verified, as it lacks {', '.join(generated.missing)}"
        return _add_note(generated, lacks)
    generated, verdict, ran = _first_that_fits(generated, proving, again)
    failure, notes = verdict.failure, verdict.notes
    if failure is not None and (tested or failure.subject != TESTS):
        raise error_of(_subject(generated), verdict, proving.interpreter.note())
    notes += (f"{failure.words}; {failure.hint}",) if failure else ()
    # "": the digest of its specification follows when it has a table.
    proof = Proof("", ran, tool=__version__, torch=verdict.torch)
    proven = f"{verdict.cases} calls and gradients {_compared(generated, verdict)}"
    version = verdict.torch.partition("+")[0]  # without the build: +cpu
    proven += f", torch {version}" if version else ""
    if verdict.kernels:
        proven += f"; triton, in its interpreter: {verdict.kernels} calls"
    generated = generated._replace(proof=proof, proven=proven)
    found = [*proving.interpreter.note(), *notes]
    found += [] if _is_written(generated, ran) else [NOT_OURS]
    found += filter(None, [runs_code_of(generated.spec)])
    return _add_note(generated, *found)


def _first_that_fits(
    generated: Generated, proving: Proving, again: Again | None
) -> tuple[Generated, Verdict, str]:
    """Return the op as proven last, its verdict, and the digest of the code as run; the verdict may be a failure.

    A first proof may find sizes the forward accepts; the op is then generated `again` with them (None: the user's keys stay). An op from an
    nn.Module has sizes inferred from its parameters; if its forward refuses these, inputs with fewer sizes are tried (`wider`): if none
    passes, the first failure is returned.
    """
    known = generated.specified.inferred
    verdict, ran = _verdict(generated, proving)
    if again is None:
        return generated, verdict, ran
    first = generated, verdict, ran = _with_sizes(
        generated, verdict, ran, proving, again
    )
    for inputs in known.wider if known else ():
        # Fewer sizes help only if the forward refused its inputs.
        if verdict.failure is None or verdict.failure.subject != "forward":
            return generated, verdict, ran
        bare = _with_inputs(again, inputs, known.require if known else ())
        generated = _add_note(bare({}), f"inputs taken from the forward: {inputs}")
        verdict, ran = _verdict(generated, proving)
        generated, verdict, ran = _with_sizes(generated, verdict, ran, proving, bare)
    return first if verdict.failure else (generated, verdict, ran)


def _with_sizes(
    generated: Generated, verdict: Verdict, ran: str, proving: Proving, again: Again
) -> tuple[Generated, Verdict, str]:
    """Generate and prove the op again, with the sizes the first proof found; without any, return the arguments as they are.

    Returned are the op, its verdict and the digest of the code run, as by `_first_that_fits`.
    """
    if not (verdict.shapes or verdict.conditions):
        return generated, verdict, ran
    generated = _fitted(generated, verdict, again)
    return generated, *_verdict(generated, proving)


def _with_inputs(again: Again, inputs: str, require: Sequence[str]) -> Again:
    """Return `again` with the key `inputs` always set to these; of the conditions `require` those on sizes not in them are dropped."""
    sizes = set(re.findall(r"\w+", inputs))
    kept = [text for text in require if set(re.findall(r"[A-Za-z_]\w*", text)) <= sizes]

    def with_inputs(keys: Mapping[str, Any]) -> Generated:
        both = [*kept, *keys.get("require", ())]
        return again({**keys, "inputs": inputs, **({"require": both} if both else {})})

    return with_inputs


def _compared(generated: Generated, verdict: Verdict) -> str:
    """Return the end of the message "proven: 12 calls and gradients ...": "are those of PyTorch's autograd", say.

    A surrogate's gradient given as a formula is meant to differ from any reference: only shapes and dtypes are proven.
    """
    surrogate = generated.spec.surrogate
    if surrogate is not None and surrogate.forward is None:
        return (
            "have the right shapes and dtypes; the values of a surrogate are not proven"
        )
    if surrogate is not None:
        return "are those of PyTorch's autograd of the surrogate's forward"
    source = "finite differences" if verdict.by_differences else "PyTorch's autograd"
    return f"are those of {source}"


def _fitted(generated: Generated, verdict: Verdict, again: Again) -> Generated:
    """Return the op generated again with the sizes the verdict found to work, test shapes or else conditions, and a note on them."""
    if not verdict.shapes:
        said = f"{FITTED}: {as_options(verdict.conditions)}"
        return _add_note(again({"require": [*verdict.conditions]}), said)
    required = generated.specified.raw.get("require", ())
    options = declared_shapes(verdict, _subject(generated).inputs, required)
    return _add_note(again({"test-shapes": test_shapes(verdict)}), USED.format(options))


def _is_written(generated: Generated, ran: str) -> bool:
    """Return whether the file to be written has the proven code (`ran`, its digest): a team's template may have changed it."""
    text = next(iter(generated.files.values()))  # the op's file is the first
    names = generated.spec.definitions
    return function_digest(text, names) == ran


def _add_note(generated: Generated, *notes: str) -> Generated:
    """Return the op with further notes for the user."""
    return generated._replace(notes=(*generated.notes, *notes))


def _verdict(generated: Generated, proving: Proving) -> tuple[Verdict, str]:
    """Prove the op once, as it was generated, and return the verdict and the digest of the code run."""
    # An empty proof: of it only the digest of the code is needed.
    asked = provable_of(generated.spec, generated.derivation, Proof("", ""))
    request = request_of(generated, asked.op, asked.checks)
    request = request._replace(kernels=asked.kernels)
    return proving.prove(generated.spec.name, request), asked.proof.function


def request_of(generated: Generated, op: str, checks: str) -> Request:
    """Return the request to prove an op: its text `op`, that of its module of `checks`, and the files it imports but not written yet."""
    modules = tuple((item.module, item.text) for item in generated.companions)
    source = generated.specified.places.directories.source
    # One op may stand outside of a project: its imports are found as by a Python that is started here.
    path = import_path(Path.cwd(), generated.root / source)
    return Request(op, checks, path, modules)


def _subject(generated: Generated) -> Subject:
    given = generated.specified
    inputs = given.raw.get("inputs", "")
    return Subject(generated.spec, generated.derivation.derived, given.locate, inputs)


UNKNOWN = "no record tells how it was written: scaffold sync"
STALE = "it is out of date: scaffold check {op}"
MOVED = "it changed while its tests ran"
SHARED_TAKEN = "what its tests share was changed, in {path}: put new questions beside those that are there"
TAKEN = "its generated tests were changed: put new ones beside them"


class Begun(NamedTuple):
    """An op at the start of its tests' run."""

    maths: str  # digest of everything a proof of it depends on
    texts: Mapping[str, str]  # of its files, by role: "op", "test", "triton"
    objection: str  # the reason a pass would prove nothing; "" if it would count


def begin(project: Project, stale: Mapping[str, bool]) -> dict[str, Begun]:
    """Return the state of ops before their tests run, for `record_passed` to compare; `stale` says by op if files are out of date."""
    if not project.configuration.project:
        return {}  # it keeps no records
    return {
        op.listed.name: Begun(
            op.maths,
            _texts(project, op),
            _objection(project, op, stale[op.listed.name]),
        )
        for op in survey(project, tuple(stale))
    }


def _texts(project: Project, op: Op) -> dict[str, str]:
    """Return the present texts of an op's recorded files, by role, "op" or "test"; missing files are left out."""
    files = op.record.files if op.record else ()
    data = {kept.role: (kept.path, present(project.root, kept.path)) for kept in files}
    return {
        role: decoded(content, path)
        for role, (path, content) in data.items()
        if content is not None
    }


def _objection(project: Project, op: Op, stale: bool) -> str:
    """Return the reason why passed tests of an op would prove nothing; "" if there is none.

    The files must be recorded and up to date, and the generated tests unchanged but for additions.
    """
    test = op.record.kept("test") if op.record else None
    if op.record is None or test is None or op.record.kept("op") is None:
        return UNKNOWN
    if stale:
        return STALE.format(op=op.listed.name)
    if _is_tampered(test, op.standings[test.path]):
        return TAKEN
    return _objection_to_shared(project)


def _objection_to_shared(project: Project) -> str:
    """Return why the shared test module, `op_testing`, does not ask what we generated; "" if it does: tests get their methods from it."""
    shared = survey_shared(project)
    kept = shared.record.kept(ROLE) if shared and shared.record else None
    if shared is None or kept is None:
        return UNKNOWN
    taken = _is_tampered(kept, shared.standings[kept.path])
    return SHARED_TAKEN.format(path=kept.path) if taken else ""


def _is_tampered(kept: Kept, known: Standing) -> bool:
    """Return whether the user changed or removed parts of a generated test file, so passing says less; additions do not count.

    `kept` is the file as recorded, `known` its state on disk. Without the recorded text nothing can be compared: True.
    """
    if not known.edited:
        return False
    base = kept.written
    return base is None or not adds_only(base, known.text or "")


def record_passed(
    passed: Mapping[str, str], begun: Mapping[str, Begun]
) -> dict[str, str]:
    """Record a proof for each op with passed tests and without a valid proof; return, by op, the reason another one gets none.

    `passed` has the version of torch by op, `begun` the ops as they were before the tests ran: if one changed since, the tests ran
    on other code.
    """
    meant = {name: torch for name, torch in passed.items() if name in begun}
    if not meant:
        return {}
    refused: dict[str, str] = {}
    files: dict[str, str | None] = {}
    project = open_project(may_lack=True)
    known = [name for name in meant if name in project.listed]
    for op in survey(project, known) if known else ():
        name = op.listed.name
        # It has a valid proof already.
        if op.proven(project.root).status == "proven":
            continue
        before = begun[name]
        # If somebody saved a file during the run, nobody knows which text was tested.
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
    """Return an op's record with the proof by its passed tests, run with this version of `torch`.

    `text` in a proof names the file as written if the code in it was proven; after an edit there is only the digest of the code.
    """
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
