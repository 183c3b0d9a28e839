"""`scaffold adopt`: a Function that was written by hand becomes an op, a table of the project's manifest or a file of TOML.

The author's forward and backward become functions of a file that the op calls, so a team can bring its old Functions into the
project without rewriting them. The forms of the op are tried, likeliest first, until one does what the Function does.

Words: a *table* is the op's specification, `[ops.NAME]` in TOML; a *companion* is the file with the author's code; an op is
*assumed* if the kinds of some inputs are a guess; `proving` is the process that runs code with PyTorch; a *surrogate* is a
gradient that is meant to differ from the derivative; a function *refuses* by an error.

In: `PATH::CLASS` and the options. Out: the table, and what it names, in files.
Invariant: the table is one that `new-op` makes the op of, and where the Function runs, the op does as it does: on the same inputs
the same values and the same gradients. Otherwise there is an error that says where it would not.
"""

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import typer

from scaffold.cli.options import (
    DIFF,
    DRY_RUN,
    FORMAT,
    ON_CONFLICT,
    PROOF_LIMIT,
    PYTHON,
    check_choice,
    check_format,
    check_policy,
    proofs_wanted,
)
from scaffold.cli.output import TERMINAL, Showing, beside, leave, put, show_notes, tell
from scaffold.cli.verify_functions import UNCALLED as NOT_JUDGED
from scaffold.cli.verify_functions import Judged, in_columns, show_row
from scaffold.errors import (
    ConflictError,
    Location,
    ScaffoldError,
    ScaffoldErrors,
    VerificationError,
    raise_all,
)
from scaffold.formula.names import fresh
from scaffold.inspect import Function
from scaffold.inspect.adopting import Adopted, Value, Wanted
from scaffold.inspect.adopting import adopt as adopt_text
from scaffold.inspect.declarations import Unfit, choices_of_kinds
from scaffold.inspect.facts import Facts
from scaffold.inspect.imported_names import snake_case
from scaffold.inspect.pure_torch import is_torch
from scaffold.inspect.surrogates import is_rough
from scaffold.inspect.trial_inputs import shapes_for
from scaffold.project.adding import add_ops
from scaffold.project.configuration import configuration_here
from scaffold.project.function_verdicts import (
    Question,
    Stated,
    Unwritten,
    judged,
    lines_of,
)
from scaffold.project.hand_written import Meant, dotted, find_functions
from scaffold.project.hand_written import target as directory
from scaffold.project.interpreter import ANOTHER, NONE_FOUND, Proving, proving
from scaffold.project.places import Places, find_places
from scaffold.project.proof_errors import untyped
from scaffold.project.proofs import prove, request_of
from scaffold.project.rendering import Generated, generate_table
from scaffold.project.specification import Companion, Given, Merged, Values
from scaffold.render.formatting import format_source
from scaffold.render.verification import verification
from scaffold.spec import OpSpec
from scaffold.spec.keys import Style
from scaffold.spec.op_spec import TensorInput
from scaffold.spec.toml import read_ops
from scaffold.verify import Failure, Original, Verdict
from scaffold.verify.prover import Place

TARGET = Annotated[
    str, typer.Argument(metavar="PATH::CLASS", help="The Function to adopt.")
]
NAME = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="The name of the op (default: that of its wrapper or its class).",
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
STYLE = Annotated[
    str | None,
    typer.Option(
        "--style",
        help="setup-context, library or combined (default: setup-context, or combined where that fails).",
        metavar="STYLE",
    ),
]
ALL = Annotated[
    bool,
    typer.Option("--all", help="Adopt every Function of a file or of a directory."),
]
SURROGATE = Annotated[
    bool,
    typer.Option(
        "--surrogate",
        help="Accept a gradient that differs from the derivative, as a surrogate.",
    ),
]
STDOUT = Annotated[
    bool, typer.Option("--stdout", help="Print the specification, write nothing.")
]


