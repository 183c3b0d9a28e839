"""The gradient that the user wrote, beside the one that follows from the forward.

In: an `OpSpec` and the gradient that is wrong. Out: two lines, or none where the forward cannot be derived.
Invariant: it only shows; what it shows has not been verified.
"""

from contextlib import suppress
from dataclasses import replace

from scaffold.derive import Derivation, derive
from scaffold.errors import ScaffoldError
from scaffold.formula import emit_lines
from scaffold.spec import OpSpec


def beside(spec: OpSpec, subject: str) -> tuple[str, ...]:
    """`written: ...` and `derived: ...` of a gradient such as `grad_weight`."""
    name = subject.removeprefix("grad_")
    stated = {f"grad_{each}": formula for each, formula in spec.gradients}
    if subject not in stated and spec.backward is None:
        return ()
    derived = _derived(spec, name)
    if not derived:
        return ()
    mine = stated.get(subject)
    text = " ".join(mine.text.split()) if mine else ""
    written = (f"written: {subject} = {text}",) if mine else ()
    return (*written, f"derived: {'; '.join(derived)}")


def _derived(spec: OpSpec, name: str) -> tuple[str, ...]:
    """The lines of the derived backward that lead to a gradient."""
    forward = spec.surrogate.forward if spec.surrogate else spec.forward
    alone = replace(
        spec,
        forward=forward,
        surrogate=None,
        gradients=(),
        backward=None,
        derive=True,
    )
    with suppress(ScaffoldError):
        derivation = derive(alone)
        if forward is not None and name not in derivation.missing:
            return _lines(derivation, name)
    return ()


def _lines(derivation: Derivation, name: str) -> tuple[str, ...]:
    return tuple(
        line.strip()
        for block in derivation.blocks
        if name in block.serves
        for line in emit_lines(block.statements)
    )
