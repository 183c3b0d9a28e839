"""Refusals: the reason why a forward refuses inputs, and advice to the user.

A forward may refuse inputs that its author never meant; a gradient is compared only for calls it accepts. If it refuses the tests' own
inputs, the user has to declare others, and reads here how.
In: the module of checks (`checks`), a case. Out: a `Refusal`, whose words are "" if nothing is wrong. Invariant: the op itself is called
only if there is no other forward.
Words: of `checks`, OPERATOR is the op, FORWARD the same in plain PyTorch, or None; the *words* of a refusal say what happened, "raised
ValueError: ..."; to *mend* is to advise how to avoid it; TOLD are files of the user, whose lines are told.
"""

import linecache
import traceback
from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaffold.verify.child.cases import Case, make_inputs
from scaffold.verify.child.derivatives import as_tuple

Layout = Callable[[Tensor], Tensor] | None
INFINITE = "is not finite"
SINGULAR = "raised _LinAlgError"  # of a matrix without an inverse
NO_TENSOR = "gives no tensor"
# Domains as the tests draw from them: the word, the least value and the width.
RANGES = (("unit", 0.1, 0.8), ("positive", 0.5, 1.0))
DRAWS = 3
GIVE = "give the tests inputs it accepts: --samples '@file.py:function'"
# Errors with any inputs: the forward calls something that does not exist.
BROKEN = (
    "raised AttributeError: module ",
    "raised AttributeError: 'Tensor' object ",
    "raised ImportError",
    "raised ModuleNotFoundError",
    "raised NameError",
)


# Errors that other kinds of values avoid, not shapes: parts of PyTorch's messages, and advice.
_DTYPE = "the forward makes a tensor of the default dtype: write x.new_zeros(...), or dtype=x.dtype"
_NUMBER = "a function of numbers was given a tensor: write torch.exp, not math.exp, or x.sum().item()"
_TRITON = "the proof has no GPU for Triton: set TRITON_INTERPRET=1 to run kernels on the CPU, or use --no-verify"
KINDS = (
    (
        "tensors used as indices",
        "declare indices in --inputs: 'index[; int]' holds positions, 'mask[; bool]' chooses elements",
    ),
    ("must have the same scalar type", _DTYPE),
    ("must have the same dtype", _DTYPE),
    ("expected self.dtype to be equal to src.dtype", _DTYPE),
    ("only one element tensors can be converted", _NUMBER),
    ("cannot be converted to Scalar", _NUMBER),
    ("Boolean value of Tensor", "choose by element: torch.where(condition, a, b)"),
    ("active drivers", _TRITON),
    ("Pointer argument", _TRITON),
    ("CUDA", "leave the device to the caller: take .cuda() and device='cuda' out"),
)

MODULES = ("<verified_checks>", "<verified_op>")  # modules with the lines of a formula


class Refusal(NamedTuple):
    """The reason why a forward refuses inputs, and the code of the formula that raised."""

    words: str = ""  # "raised RuntimeError: ..."
    expression: str = ""  # the part of the line that raised
    statement: str = ""  # the line


def raised(error: Exception) -> str:
    """Describe an error, with its line in the user's file: `raised ValueError: too small (line 7)`."""
    message = f"raised {type(error).__name__}: {first_line(error)}".removesuffix(": ")
    # The innermost line of the user's: what it calls may raise deeper, in PyTorch.
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in TOLD:
            return f"{message} (line {frame.lineno})"
    return message


TOLD: set[str] = set()  # files of the user, for which lines are reported


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without PyTorch's announcement of a list that follows it."""
    first = (str(error).strip().splitlines() or [""])[0]
    return first.removesuffix(", but expected one of:")