def adopt(
    target: TARGET,
    style: STYLE = None,
    every: ALL = False,
    name: NAME = None,
    out_dir: OUT_DIR = None,
    verify: VERIFY = True,
    surrogate: SURROGATE = False,
    python: PYTHON = None,
    limit: PROOF_LIMIT = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    stdout: STDOUT = False,
    format_: FORMAT = "text",
) -> None:
    """Write the specification of a hand-written Function, as TOML.

    Its forward and backward become functions of a file, unchanged, and the op calls them. If the Function runs, the op's values
    and gradients are compared with it, and the checks of scaffold verify are made of both; if not, a note says "not compared".
    A gradient unlike the derivative is an error, unless the text of the Function, or --surrogate, says that it is intended.

    Example: scaffold adopt src/ops.py:ScaleFunction
    """
    check_policy(on_conflict)
    check_format(format_)
    # Without --style there is nothing to check: any valid word will do.
    raise_all(check_choice("--style", style or FREE[0], get_args(Style)))
    if every and name is not None:
        raise ScaffoldError("--all adopts several ops", Location("--name"))
    joins = configuration_here().project and out_dir is None  # the project
    stated = {"name": name, "python": python, "limit": limit, "style": style}
    stated["surrogate"] = surrogate or None
    stated["out-dir"] = None if joins else out_dir or "."
    settings: Values = {
        key: value for key, value in stated.items() if value is not None
    }
    adoptions, refused, rows = _run(_sources(target, every), settings, verify, every)
    notes = [note for found in adoptions for note in found.notes]
    showing = Showing(dry_run, diff, stdout, format_)
    if joins and not stdout:
        run = proofs_wanted(python, limit, verify)
        ops = [found.generated for found in adoptions]
        with beside(notes, refused):
            settled = add_ops(ops, on_conflict, write=not (dry_run or diff), run=run, console=TERMINAL)  # type: ignore[arg-type]
        tell(settled, showing, notes, left=refused)
    else:
        where = directory(out_dir)
        files = _files(adoptions, where.below)
        put(files, where.root, on_conflict, showing, notes, refused)
        if not (stdout or dry_run or diff) and format_ == "text":
            show_notes(_next(found, out_dir) for found in adoptions)
    if every and format_ == "text" and not (stdout or diff):
        _show_table(rows)
    if refused:
        leave(ScaffoldErrors(refused))


def _show_table(rows: "list[tuple[Source, str]]") -> None:
    """Print a line for each Function: its file and line, its name, and the op it became, or why it is not adopted.

    Not where stdout is for texts (--stdout, --diff), or for programs.
    """
    shown = in_columns([(one.path, one.function) for one, _ in rows])
    for place_and_name, (_, words) in zip(shown, rows, strict=True):
        show_row(place_and_name, words)


def _next(found: "Adoption", out_dir: str | None) -> str:
    """Return the next command, to be shown: outside of a project `adopt` wrote only the op's specification.

    `scaffold new-op scale --spec scale.toml` then writes the op.
    """
    path = os.path.join(out_dir or "", f"{found.op.name}.toml")
    option = f" --out-dir {out_dir}" if out_dir else ""
    return f"next: scaffold new-op {found.op.name} --spec {path}{option}"


