"""The verification of what `new-op` is about to write.

In: what was generated. Out: the same with notes, or an error with the failing case in words.
Invariant: it comes before anything is written, and where there is no torch it says so.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from scaffold.cli.beside import beside
from scaffold.cli.generate import Generated
from scaffold.cli.misnamed import misnamed
from scaffold.errors import Location, VerificationError
from scaffold.render.verification import verification
from scaffold.spec import OpSpec
from scaffold.verify import Verdict, has_torch, verify

HINT = "write it all the same with --no-verify"
FITTED = "sizes of the tests as the forward wants them"
UNTAKEN = "not verified, as the forward takes none of the inputs that were tried"

Again = Callable[[tuple[str, ...]], Generated]  # with conditions on its sizes


def prove(generated: Generated, again: Again | None = None) -> Generated:
    """Verify the op, and note what is to be said of it.

    Where its forward wants sizes that nobody stated, it is generated `again` with these conditions.
    """
    if not has_torch():
        return _noting(generated, "not verified, as there is no torch")
    if generated.missing:
        lacks = f"not verified, as it lacks {', '.join(generated.missing)}"
        return _noting(generated, lacks)
    verdict = _verdict(generated)
    if verdict.wanted and again is not None:
        renewed = again(verdict.wanted)
        generated = _noting(renewed, f"{FITTED}: {_as_options(verdict.wanted)}")
        verdict = _verdict(renewed)
    if verdict.failure is not None:
        raise _error(generated.spec, verdict)
    if not verdict.cases:
        return _noting(generated, UNTAKEN)
    return _noting(generated, *verdict.notes)


def _noting(generated: Generated, *notes: str) -> Generated:
    return generated._replace(notes=(*generated.notes, *notes))


def _as_options(conditions: Iterable[str]) -> str:
    return " ".join(f"--require '{condition}'" for condition in conditions)


def _verdict(generated: Generated) -> Verdict:
    spec = generated.spec
    texts = verification(spec, generated.derivation, generated.derived, generated.house)
    with _progress(spec.name):
        return verify(texts.op, texts.checks, _path(generated))


def _path(generated: Generated) -> list[str]:
    """Where the op's own imports are looked for: here, beside the op, and where its package begins."""
    source = (generated.root / generated.source).resolve()
    return [str(Path.cwd()), str(source), *map(str, source.parents[:2])]


def _error(spec: OpSpec, verdict: Verdict) -> VerificationError:
    failure = verdict.failure
    assert failure is not None
    words = f"{failure.subject}: {failure.words}; nothing was written"
    other = misnamed(spec, failure.words)
    place = other.place if other else _place(spec, failure.subject)
    lines = (*failure.lines, *beside(spec, failure.subject))
    hint = _as_options(verdict.wanted) or (other and other.hint) or failure.hint
    return VerificationError(words, place, hint or HINT, details=lines)


def _place(spec: OpSpec, subject: str) -> Location | None:
    """Where the formula of the gradient stands that is wrong, if the user wrote it."""
    stated = {f"grad_{name}": formula for name, formula in spec.gradients}
    formula = stated.get(subject)
    if formula is None and subject.startswith(("grad_", "backward")):
        formula = spec.backward
    return formula.location if formula else None


@contextmanager
def _progress(name: str) -> Iterator[None]:
    """Say on a terminal what takes so long, for as long as it does."""
    shown = bool(sys.stderr and sys.stderr.isatty())
    if shown:
        typer.echo(f"verifying {name} ...", nl=False, err=True)
    try:
        yield
    finally:
        if shown:
            typer.echo("\r\x1b[K", nl=False, err=True)