def raised_at(error: Exception) -> tuple[str, str]:
    """Return the formula's expression that raised, "" if Python does not know it, and its line; ("", "") if no formula raised."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if frame.filename in MODULES and frame.lineno is not None:
            line = linecache.getline(frame.filename, frame.lineno)
            ends = getattr(frame, "end_lineno", None), getattr(frame, "end_colno", None)
            first = getattr(frame, "colno", None)
            # No expression to cut out: it has several lines, or Python knows no columns.
            if ends[0] != frame.lineno or first is None:
                return "", line.strip()
            # Python's columns count bytes.
            return line.encode()[first : ends[1]].decode(), line.strip()
    return "", ""


def refusal(checks: Any, case: Case, layout: Layout) -> Refusal:
    """Return why the forward refuses the case, or is not finite; a Refusal without words if the case can run."""
    function = checks.FORWARD or checks.OPERATOR
    try:
        with torch.no_grad():
            outputs = as_tuple(function(*make_inputs(checks, case, layout)))
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        return Refusal(raised(error), *raised_at(error))
    others = [item for item in outputs if not isinstance(item, Tensor)]
    if others:
        return Refusal(f"{NO_TENSOR} but a value of type {type(others[0]).__name__}")
    # A forward that is complex with its usual attributes, too, is meant to be.
    if case.attributes and _turned_complex(checks, outputs):
        return Refusal("is complex")  # `(1 - beta**step) ** 0.5` of a negative step
    return Refusal("" if _are_finite(outputs) else INFINITE)


def _turned_complex(checks: Any, outputs: tuple[Tensor, ...]) -> bool:
    """Return whether an output is complex only because of the case's attributes."""
    if not any(output.is_complex() for output in outputs):
        return False
    try:
        with torch.no_grad():
            usual = as_tuple((checks.FORWARD or checks.OPERATOR)(*checks.make()))
    except Exception:  # noqa: BLE001 (reported for the tests' own case)
        return True
    return not any(output.is_complex() for output in usual)


def _are_finite(outputs: tuple[Tensor, ...]) -> bool:
    return all(bool(output.isfinite().all()) for output in outputs)


def may_be_of_shapes(words: str) -> bool:
    """Return whether other shapes may avoid a refusal with these words: then they are searched for, which takes seconds.

    Not if a name does not exist, a type is wrong, or the message is known to be about dtypes or devices (KINDS).
    """
    of_kind = any(part in words for part, _ in KINDS)
    raised_other = words.startswith(("raised TypeError", *BROKEN))
    return words.startswith("raised ") and not raised_other and not of_kind


def mend(checks: Any, words: str) -> str:
    """Return advice after a refusal with these words, beginning with "; "; "" if there is none.

    A result that is not finite: declare the values' range; a value other than a tensor: return tensors; else a part of the message decides.
    """
    if words == INFINITE:
        found = _finite_of(checks)
        said = f"declare the range of the values in --inputs: '{found}'"
        return f"; {said}" if found else f"; {GIVE}"
    if words.startswith(NO_TENSOR):
        if words.endswith("method"):  # x.sigmoid
            return "; call it: x.sigmoid()"
        if words.endswith("NoneType"):  # `return x * 2, None`
            return "; return the tensors alone, without the None"
        listed = words.endswith("list")
        return "; return a, b in its place" if listed else "; return tensors"
    if words.startswith("raised TypeError"):
        return ""  # no shape avoids it
    known = next((hint for part, hint in KINDS if part in words), None)
    if known is not None:
        return f"; {known}"
    return f"; {GIVE}"


def _finite_of(checks: Any) -> str:
    """Return an input with a domain, `x[...; positive]`, to make the forward finite; "" if none makes it so.

    One input at a time is drawn from each domain, with several DRAWS, while the others keep the tests' values: log(x) wants a positive x.
    """
    inputs = checks.make()
    # The last name is without a value if it is a variadic input, `*tensors`, that got none.
    for position, name in enumerate(checks.NAMES[: len(inputs)]):
        value = inputs[position]
        before, after = inputs[:position], inputs[position + 1 :]
        if not (isinstance(value, Tensor) and value.is_floating_point()):
            continue
        for word, least, width in RANGES:
            several = [least + width * torch.rand_like(value) for _ in range(DRAWS)]
            if all(_is_finite(checks, [*before, x, *after]) for x in several):
                return f"{name}[...; {word}]"
    return ""


def _is_finite(checks: Any, inputs: list[Any]) -> bool:
    """Return whether the forward accepts these inputs, and gives finite outputs."""
    try:
        with torch.no_grad():
            outputs = as_tuple((checks.FORWARD or checks.OPERATOR)(*inputs))
        return _are_finite(outputs)
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return False


def is_bound(checks: Any, case: Case) -> bool:
    """Return whether all sizes of the case are 1, and one in a dim the formula fixes: there the 1 broadcasts by accident.

    A dim is fixed if the forward refuses a size one above its default. The arguments of a case are sizes here, by their names.
    """
    # With another size, or a changed input, nothing can be said of the 1.
    if {*case.arguments.values()} != {1} or case.change is not None:
        return False
    parameters = signature(checks.make).parameters
    several = ({name: parameters[name].default + 1} for name in case.arguments)
    others = (case.arguments | larger for larger in several)
    return any(refusal(checks, Case("", one), None).words for one in others)
