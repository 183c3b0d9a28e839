"""`scaffold adopt`: a Function that was written by hand becomes an op, a table of the project's manifest or a file of TOML.

In: `PATH::CLASS` and the options. Out: the table, and what it names, in files.
Invariant: the table is one that `new-op` makes the op of, and where the Function runs, the op does as it does: on the same inputs
the same values and the same gradients. Otherwise there is an error that says where it would not.
"""

import ast
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from scaffold.cli.options import (
    DIFF,
    DRY_RUN,
    FORMAT,
    ON_CONFLICT,
    check_format,
    check_policy,
)
from scaffold.cli.output import TERMINAL, Showing, beside, put, tell
from scaffold.derive import derive
from scaffold.errors import (
    ConflictError,
    Location,
    ScaffoldError,
    VerificationError,
    raise_all,
)
from scaffold.inspect import Function
from scaffold.inspect.adopting import (
    Adopted,
    Value,
    Wanted,
    adopt_bodies,
    computation_of,
)
from scaffold.inspect.adopting import adopt as tables_of
from scaffold.inspect.declarations import is_constant, kinds_of
from scaffold.inspect.facts import Facts
from scaffold.inspect.method_formulas import Unfit
from scaffold.inspect.trial_inputs import shapes_for
from scaffold.project.adding import add_op
from scaffold.project.configuration import configuration_here
from scaffold.project.hand_written import dotted, find_functions
from scaffold.project.hand_written import target as directory
from scaffold.project.interpreter import ANOTHER, NONE_FOUND, Proving, Run, proving
from scaffold.project.places import Places, find_places
from scaffold.project.proof_errors import untyped
from scaffold.project.proofs import prove, request_of
from scaffold.project.rendering import Generated, generate_table
from scaffold.project.specification import Companion, Given, Merged, Values
from scaffold.render.files import render
from scaffold.render.formatting import format_source
from scaffold.render.layout import Directories
from scaffold.render.verification import verification
from scaffold.spec import OpSpec
from scaffold.spec.build import build
from scaffold.spec.op_spec import TensorInput
from scaffold.spec.toml import read_ops
from scaffold.verify import Failure, Original, Verdict
from scaffold.verify.prover import LIMIT as SECONDS

TARGET = Annotated[
    str, typer.Argument(metavar="PATH::CLASS", help="The Function to adopt.")
]
NAME = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="What the op is called (default: as its wrapper or its class).",
        metavar="NAME",
    ),
]
OUT_DIR = Annotated[
    str | None,
    typer.Option(
        "--out-dir",
        help="Where the specification goes (default: the project's manifest, else here).",
        metavar="DIR",
    ),
]
VERIFY = Annotated[
    bool,
    typer.Option(
        "--verify/--no-verify",
        help="Run the Function's module, and compare the op with it first.",
    ),
]
PYTHON = Annotated[
    str | None,
    typer.Option(
        "--python",
        help="Compare with this interpreter (default: the first with PyTorch).",
        metavar="PATH",
    ),
]
LIMIT = Annotated[
    int | None,
    typer.Option(
        "--limit",
        help="Seconds for each comparison (default: 30).",
        metavar="SECONDS",
    ),
]
STDOUT = Annotated[
    bool, typer.Option("--stdout", help="Print the specification, write nothing.")
]


def adopt(
    target: TARGET,
    name: NAME = None,
    out_dir: OUT_DIR = None,
    verify: VERIFY = True,
    python: PYTHON = None,
    limit: LIMIT = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    stdout: STDOUT = False,
    format_: FORMAT = "text",
) -> None:
    """Write the specification of a hand-written Function, as TOML.

    Its forward and backward become formulas, or functions of a file where formulas have no words for them. The op that this
    makes is compared with the Function, values and gradients, where that runs: else the run says "not compared".

    Example: scaffold adopt src/ops.py::ScaleFunction
    """
    check_policy(on_conflict)
    check_format(format_)
    joins = configuration_here().project and out_dir is None
    stated = {"name": name, "python": python, "limit": limit}
    stated["out-dir"] = None if joins else out_dir or "."
    settings: Values = {
        key: value for key, value in stated.items() if value is not None
    }
    found = _adopted(target, settings, verify)
    showing = Showing(dry_run, diff, stdout, format_)
    if joins and not stdout:
        _join(found, settings, on_conflict, showing)
        return
    where = directory(out_dir)
    files = _files(found, where.below.as_posix())
    put(files, where.root, on_conflict, showing, found.notes)


