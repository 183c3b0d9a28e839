"""The checks of declared shapes, as lines at the top of forward, and inputs that they refuse.

In: an `OpSpec` and its `Derivation`. Out: lines, and expressions for the test. Invariant: no name but those of the inputs is read;
a message is an f-string, in two parts where one would be longer than a line.
"""

from typing import NamedTuple

from scaffold.derive import Derivation, ShapeCheck
from scaffold.spec import OpSpec

ROOM = 72  # what fits into a line of 88 below `raise ValueError(`


def check_lines(derivation: Derivation) -> list[str]:
    """The statements that refuse shapes that the backward is not for."""
    return [line for check in derivation.checks for line in _lines(check)]


def _lines(check: ShapeCheck) -> list[str]:
    test = " or ".join(check.tests)
    if check.absent and len(check.tests) > 1:
        test = f"({test})"
    there = "".join(f"{name} is not None and " for name in check.absent)
    said = f"{check.declared} has shape {{[*{check.name}.shape]}}, "
    parts = [said + f"not {check.expected}"]
    if len(_string(parts[0])) > ROOM:
        parts = [said, f"not {check.expected}"]
    message = " ".join(map(_string, parts))
    return [f"if {there}{test}:", f"    raise ValueError({message})"]


def _string(text: str) -> str:
    return f'f"{text}"' if "{" in text else f'"{text}"'


class Refused(NamedTuple):
    """An input that forward refuses: its position among those of `make`, and the expression."""

    position: int
    value: str


def refused(spec: OpSpec, derivation: Derivation) -> tuple[Refused, ...]:
    """For each check an input of twice the size, or of one dim more; what may be absent from a user's samples has none."""
    sampled = {item.name for item in spec.tensors if item.optional and spec.samples}
    return tuple(
        _refused(spec, check)
        for check in derivation.checks
        if not sampled & {check.name, *check.absent}
    )


def _refused(spec: OpSpec, check: ShapeCheck) -> Refused:
    position = spec.index(check.name)
    value = f"inputs[{position}]"
    if check.axis is None or spec.dims(check.name) == ():
        return Refused(position, f"{value}[None]")
    return Refused(position, f"torch.cat([{value}] * 2, dim={check.axis})")