def _run(
    sources: "list[Source]", settings: "Values", verify: bool, every: bool
) -> "tuple[list[Adoption], list[ScaffoldError], list[tuple[Source, str]]]":
    """Return the adopted ops, the errors of the Functions refused, raised if all are, and a row of `_show_table` for each Function.

    `verify` compares ops with a run of their Functions.

    A Function with the name of an op adopted before gets another name, and a note. With `every` (--all) there may be several
    ops, so each note is preceded by its op's name.
    """
    adoptions: dict[str, Adoption] = {}
    refused: list[ScaffoldError] = []
    rows: list[tuple[Source, str]] = []
    with proving(settings, TERMINAL) as process:
        if verify:
            raise_all(process.start())
        for source in sources:
            stated: Values = {**settings, "verify": verify}
            renamed: tuple[str, ...] = ()
            try:
                found = adopted(source, stated, process)
                # --all may find two Functions of one name, in two files, say.
                if found.op.name in adoptions:
                    name = _own_name(source, found.op.name, {*adoptions})
                    words = f"'{found.op.name}' is the name of another op"
                    renamed = (f"{source.function.name} of {source.path}: {words}",)
                    found = adopted(source, {**stated, "name": name}, process)
            except ScaffoldError as refusal:
                refused.append(refusal)
                why = refusal.message.split(" adopted: ", 1)[-1]
                rows.append((source, f"not adopted: {why}"))
                continue
            rows.append((source, f"adopted as {found.op.name}{found.checks}"))
            notes = (*renamed, *found.notes, *found.op.recomputed)
            if every:
                notes = tuple(f"{found.op.name}: {note}" for note in notes)
            adoptions[found.op.name] = found._replace(notes=notes)
    if not adoptions:
        raise_all(refused)
    return [*adoptions.values()], refused, rows


def _own_name(source: "Source", name: str, taken: set[str]) -> str:
    """Return a name not in `taken` for a Function: of its class, then after its file's, `layers_swish`, then its directories'.

    `name` is the one it would have; a number is added to it if all those are taken.
    """
    own = snake_case(source.function.name.removesuffix("Function"))
    stems = [own or name]
    for part in map(snake_case, reversed(Path(source.path).with_suffix("").parts)):
        # Not `swish_swish`, of a Function Swish in swish.py.
        if part.isidentifier() and not stems[-1].startswith(part):
            stems.append(f"{part}_{stems[-1]}")
    return next((stem for stem in stems if stem not in taken), fresh(name, taken))


def _files(adoptions: "list[Adoption]", below: Path) -> dict[str, str]:
    """Return the ops' tables and the companion files they name, by path, all in the directory `below`."""
    texts = {}
    for found in adoptions:
        texts[f"{found.op.name}.toml"] = found.op.toml()
        texts |= {Path(i.path).name: i.text for i in found.generated.companions}
    return {(below / name).as_posix(): text for name, text in texts.items()}


KINDS = 12  # at most so many choices of input kinds are tried
ORIGINAL = "the original"  # the subject of a failure to run it
UNRUN = (ORIGINAL, "process")  # subjects of failures that say nothing about the op
SECOND = "second derivative"  # the check of it
ADOPTED = "adopted_op"  # the module that the op is checked in
SKIP = "to write it anyway: --no-verify"
FREE = ("setup-context", "combined")  # styles to try if the user states none


class Adoption(NamedTuple):
    """An adopted op, its generated files, and notes."""

    op: Adopted
    generated: Generated
    notes: tuple[str, ...] = ()
    # Checks that failed, of the Function and of the op; None if not both were run.
    failed: tuple[int, int] | None = None

    @property
    def checks(self) -> str:
        """Return how many checks failed before and fail now, for the table: "; failed checks: 1, now 0"; "" if it is unknown."""
        if self.failed is None:
            return ""
        before, now = self.failed
        return f"; failed checks: {before}, now {now}"


class Source(NamedTuple):
    """The Function to adopt, and how it is imported."""

    facts: Facts
    path: str  # of its file
    module: str  # dotted
    root: Path  # the directory to import the module from

    @property
    def function(self) -> Function:
        return self.facts.function


def adopted(source: Source, settings: Values, proving: Proving) -> Adoption:
    """Return the first op with the same values and gradients as the Function, over choices of input kinds and styles.

    Without a run, a choice that is a guess is not taken. Raise an error if none fits, with the likeliest of the reasons;
    WrongGradientError at once, since another form of the op has the same gradient.
    """
    reasons: list[ScaffoldError] = []
    styles = (settings["style"],) if "style" in settings else FREE
    # `reasons` is filled on the way, by `_ops` too.
    for op in itertools.islice(_ops(source, settings, reasons), KINDS):
        if op.assumed and not (settings.get("verify", True) and proving.interpreter):
            continue  # only a run tells whether a guess is right
        for style in styles:
            try:
                return _tried(source, op.in_style(style), settings, proving)
            except NotComparedError:  # another style would not run either
                break
            except WrongGradientError:
                raise
            except ScaffoldError as reason:
                reasons.append(reason)
        if op.assumed and reasons:  # refused for another reason than the guess
            break
    raise _refusal(source, reasons)