def _adopted(target: str, settings: "Values", verify: bool) -> "Adoption":
    with proving(settings, TERMINAL) as process:
        if verify:
            raise_all(process.start())
        return adopted(target, {**settings, "verify": verify}, process)


def _join(found: "Adoption", settings: "Values", policy: str, showing: Showing) -> None:
    """Make the op one of the project's."""
    stated = Run(settings.get("python"), settings.get("limit", SECONDS))
    run = stated if found.generated.proof is not None else None
    write = not (showing.dry_run or showing.diff)
    with beside(found.notes):
        settled = add_op(found.generated, policy, write=write, run=run, console=TERMINAL)  # type: ignore[arg-type]
    tell(settled, with_diff=showing.diff, format_=showing.format_, notes=found.notes)


def _files(found: "Adoption", below: str) -> dict[str, str]:
    """The table in a file of its own, and what it names."""
    texts = {f"{found.op.name}.toml": found.op.toml()}
    texts |= {Path(i.path).name: i.text for i in found.generated.companions}
    return {Path(below, name).as_posix(): text for name, text in texts.items()}


GRADIENTS = ("grad", "backward")
KINDS = 9  # choices of what tensors without a gradient hold that are tried at most
ORIGINAL = "the original"  # the subject of a failure to run it
UNRUN = (ORIGINAL, "process")
KEPT = "formulas have no words for all of it: the bodies are functions of {name}"
SKIP = "write it all the same with --no-verify"


class Candidate(NamedTuple):
    """A table that the Function may be written as."""

    op: Adopted
    file: str = ""  # of its bodies, where formulas have no words for them
    text: str = ""
    same: bool = False  # the op that it makes is the very code that is there


class Adoption(NamedTuple):
    """What the op is from now on."""

    op: Adopted
    generated: Generated
    notes: tuple[str, ...]


class Source(NamedTuple):
    """The Function, and how it is imported."""

    facts: Facts
    path: str
    module: str
    root: Path

    @property
    def function(self) -> Function:
        return self.facts.function


def adopted(target: str, settings: Values, proving: Proving) -> Adoption:
    """The first table that holds of those that a Function may be written as."""
    source = _source(target)
    reasons: list[Unfit | ScaffoldError] = []
    uncompared: Adoption | None = None
    for candidate in _candidates(source, settings, reasons):
        try:
            found, compared = _held(source, candidate, settings, proving)
        except ScaffoldError as reason:
            reasons.append(reason)
            continue
        if compared:
            return found
        uncompared = uncompared or found
    if uncompared is None:
        raise _refusal(source, reasons)
    return uncompared


def _source(target: str) -> Source:
    found = find_functions((target,)).meant
    every = [(meant, function) for meant in found for function in meant.functions]
    public = [item for item in every if not item[1].name.startswith("_")]
    functions = public or every
    if len(functions) != 1:
        names = ", ".join(function.qualname for _, function in functions)
        hint = f"one of: {names}"
        place = Location(target.partition("::")[0])
        raise ScaffoldError("holds several Functions: name one", place, hint)
    ((meant, function),) = functions
    module, root = dotted(meant.path, configuration_here())
    facts = Facts(computation_of(function), meant.module)
    return Source(facts, meant.path, module, root)


def _refusal(source: Source, reasons: list[Unfit | ScaffoldError]) -> ScaffoldError:
    """Why there is no table: what a run has shown, else the first statement that stands in the way."""
    telling = (VerificationError, ConflictError)
    shown = (reason for reason in reasons if isinstance(reason, telling))
    reason = next(shown, reasons[0])
    node: ast.AST = source.function.node
    details: tuple[str, ...] = ()
    if isinstance(reason, Unfit):
        node, text, hint = reason.node, reason.reason, None
    else:
        text, hint, details = reason.message, reason.hint, reason.details
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    message = f"'{source.function.name}' cannot be adopted: {text}"
    place = Location(source.path, line, column)
    return VerificationError(message, place, hint, details)


