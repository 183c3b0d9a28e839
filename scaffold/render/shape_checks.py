"""Checks of declared shapes, as lines at the top of forward, and inputs violating them.

A gradient may be right for the declared shapes alone; for others, forward raises. In: an `OpSpec` and its `Derivation`, with a
`ShapeCheck` for each such shape: tests as code, and what a message says. Out: lines, and expressions for the test. Invariant: only the
names of inputs are read; a message is an f-string, in parts if it would be longer than a line.

Words: a *refused* input has a shape that fails a check; it is *named* if the message is sure to begin with its name; `read` of a check are
the sizes in its condition, each with an input that has it; `before` are the checks above it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from scaffold.derive import Derivation, ShapeCheck
from scaffold.errors import ScaffoldError
from scaffold.formula import Formula
from scaffold.render.testsizes import choose_sizes, fixed_sizes, satisfied
from scaffold.spec import OpSpec

INDENT = "    "
INDENTED = 16  # columns of indentation below `raise ValueError(`
# A word; an expression in braces stays whole.
WORD = re.compile(r"(?:\{.*?\}|\S)+ ?")


def check_lines(derivation: Derivation, line_length: int) -> list[str]:
    """Return statements raising ValueError for shapes the backward does not support."""
    room = line_length - INDENTED
    return [line for check in derivation.checks for line in _statement(check, room)]


def _statement(check: ShapeCheck, room: int) -> list[str]:
    """Return the lines of a check; of a variadic input, in a loop over its tensors. `room` is the width of a message's line."""
    if not check.each:
        return _lines(check, room)
    inner = _lines(check, room - len(INDENT))
    return [f"for {check.each} in {check.name}:", *(INDENT + line for line in inner)]


def _lines(check: ShapeCheck, room: int) -> list[str]:
    """Return the lines `if y.shape != x.shape:` and `raise ValueError(...)` of a check."""
    test = " or ".join(check.tests)
    # `absent`: inputs that may be None.
    # `bias is not None and (a or b)`: `and` binds more tightly than `or`.
    if check.absent and len(check.tests) > 1:
        test = f"({test})"
    there = "".join(f"{name} is not None and " for name in check.absent)
    said = f"{check.declared} has shape {{[*{check.each or check.name}.shape]}}, "
    expected = f"not {check.expected}"
    parts = [said + expected]
    if len(string(parts[0])) > room:
        parts = [*rows(said, room), *rows(expected, room)]
    message = " ".join(map(string, parts))
    return [f"if {there}{test}:", f"    raise ValueError({message})"]


def rows(text: str, room: int) -> Iterator[str]:
    """Yield the text in pieces as long as fit; a space stays with the word before it."""
    row = ""
    for word in WORD.findall(text):
        if row and len(string(row + word)) > room:
            yield row
            row = ""
        row += word
    yield row


def string(text: str) -> str:
    return f'f"{text}"' if "{" in text else f'"{text}"'


class Refused(NamedTuple):
    """An input refused by forward: the change of its shape, and whether the message names it."""

    name: str
    value: str  # an expression of the name
    named: bool

    @property
    def shown(self) -> str:
        """Return the item of the tests' list."""
        message = "" if self.named else ', ".*"'
        return f'("{self.name}", lambda {self.name}: {self.value}{message})'


def refused(spec: OpSpec, derivation: Derivation) -> tuple[Refused, ...]:
    """Return for each check an input violating it, for the generated test to call forward with: it has to raise.

    The input is given twice the size, one index or dim more, or too few dims. Inputs possibly absent from samples are left out.
    """
    free = (item for item in spec.tensors if item.optional or item.variadic)
    sampled = {item.name for item in free if spec.samples}
    checks = derivation.checks
    found = (
        _refused(spec, check, checks[:number])
        for number, check in enumerate(checks)
        if not sampled & {check.name, *check.absent}
    )
    return tuple(item for item in found if item is not None)


def _refused(
    spec: OpSpec, check: ShapeCheck, before: Sequence[ShapeCheck]
) -> Refused | None:
    """Return an input and a value of it for which the shape check fails; None if there is none.

    `before` are the checks above it: one of these may fail first. `named` says whether the message is sure to name this input.
    """
    name = check.name
    # An earlier check, of an optional input, may read the shape of this one, and refuse first.
    read = any(f"{name}.shape" in test for one in before for test in one.tests)
    if check.condition:
        broken = _breaking(spec, check.condition, check.read)
        # None stays None.
        return broken and broken._replace(named=broken.name == name and not read)
    if check.too_few:
        return Refused(name, f"{name}.flatten()", not read)
    # A scalar has no dim to double.
    if check.axis is None or spec.dims(name) == ():
        return Refused(name, f"{name}[None]", not read)
    return Refused(name, f"torch.cat([{name}] * 2, dim={check.axis})", not read)


def _breaking(
    spec: OpSpec, condition: Formula, read: Sequence[tuple[str, str, int]]
) -> Refused | None:
    """Return an input violating the condition for every choice of test sizes: one index of a dim more, or twice as many; or None.

    `read` has (size, input, dim) of the sizes in the condition. `H % 2 == 0` holds for twice the size too, `D == E // 2` for one index
    more, and `E == 2 * D and P > D` however large P is.
    """
    several = _sizes(spec)
    for size, name, axis in reversed(read):
        one_more = f"[{name}, {name}.narrow({axis}, 0, 1)]"
        for parts, times, more in ((one_more, 1, 1), (f"[{name}] * 2", 2, 0)):
            changed = (sizes | {size: times * sizes[size] + more} for sizes in several)
            # The forward has to refuse the input whatever sizes the test chooses.
            if not any(satisfied((condition,), sizes) for sizes in changed):
                return Refused(name, f"torch.cat({parts}, dim={axis})", True)
    return None


def _sizes(spec: OpSpec) -> list[dict[str, int]]:
    """Return the choices of sizes in the tests; none if only larger sizes than those tried would do, as in samples."""
    fixed = fixed_sizes(spec)
    with suppress(ScaffoldError):
        return [fixed | choose_sizes(spec, first) for first in range(2, 6)]
    return []
