"""Recorded calls: arguments that a project's own tests call its Functions with, as arguments of a test, for `scaffold test-stub --record`.

`verify.recordings` runs the tests and records; here the calls worth a gradcheck are chosen and written as code, for `inspect.stubs`.
In: an interpreter, tests, the Functions of files. Out: rows, each the arguments of one call as expressions; notes.
Invariant: a row is as small as gradcheck needs it; a call with an object that no text can make again is none.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scaffold.inspect.stubs import Rows
from scaffold.inspect.trial_inputs import Argument
from scaffold.project.hand_written import Meant
from scaffold.verify.recordings import Given, Recording, Tensor, record

LARGEST = 2000  # elements of all tensors of a call; gradcheck of more takes too long
ROWS = 3  # calls of one Function, the smallest


class Recorded(NamedTuple):
    """The recorded calls of all Functions, to be asked for those of one file."""

    recording: Recording

    def rows(self, meant: Meant) -> dict[str, Rows]:
        """Return up to `ROWS` smallest calls of each Function of a file, by its qualified name; Functions without one are left out.

        A generated test is parametrized with the rows of a Function, so all have as many arguments as its first small call.
        """
        found = {}
        for name, calls in self._calls(meant):
            small = [call for call in calls if _elements(call) <= LARGEST]
            alike = [call for call in small if len(call) == len(small[0])]
            if alike:
                chosen = sorted(alike, key=_elements)[:ROWS]
                found[name] = tuple(_row(call, chosen) for call in chosen)
        return found

    def notes(self, several: Sequence[Meant]) -> Iterator[str]:
        """Yield notes for the user: the trouble of the tests' run, if any, and each Function without a call, or without one small enough."""
        if self.recording.trouble:
            yield self.recording.trouble
        for meant in several:
            rows, calls = self.rows(meant), dict(self._calls(meant))
            for function in meant.functions:
                name = function.qualname
                if name not in calls:
                    yield f"{name}: no recorded call"
                elif name not in rows:
                    yield f"{name}: every recorded call has more than {LARGEST} elements"

    def _calls(self, meant: Meant) -> Iterator[tuple[str, tuple[Given, ...]]]:
        """Yield the qualified name and the recorded calls of each Function of a file called at all."""
        file = os.path.realpath(meant.path)
        for function in meant.functions:
            calls = self.recording.calls.get((file, function.qualname))
            if calls:
                yield function.qualname, calls


def record_calls(python: str, tests: str, limit: int) -> Recorded:
    """Run tests, `tests` being pytest's arguments, and return the recorded calls of Functions; `limit` is in seconds."""
    return Recorded(record(python, Path.cwd(), tests, limit))


def _elements(call: Given) -> int:
    """Return the number of elements in the tensors of a call."""
    return sum(item.size for item in call if isinstance(item, Tensor))


def _row(call: Given, chosen: Sequence[Given]) -> tuple[Argument, ...]:
    """Return the arguments of a call as text; a tensor requires grad if it did at this position in any of the `chosen` calls.

    One test makes all of these calls, and checks the same gradients in each.
    """
    columns = zip(*chosen, strict=True)
    requires_grad = [
        any(isinstance(item, Tensor) and item.needed for item in column)
        for column in columns
    ]
    return tuple(map(_argument, call, requires_grad))


def _argument(item: Tensor | str, requires_grad: bool) -> Argument:
    """Return an argument as text: of a value its code, of a tensor `recorded((2, 3), (3, 1)).requires_grad_()`, with shape and strides.

    `recorded` is a function of the generated test. `requires_grad`: a tensor of some call at this position does; a value there, None,
    stands for an absent one.
    """
    if isinstance(item, str):
        # A value where other calls have a tensor that requires grad: it is None there.
        return Argument("", "optional" if requires_grad else "value", item)
    parts = [repr(item.shape), repr(item.dense_stride)]
    # A floating tensor becomes a double one, its default: gradcheck needs the precision.
    if item.dtype.startswith("complex"):
        parts.append("torch.cdouble")
    elif not item.dtype.startswith(("float", "bfloat")):
        parts.append(f"torch.{item.dtype}")
        parts += map(str, item.range or ())  # smallest and largest value: an index
    grad = ".requires_grad_()" if requires_grad else ""
    text = f"recorded({', '.join(parts)}){grad}"
    return Argument("", "tensor" if requires_grad else "constant", text)