def _candidates(
    source: Source, settings: Values, reasons: list[Unfit | ScaffoldError]
) -> Iterator[Candidate]:
    """Formulas, then the bodies as they are; each for what its tensors without a gradient may hold."""
    for kinds in itertools.islice(_kinds(source.facts), KINDS):
        wanted = Wanted(settings.get("name") or "", kinds)
        try:
            yield from _formulas(source.facts, wanted)
        except (Unfit, ScaffoldError) as reason:
            reasons.append(reason)
        package = _package(settings)
        try:
            op, name, text = adopt_bodies(source.facts, source.module, package, wanted)
            yield Candidate(op, name, format_source(text))
        except (Unfit, ScaffoldError) as reason:
            reasons.append(reason)


def _package(settings: Values) -> str:
    return find_places(configuration_here(), settings).directories.package or ""


def _kinds(facts: Facts) -> Iterator[Mapping[str, str]]:
    """Each choice of what the tensors without a gradient hold, the likeliest first."""
    items = [item for item in facts.inputs if is_constant(facts, item)]
    choices = itertools.product(*(kinds_of(facts, item) for item in items))
    for chosen in choices:
        yield dict(zip((item.name for item in items), chosen, strict=True))


def _formulas(facts: Facts, wanted: Wanted) -> Iterator[Candidate]:
    """The table that leads to the same code, and nothing else; where none does, that of the Function's own statements.

    Formulas of gradients are stated only where what is derived is other code.
    """
    last = None
    for last in tables_of(facts, wanted):
        derived = last._replace(keys=_without_gradients(last.keys))
        for table in (derived, last):
            if _leads_back(table, facts):
                yield Candidate(table, same=True)
                return
    if last is not None:
        yield Candidate(last)