class WrongGradientError(VerificationError):
    """The author's gradient differs from the derivative, and nobody says that it is meant to."""


class NotComparedError(ScaffoldError):
    """An op could not be compared with its Function, and its inputs are a guess: it is not adopted."""


def _ops(
    source: Source, settings: Values, reasons: list[ScaffoldError]
) -> Iterator[Adopted]:
    """Yield the op read from the Function's text, once for each choice of kinds of its tensors without a gradient.

    The kinds are int, bool or float; the likeliest choice comes first. If the text cannot be adopted, the reason is added to the
    caller's list `reasons`, and no more ops come.
    """
    package = find_places(configuration_here(), settings).directories.package or ""
    wanted = Wanted(source.module, package, settings.get("name") or "")
    for kinds in choices_of_kinds(source.facts):
        try:
            op = adopt_text(source.facts, wanted._replace(kinds=kinds))
        except ScaffoldError as reason:
            reasons.append(reason)
            return
        yield op._replace(text=format_source(op.text))


def _sources(target: str, every: bool) -> list[Source]:
    """Return the Function named by a target, the only public one of a file, or with `every` (--all) all of a file or directory.

    Raise a ScaffoldError if one was to be found, and there are several or none.
    """
    found = find_functions((target,)).meant
    pairs = [(meant, function) for meant in found for function in meant.functions]
    public = [item for item in pairs if not item[1].name.startswith("_")]
    # Of a file with one public Function and `_helpers` the public one is meant; if all are private, all count.
    functions = pairs if every else public or pairs
    if not every and len(functions) != 1:
        names = ", ".join(function.qualname for _, function in functions)
        hint = f"one of: {names}; all of them: --all"
        place = Location(target.partition(":")[0])
        raise ScaffoldError("holds several Functions: name one", place, hint)
    return [
        Source(
            Facts(function, meant.module),
            meant.path,
            *dotted(meant.path, configuration_here()),
        )
        for meant, function in functions
    ]


def _refusal(source: Source, reasons: list[ScaffoldError]) -> ScaffoldError:
    """Return the error for a Function not adopted, for one of the reasons found: a failed run or a conflict, else the first.

    `Unfit` reasons have a place of their own in the file; of others the place is the class.
    """
    decisive = (VerificationError, ConflictError)
    decisive_reasons = (reason for reason in reasons if isinstance(reason, decisive))
    reason = next(decisive_reasons, reasons[0])
    node = reason.node if isinstance(reason, Unfit) else source.function.node
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    message = f"'{source.function.name}' cannot be adopted: {reason.message}"
    place = Location(source.path, line, column)
    return VerificationError(message, place, reason.hint, reason.details)


def _tried(source: Source, op: Adopted, settings: Values, proving: Proving) -> Adoption:
    """Return the adoption of an op if a run of both shows the same values and gradients; raise VerificationError if they differ.

    If the Function cannot be run, a note says so, and only promises that its text supports are made; raise NotComparedError if
    its inputs are a guess.
    """
    found = Adoption(op, _generated(source, op, settings))
    if not settings.get("verify", True):
        return _without_run(source, found, settings)
    verdict = _compared(source, found.generated, proving)
    # Of a failure in UNRUN the Function or its process is the cause: see below.
    if verdict.failure is not None and verdict.failure.subject not in UNRUN:
        why = f"the op differs from it: {verdict.failure.subject}: {verdict.failure.words}"
        raise VerificationError(why, None, SKIP, details=verdict.failure.lines)
    # It could not be run here, or accepted none of the calls: the op may still be right.
    if verdict.failure is not None or not verdict.cases:
        why = verdict.failure.words if verdict.failure else verdict.notes[0]
        said = f"not compared: {source.function.name} of {source.path} {why}"
        if op.assumed:
            raise NotComparedError(said)
        notes = (said, *_untyped_note(found.generated.spec))
        return _without_run(source, found, settings)._replace(notes=notes)
    ran = f"a run of {source.function.name} of {source.path}"
    notes = (f"compared with {ran}: the same values and gradients",)
    if op.assumed:
        names = ", ".join(op.assumed)
        notes += (f"{names}: the type is a guess; the Function runs with it",)
    # The first note is a call that was compared; others are on torch.func and vmap.
    for why in verdict.notes[1:]:
        op = op.stating({"transforms": None})
        notes += (f"it does not run under torch.func and vmap: {why}",)
    adopted = found._replace(op=op, notes=notes)
    proven = _proven(source, adopted, settings, proving)
    return _checked(source, proven, settings, proving)


