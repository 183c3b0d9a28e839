"""The verification of what `new-op` is about to write.

In: what was generated. Out: notes, or an error with the failing case in words.
Invariant: it comes before anything is written, and where there is no torch it says so.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from scaffold.cli.beside import beside
from scaffold.cli.generate import Generated
from scaffold.errors import Location, VerificationError
from scaffold.render.verification import verification
from scaffold.spec import OpSpec
from scaffold.verify import Failure, has_torch, verify

HINT = "write it all the same with --no-verify"


def prove(generated: Generated) -> tuple[str, ...]:
    """Verify the op."""
    if not has_torch():
        return ("not verified, as there is no torch",)
    if generated.missing:
        return (f"not verified, as it lacks {', '.join(generated.missing)}",)
    spec = generated.spec
    texts = verification(spec, generated.derivation, generated.derived, generated.house)
    with _progress(spec.name):
        verdict = verify(texts.op, texts.checks, _path(generated))
    if verdict.failure is not None:
        raise _error(spec, verdict.failure)
    if not verdict.cases:
        return (
            "not verified, as the forward takes none of the inputs that were tried",
        )
    return verdict.notes


def _path(generated: Generated) -> list[str]:
    """Where the op's own imports are looked for: here, beside the op, and where its package begins."""
    source = (generated.root / generated.source).resolve()
    return [str(Path.cwd()), str(source), *map(str, source.parents[:2])]


def _error(spec: OpSpec, failure: Failure) -> VerificationError:
    words = f"{failure.subject}: {failure.words}; nothing was written"
    place = _place(spec, failure.subject)
    lines = (*failure.lines, *beside(spec, failure.subject))
    return VerificationError(words, place, HINT, details=lines)


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
