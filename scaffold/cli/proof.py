"""The verification of what `new-op` is about to write.

In: what was generated. Out: the same with notes, or an error with the failing case in words.
Invariant: it comes before anything is written, and where there is no torch it says so.
"""

import ast
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from scaffold import __version__
from scaffold.cli.beside import beside
from scaffold.cli.generate import Generated
from scaffold.cli.interpreter import UNPROVEN
from scaffold.cli.misnamed import misnamed
from scaffold.cli.prover import Proving
from scaffold.errors import Location, VerificationError
from scaffold.formula import Formula
from scaffold.render.verification import Verification, verification
from scaffold.spec import OpSpec
from scaffold.spec.imports import runs_code_of
from scaffold.spec.problems import Locate
from scaffold.verify import Failure, Request, Verdict, import_path
from scaffold.workspace.records import Proof, function_digest

VALUELESS = (
    "the tests have only an object() for '{}': say its type, as in '{}: float', or use "
    "--samples"
)
HINT = "write it all the same with --no-verify"
MEANT = "if it is not meant to be the derivative, say {}"
LEADING = (
    "the '...' of each input is its own, and they broadcast: sum the gradient, or name "
    "the dims, as in '{}'"
)
OURS = "a derived gradient is wrong: please report it; {} states one of your own"
SAID = ("outputs", "samples")  # what the specification says beside the formulas
NOT_OURS = (
    "not proven as it stands: a template changes its Function; scaffold verify runs "
    "its tests"
)
FITTED = "sizes of the tests as the forward wants them"
_OPTION = re.compile(r"--(inputs|outputs|samples)\b")
_GIVEN = re.compile(r"--(inputs|outputs|samples) (?=')")

Again = Callable[[tuple[str, ...]], Generated]  # with conditions on its sizes


class Subject(NamedTuple):
    """The op that a verdict is about."""

    spec: OpSpec
    derived: frozenset[str]  # inputs whose gradients follow from the forward
    locate: Locate  # of the keys that the user gave


def prove(
    generated: Generated, proving: Proving, again: Again | None = None
) -> Generated:
    """Verify the op, and note what is to be said of it.

    Where its forward wants sizes that nobody stated, it is generated `again` with these conditions.
    """
    if proving.interpreter is None:
        return _noting(generated, UNPROVEN)
    if generated.missing:
        lacks = f"not verified, as it lacks {', '.join(generated.missing)}"
        return _noting(generated, lacks)
    verdict, ran = _verdict(generated, proving)
    if verdict.wanted and again is not None:
        renewed = again(verdict.wanted)
        generated = _noting(renewed, f"{FITTED}: {_as_options(verdict.wanted)}")
        verdict, ran = _verdict(renewed, proving)
    if verdict.failure is not None:
        raise error_of(_subject(generated), verdict, proving.interpreter.note())
    proof = Proof("", ran, tool=__version__, torch=verdict.torch)
    generated = generated._replace(proof=proof)
    found = [*proving.interpreter.note(), *verdict.notes]
    found += [] if _is_written(generated, ran) else [NOT_OURS]
    found += filter(None, [runs_code_of(generated.spec)])
    return _noting(generated, *found)


def _is_written(generated: Generated, ran: str) -> bool:
    """Whether the code that ran is what is written, rather than what a template makes of it."""
    text = next(iter(generated.files.values()))
    names = (generated.spec.name, generated.spec.function_name)
    return function_digest(text, names) == ran


def _noting(generated: Generated, *notes: str) -> Generated:
    return generated._replace(notes=(*generated.notes, *notes))


def _as_key(conditions: Iterable[str]) -> str:
    return f"require = [{', '.join(map(repr, conditions))}]"


def _as_options(conditions: Iterable[str]) -> str:
    return " ".join(f"--require '{condition}'" for condition in conditions)


def _verdict(generated: Generated, proving: Proving) -> tuple[Verdict, str]:
    """What the run found, and the digest of the code that ran."""
    spec = generated.spec
    texts = verification(spec, generated.derivation, generated.derived)
    ran = function_digest(texts.op, (spec.name, spec.function_name))
    return proving.prove(spec.name, request_of(generated, texts)), ran


def request_of(generated: Generated, texts: Verification) -> Request:
    """What is asked of an op, with what it imports."""
    modules = tuple((item.module, item.text) for item in generated.companions)
    path = import_path(Path.cwd(), generated.root / generated.source)
    return Request(texts.op, texts.checks, path, modules)