def _without_run(source: Source, found: Adoption, settings: Values) -> Adoption:
    """Return the adoption of a Function nobody ran: as it is if the Function calls only PyTorch, else without unproven promises.

    These are torch.func and vmap (`transforms`); `once-differentiable`, which promises less, stays if it is True.
    """
    if is_torch(source.facts):
        return found
    # False is a promise, too: that it is differentiable twice. None leaves the key out.
    once = found.op.keys.get("once-differentiable") or None
    op = found.op.stating({"transforms": None, "once-differentiable": once})
    return found._replace(op=op, generated=_generated(source, op, settings))


def _untyped_note(spec: OpSpec) -> Iterator[str]:
    """Yield a note if arguments have no known type: the op's tests need values of them, so the user is to write the types."""
    names = untyped(spec)
    if names:
        listed = " and ".join(f"'{name}'" for name in names)
        yield (
            f"the text does not tell the type of {listed}: write it into the table, "
            f"as in '{names[0]}: float', and the tests have a value"
        )


def _generated(source: Source, op: Adopted, settings: Values) -> Generated:
    """Return the op's generated files, as `new-op` makes them from its table.

    Raise ConflictError if one would replace the file of the Function while the op imports from it.
    """

    def companions(where: Places) -> tuple[Companion, ...]:
        """Return the file with the author's code, in the directory of the op."""
        stem = op.file.removesuffix(".py")
        package = where.directories.package
        module = f"{package}.{stem}" if package else stem
        path = Path(where.directories.source, op.file).as_posix()
        return (Companion(path, module, op.text),)

    # One table: the op's.
    (entry,) = read_ops(op.toml(), f"{op.name}.toml")
    merged = Merged(entry, Given(), _directory(settings))
    generated = generate_table(op.name, merged, settings, companions)
    for path in generated.files:
        place = generated.root / path
        is_own = place.exists() and os.path.samefile(place, source.path)
        # If the op imports nothing from it, replacing it is a conflict like any other (--on-conflict).
        if is_own and f"from {source.module} import" in op.text:
            hint = "give the op another name: --name NAME"
            message = "the op's file would overwrite its own"
            raise ConflictError(message, None, hint)
    return generated


def _directory(settings: Values) -> Path:
    """Return the directory of the op, relative to the working directory."""
    where = find_places(configuration_here(), settings)
    return Path(os.path.relpath(where.root / where.directories.source))


def _compared(source: Source, generated: Generated, proving: Proving) -> Verdict:
    """Return the verdict on the op and the Function, called with the same inputs in another process.

    If the Function cannot be imported, or no interpreter with PyTorch is found, the verdict is a failure with the subject ORIGINAL:
    it says nothing about the op.
    """
    function = source.function
    if function.nested:
        words = f"is defined inside {function.qualname.split('.')[0]}"
        return Verdict(0, Failure(ORIGINAL, words))
    if proving.interpreter is None:
        return Verdict(0, Failure(ORIGINAL, f"is not run: {NONE_FOUND} ({ANOTHER})"))
    # The first is the proof of the op as it stands, the others try further shapes.
    first, *more = _checks(generated)
    original = Original(
        source.module,
        str(source.root),
        os.path.abspath(source.path),
        function.qualname,
        tuple(more),
    )
    derivation = generated.derivation
    texts = verification(generated.spec, derivation, derivation.derived)
    request = request_of(generated, texts.op, first)._replace(original=original)
    return proving.prove(generated.spec.name, request)