def _without_gradients(keys: Mapping[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in keys.items() if key not in GRADIENTS}


def _spec(op: Adopted) -> OpSpec:
    (entry,) = read_ops(op.toml(), f"{op.name}.toml")
    return build(op.name, entry.raw, entry.locate)


def _leads_back(op: Adopted, facts: Facts) -> bool:
    """Whether the op that a table makes has the Function that is there."""
    try:
        spec = replace(_spec(op), test=False)
        (text,) = render(spec, derive(spec), Directories()).values()
    except ScaffoldError:
        return False
    made = {
        node.name: node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }
    name = facts.function.name
    return name in made and ast.dump(made[name]) == ast.dump(facts.function.node)


def _held(
    source: Source, candidate: Candidate, settings: Values, proving: Proving
) -> tuple[Adoption, bool]:
    """What a table leads to, and whether it is known to do as the Function does; an error where it does not."""
    generated = _generated(source, candidate, settings)
    notes = (KEPT.format(name=candidate.file),) if candidate.file else ()
    found = Adoption(candidate.op, generated, notes)
    if not settings.get("verify", True):
        return found, True
    if candidate.same:
        return _proven(source, candidate, found, settings, proving), True
    verdict = _compared(source, generated, proving)
    if verdict.failure is not None and verdict.failure.subject not in UNRUN:
        raise _differs(verdict.failure)
    if verdict.failure is not None or not verdict.cases:
        why = verdict.failure.words if verdict.failure else verdict.notes[0]
        said = f"not compared: {source.function.name} of {source.path} {why}"
        notes = (*notes, said, *_untold(generated.spec))
        return found._replace(notes=notes), bool(verdict.failure)
    ran = f"{source.function.name} of {source.path}, which was run for it"
    said = f"compared with {ran}: the same values and gradients"
    found = found._replace(notes=(*notes, said))
    return _proven(source, candidate, found, settings, proving), True


def _untold(spec: OpSpec) -> Iterator[str]:
    """What nobody can run the op without: values of the arguments whose types the text does not tell."""
    names = untyped(spec)
    if names:
        listed = " and ".join(f"'{name}'" for name in names)
        yield (
            f"the text does not tell the type of {listed}: write it into the table, "
            f"as in '{names[0]}: float', and the tests have a value"
        )


def _generated(source: Source, candidate: Candidate, settings: Values) -> Generated:
    """The files of the op that a table makes, as `new-op` makes them."""
    op = candidate.op

    def companions(where: Places) -> tuple[Companion, ...]:
        if not candidate.file:
            return ()
        stem = candidate.file.removesuffix(".py")
        package = where.directories.package
        module = f"{package}.{stem}" if package else stem
        path = Path(where.directories.source, candidate.file).as_posix()
        return (Companion(path, module, candidate.text),)

    (entry,) = read_ops(op.toml(), f"{op.name}.toml")
    said = Merged(entry, Given(), _directory(settings))
    generated = generate_table(op.name, said, settings, companions)
    for path in generated.files:
        place = generated.root / path
        same = place.exists() and os.path.samefile(place, source.path)
        if same and f"from {source.module} import" in candidate.text:
            hint = "call the op otherwise: --name NAME"
            message = "the op's file would take the place of its own"
            raise ConflictError(message, None, hint)
    return generated


def _directory(settings: Values) -> Path:
    """Where the op goes, as seen from here."""
    where = find_places(configuration_here(), settings)
    return Path(os.path.relpath(where.root / where.directories.source))


def _compared(source: Source, generated: Generated, proving: Proving) -> Verdict:
    """What the op does beside what the Function does."""
    function = source.function
    if function.nested:
        words = f"is defined inside {function.qualname.split('.')[0]}"
        return Verdict(0, Failure(ORIGINAL, words))
    if proving.interpreter is None:
        return Verdict(0, Failure(ORIGINAL, f"is not run: {NONE_FOUND} ({ANOTHER})"))
    derived = frozenset(item.name for item in generated.spec.differentiable)
    first, *more = _checks(generated, derived)
    original = Original(
        source.module,
        str(source.root),
        os.path.abspath(source.path),
        function.qualname,
        tuple(more),
    )
    texts = verification(generated.spec, generated.derivation, generated.derived)
    request = request_of(generated, texts.op, first)._replace(original=original)
    return proving.prove(generated.spec.name, request)


def _checks(generated: Generated, derived: frozenset[str]) -> Iterator[str]:
    """The checks of the op as it is declared; then, where it declares no shape, of shapes that are often meant."""
    spec = generated.spec
    yield verification(spec, generated.derivation, derived).checks
    tensors = [item.name for item in spec.tensors]
    plain = spec.samples is None and not any(item.variadic for item in spec.tensors)
    if not plain or any(spec.dims(name) is not None for name in tensors):
        return
    for shapes in shapes_for(tensors):
        known = dict(zip(tensors, shapes, strict=True))
        inputs = tuple(
            (
                item._replace(dims=known[item.name])
                if isinstance(item, TensorInput)
                else item
            )
            for item in spec.inputs
        )
        tried = replace(spec, inputs=inputs, conventional=())
        yield verification(tried, generated.derivation, derived).checks


def _differs(failure: Failure) -> VerificationError:
    words = f"the op differs from it: {failure.subject}: {failure.words}"
    return VerificationError(words, None, SKIP, details=failure.lines)


def _proven(
    source: Source,
    candidate: Candidate,
    found: Adoption,
    settings: Values,
    proving: Proving,
) -> Adoption:
    """The op as `new-op` proves it; a gradient that is not the derivative is said to be another one's."""
    try:
        return found._replace(generated=prove(found.generated, proving))
    except VerificationError as refused:
        first = refused
    op = candidate.op
    if not {"surrogate"} & op.keys.keys() and set(GRADIENTS) & op.keys.keys():
        stated = op._replace(keys={**op.keys, "surrogate": True})
        again = candidate._replace(op=stated)
        try:
            generated = prove(_generated(source, again, settings), proving)
        except ScaffoldError:
            pass
        else:
            note = f"its gradient is not the derivative ({first.message.split(';')[0]}): it is written down as a surrogate"
            return Adoption(stated, generated, (*found.notes, note))
    note = f"new-op wants more of it: {first.message.split(';')[0]}"
    hint = (first.hint,) if first.hint else ()
    return found._replace(notes=(*found.notes, note, *hint))