def _subject(generated: Generated) -> Subject:
    return Subject(generated.spec, generated.derived, generated.specified.locate)


def error_of(
    subject: Subject, verdict: Verdict, notes: tuple[str, ...] = ()
) -> VerificationError:
    """What failed, at its place."""
    spec, failure = subject.spec, verdict.failure
    assert failure is not None
    words = f"{failure.subject}: {failure.words}; nothing was written"
    other = misnamed(spec, failure.words)
    place = other.place if other else _place(subject, failure)
    whose = filter(None, [runs_code_of(spec)])
    lines = (*notes, *failure.lines, *beside(spec, failure.subject), *whose)
    hint = (other and other.hint) or _hint(subject, verdict)
    if hint and _in_file(subject):
        hint = _OPTION.sub(r"'\1'", _GIVEN.sub(r"\1 = ", hint))
    return VerificationError(words, place, hint, details=lines)


def _in_file(subject: Subject) -> bool:
    """Whether the op stands in a manifest: there a hint names keys."""
    return subject.locate(("inputs",)).source.endswith(".toml")


def _hint(subject: Subject, verdict: Verdict) -> str | None:
    """What to write instead."""
    failure = verdict.failure
    assert failure is not None
    in_file = _in_file(subject)
    wanted = verdict.wanted or failure.rule
    if wanted:
        rule = _as_key(wanted) if in_file else _as_options(wanted)
        if failure.rule:
            equal = f"if the sizes are equal in every call: {rule}"
            return "; ".join(filter(None, (failure.hint, equal)))
        return rule
    if failure.subject.startswith(("grad_", "backward")):
        option, key = ("--grad", "--surrogate"), ("grad", "surrogate = true")
        grad, surrogate = key if in_file else option
        if failure.subject.removeprefix("grad_") in subject.derived:
            return failure.hint or OURS.format(grad)
        meant = failure.actual and not subject.spec.surrogate
        stated = _named(subject.spec, failure) or MEANT.format(surrogate)
        return failure.hint or (stated if meant else None)
    if failure.hint or failure.subject in SAID:
        return failure.hint or None
    names = untyped(subject.spec) if failure.subject == "forward" else ()
    return VALUELESS.format(names[0], names[0]) if names else HINT


def untyped(spec: OpSpec) -> list[str]:
    """The attributes of which the tests have no value but a bare object."""
    if spec.samples is not None:
        return []
    return [
        item.name
        for item in spec.attributes
        if item.annotation == "object" and item.default is None
    ]


def _named(spec: OpSpec, failure: Failure) -> str | None:
    """Of a formula that is right where all leading dims are equal: how to say that they are."""
    leading = {
        f"grad_{item.name}": item.name
        for item in spec.tensors
        if "..." in (spec.dims(item.name) or ())
    }
    broadcast = re.search(r" (leading|first) dim", failure.case)
    if failure.subject not in leading or not broadcast:
        return None
    named = (
        f"{name}[{', '.join('N' if dim == '...' else str(dim) for dim in spec.dims(name) or ())}]"
        for name in leading.values()
    )
    return LEADING.format(", ".join(named))


def _place(subject: Subject, failure: Failure) -> Location | None:
    """Where what is wrong stands: the code that raised, a gradient's formula, the key of the outputs."""
    spec = subject.spec
    if failure.subject in SAID:
        return subject.locate((failure.subject,))
    formula = _formula(spec, failure.subject)
    if formula is None and failure.subject == "forward":
        formula = spec.forward
    if formula is None:
        return None
    said = (_normal(text) for text in (failure.expression, failure.statement))
    places = (formula.locate(partial(_reads, text)) for text in said if text)
    return next(filter(None, places), formula.location)


def _formula(spec: OpSpec, subject: str) -> Formula | None:
    """What the user wrote of a gradient."""
    formula = {f"grad_{name}": one for name, one in spec.gradients}.get(subject)
    if formula is None and subject.startswith(("grad_", "backward")):
        return spec.backward
    return formula


def _normal(code: str) -> str:
    """A piece of Python as `ast` writes it; "" where it is none."""
    try:
        return ast.unparse(ast.parse(code.removeprefix("return ")))
    except (SyntaxError, ValueError):
        return ""


def _reads(code: str, node: ast.AST) -> bool:
    return ast.unparse(node) == code