def _checks(generated: Generated) -> Iterator[str]:
    """Yield a module of checks, as text, for the op as declared; if it declares no shapes, then others with common shapes.

    The Function may accept only some, a matrix and a vector, say; the process takes the first it runs with.
    """
    spec, derivation = generated.spec, generated.derivation
    derived = frozenset(item.name for item in spec.differentiable)
    yield verification(spec, derivation, derived).checks
    tensors = [item.name for item in spec.tensors]
    # Samples of the user's and variadic inputs have the shapes they have.
    may_vary = spec.samples is None and not any(item.variadic for item in spec.tensors)
    if not may_vary or any(spec.dims(name) is not None for name in tensors):
        return
    for shapes in shapes_for(tensors):
        dims = dict(zip(tensors, shapes, strict=True))
        inputs = tuple(
            (
                item._replace(dims=dims[item.name])
                if isinstance(item, TensorInput)
                else item
            )
            for item in spec.inputs
        )
        # `conventional` are dims guessed by names; these shapes take their place.
        with_shapes = replace(spec, inputs=inputs, conventional=())
        yield verification(with_shapes, derivation, derived).checks


def _checked(
    source: Source, found: Adoption, settings: Values, proving: Proving
) -> Adoption:
    """Return the adoption with notes on the checks of `scaffold verify FILE`, of the Function and of the op made of it.

    A fault of the author's maths is in both; one of the old form, as a second derivative that is silently wrong, in one: an op
    with that fault is made once differentiable.
    """
    function = source.function
    question = Question(
        Meant(source.path, source.facts.module, (function,)), function, Stated()
    )
    old = Judged(question, judged(question, proving.prover))
    by_hand = f"{function.name}, by hand: {_in_words(old)}"
    # An op in library style has no Function.
    if found.op.keys["style"] == "library":
        return found._replace(notes=(*found.notes, by_hand))
    new = _verdict_on_op(question, found, proving)
    wrong = {check.name for check in new.failed}
    if SECOND in wrong and not found.op.keys.get("once-differentiable"):
        once = found.op.stating({"once-differentiable": True})
        again = found._replace(op=once, notes=(*found.notes, ONCE))
        found = _proven(source, again, settings, proving)
        new = _verdict_on_op(question, found, proving)
    as_op = f"{found.op.name}, as an op: {_in_words(new)}"
    notes = (*dict.fromkeys(found.notes), by_hand, as_op)
    if NOT_JUDGED in (old.status, new.status):
        return found._replace(notes=notes)
    return found._replace(notes=notes, failed=(len(old.failed), len(new.failed)))


def _verdict_on_op(question: Question, found: Adoption, proving: Proving) -> Judged:
    """Return the verdict on the op made of the Function asked about; the op need not be written."""
    generated = found.generated
    spec, derivation = generated.spec, generated.derivation
    text = verification(spec, derivation, derivation.derived).op
    request = request_of(generated, "", "")
    modules = (*request.modules, (ADOPTED, text))
    code, *_ = generated.companions
    place = Place(ADOPTED, f"<{code.module}>", "", spec.function_name)
    asked = question._replace(op=Unwritten(request._replace(modules=modules), place))
    return Judged(asked, judged(asked, proving.prover))


def _in_words(one: Judged) -> str:
    """Return how many checks passed or failed, with the failed ones: "1 of 23 checks fail (second derivative)"."""
    names = ", ".join(check.name for check in one.failed)
    return f"{one.words} ({names})" if names else one.words


# Weaker claims for an op that is not proven as the Function stands: key, value, and the note on it.
LOOSE = "its gradient is not the derivative: it is adopted as a surrogate"
ONCE = "its second derivative is not that of its gradient: it is adopted as once differentiable"
LESSER: tuple[tuple[str, Value | None, str], ...] = (
    ("once-differentiable", True, ONCE),
    ("surrogate", True, LOOSE),
)


def _proven(
    source: Source, found: Adoption, settings: Values, proving: Proving
) -> Adoption:
    """Return the adoption with a proof as `new-op` makes it, and with as few of the weaker claims in `LESSER` as needed.

    A gradient proven only as a surrogate (`loose`) needs consent. If no claim passes, a note says so: the op agrees with its
    Function all the same. Shapes suggested by a failed proof are tried once, as `test-shapes`.
    """
    reasons: list[ScaffoldError] = []
    # Only an op with a gradient can make a weaker claim about it.
    stated = bool(found.op.keys.keys() & {"grad", "backward"})
    for count in range(len(LESSER) * stated + 1):
        for chosen in itertools.combinations(LESSER, count):
            op = found.op.stating({key: value for key, value, _ in chosen})
            differs = [r.message for r in reasons if r.message.startswith("grad_")]
            loose = "surrogate" in op.keys
            if chosen and op == found.op or loose and not differs:
                continue  # tried already, or no gradient differs
            try:
                generated = prove(_generated(source, op, settings), proving)
            except ScaffoldError as refused:
                reasons.append(refused)
                continue
            reason = (*differs, *(r.message for r in reasons), "")[0]
            why = reason.split(";")[0]
            if loose:
                _need_consent(source, why, settings)
            notes = [f"{words} ({why})" for _, _, words in chosen]
            notes += _gained(source, op)
            return Adoption(op, generated, (*found.notes, *notes))
    *_, last = [r for r in reasons if isinstance(r, VerificationError)] or reasons
    shapes = re.search(r"test-shapes = '(.+?)'", last.hint or "")
    # Once: the op proven again has the key.
    if shapes and "test-shapes" not in found.op.keys:
        op = found.op.stating({"test-shapes": shapes[1]})
        with_shapes = found._replace(op=op, generated=_generated(source, op, settings))
        return _proven(source, with_shapes, settings, proving)
    note = f"scaffold new-op would refuse it: {last.message.split(';')[0]}"
    hint = (last.hint,) if last.hint else ()
    return found._replace(notes=(*found.notes, note, *hint))


def _need_consent(source: Source, why: str, settings: Values) -> None:
    """Raise WrongGradientError, unless the author or the user says that the gradient is meant to differ; `why` is the difference.

    The author says so in the Function's text, the user by `--surrogate`.
    """
    if settings.get("surrogate") or is_rough(source.facts):
        return
    name = source.function.name
    words = f"'{name}' is not adopted: its gradient differs from the derivative: {why}"
    lines = lines_of(source.facts)
    # `why` begins with the gradient, `grad_x: ...`, so the place is its line.
    line = lines.get(why.partition(":")[0], lines["backward"])
    hint = "fix its backward; if the difference is meant, use --surrogate"
    raise WrongGradientError(words, Location(source.path, line, 1), hint)


def _gained(source: Source, op: Adopted) -> Iterator[str]:
    """Yield notes on what the op can do and the Function cannot: vmap, torch.func, a registered name."""
    old_style = "setup-context" if source.function.setup_context else "combined"
    style, unmapped = op.keys["style"], not source.function.generate_vmap_rule
    # Without `transforms` nothing of it is promised; with a vmap rule of its own nothing is new.
    if style == "setup-context" and op.keys.get("transforms") and unmapped:
        adds = (
            "vmap"
            if old_style == "setup-context"
            else "torch.func (grad, vjp, jacrev) and vmap"
        )
        yield f"style setup-context adds {adds}"
    if style == "library":
        # PyTorch finds the shapes of the result by such a call, which a kernel of NumPy, say, refuses.
        unless = ", if its forward runs on fake tensors" * (not is_torch(source.facts))
        yield f"style library adds a name for torch.export and vmap as a loop; torch.compile takes it as one operator{unless}"
