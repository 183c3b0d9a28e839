"""Verdict on a hand-written Function: run all its checks in turn.

`runner.py` calls `judged` for a request with a Function, as `scaffold verify FILE` sends it. In: a request: the Function's place,
possible declarations of its inputs, its reference. Out: the fields of a `Verdict`: a `Result` for each check; or shapes to declare the
inputs with first; or why no check could run.
Words: a check is *refused*, and so skipped, if the Function may not support the call; `lines` has the line of the file at which to report a
fault, by its *place*: "backward", "grad_x"; `why` says by check why it is skipped.
Invariant: a check that would only repeat a reported fault is skipped, with the reason.
"""

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from inspect import unwrap
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from scaffold.verify.child.cases import SamplesError, describe
from scaffold.verify.child.file_import import NotLoadedError, import_file, notes_on
from scaffold.verify.child.function_checks import (
    CHECKS,
    Unasked,
    Wrong,
    frame_of,
    gradients,
    line_of,
    raised_briefly,
    sentence,
)
from scaffold.verify.child.hand_written import (
    Asked,
    Refused,
    Subject,
    as_reference,
    samples_of,
    with_inputs,
)
from scaffold.verify.child.modules import TextLoader, load
from scaffold.verify.child.refusals import first_line

Status = Literal["passed", "failed", "skipped"]


class Result(NamedTuple):
    """The outcome of a check: the fields of `prover.Checked`."""

    name: str  # a key of CHECKS
    status: Status
    words: str = ""  # the fault, or the reason to skip
    line: int = 0  # of the fault in the user's file
    hint: str = ""


# A wrong gradient fails DERIVED, too. OF_NO_CHANCE are not run for a random Function, whose
# numbers depend on the layout and the dtype.
DERIVED = (
    *("second derivative", "other sizes", "other ranks", "other arguments"),
    *("inputs that broadcast", "other values"),
)
OF_NO_CHANCE = (
    *("strided inputs", "float32", "bfloat16", "autocast"),
    *("torch.func.jacrev", "vmap of torch.func.grad", "torch.compile"),
)
OF_LAYOUT = ("gradient of a strided grad_output", "gradient of an expanded grad_output")

# What depends on shapes: asked of other ones, too; all checks would take too long.
OF_SHAPES = ("gradient", *OF_LAYOUT, "second derivative")

# Checks of transforms: a Function supports them only if it says so (`subject.maps`).
CLAIMED = ("torch.func.grad", "torch.func.jacrev", "vmap of torch.func.grad")


MENDS = (  # a part of PyTorch's message, and how to mend the Function
    ("must implement", "or mark its outputs: ctx.mark_non_differentiable(...)"),
    ("number of gradients", "return one per input of forward, or None"),
    ("expected Variable or None", "a tensor, or None, for each input"),
    ("view size is not compatible", ".reshape(...) takes any strides"),
    ("more than one element of the written-to", "clone it first"),
)


def ask(subject: Subject, name: str, lines: dict[str, int]) -> Result:
    """Run one check of a Function, and return its result; `lines`: by part ("forward", "grad_x", ...), the line to report a fault at."""
    try:
        CHECKS[name](subject)
    except Wrong as wrong:
        return Result(
            name, "failed", wrong.words, _line(wrong.place, lines), wrong.hint
        )
    except Unasked as reason:
        return Result(name, "skipped", str(reason))
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        return _of_error(subject, name, error, lines)
    return Result(name, "passed")


def _line(place: str | int, lines: dict[str, int]) -> int:
    """Return the line to report: a number as it is, else the place's; for "forward changes" without one, the line of "forward".

    Without that either, as of "saves" if nothing is saved on ctx, it is the line of the backward.
    """
    if isinstance(place, int):
        return place
    method = place.partition(" ")[0]
    return lines.get(place) or lines.get(method) or lines["backward"]


def _of_error(
    subject: Subject, name: str, error: Exception, lines: dict[str, int]
) -> Result:
    """Return the result of a check that ended in an error: skipped if refused, else failed.

    It is a refusal if the forward raises, as it may for any call; if the line is a `raise` of the user's; or if the check is of a transform
    (CLAIMED), and the Function does not claim to support it (`subject.maps`).
    """
    if name in CLAIMED:  # a Function may not refuse a transform that it supports
        refused = not subject.maps
    else:
        refused = subject.stage == "forward" or _is_of_forward(error, subject)
    if refused or _is_on_purpose(error, subject):
        return Result(name, "skipped", f"refused: {sentence(first_line(error))}")
    line = line_of(error, subject.asked.source) or lines["backward"]
    hint = next((hint for part, hint in MENDS if part in str(error)), "")
    return Result(name, "failed", raised_briefly(error), line, hint)


def _is_of_forward(error: Exception, subject: Subject) -> bool:
    """Return whether the forward raised, and was not called by backward, as a check by differences calls it."""
    methods = map(unwrap, (subject.function.forward, subject.function.backward))
    codes = [getattr(method, "__code__", None) for method in methods]
    seen = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return codes[0] in seen and codes[1] not in seen


NOTHING: dict[str, Any] = {"cases": 0, "failure": None, "notes": [], "skipped": []}


def judged(request: dict[str, Any]) -> dict[str, Any]:
    """Return, as the fields of a `Verdict`, the results of all checks of a Function, or shapes to declare its inputs with, or a failure."""
    given = request["function"]
    try:
        at, found = _accepted([*_subjects(request)])
    except (SamplesError, NotLoadedError) as error:
        subject = "samples" if isinstance(error, SamplesError) else "module"
        failure = {"subject": subject, "words": str(error), "hint": error.hint}
        return NOTHING | {"failure": failure}
    if isinstance(found, Refused):
        return NOTHING | {"failure": {"subject": "inputs", **found._asdict()}}
    if not isinstance(found, Subject):
        return {**NOTHING, "chosen": at, **found._asdict()}
    results = [*_results(found, given["lines"])]
    _ask_more(found, results, given["lines"])
    return {
        "cases": sum(one.status != "skipped" for one in results),
        "failure": None,
        "notes": [*found.notes, *notes_on(given["place"][0])],
        "skipped": [],
        "checks": [one._asdict() for one in results],
        "call": describe(found.names, found.inputs()),
    }


def _accepted(subjects: Sequence[Subject]) -> tuple[int, Any]:
    """Return the index of the first subject with accepted inputs, and the subject; or, instead, shapes found by a search, or a `Refused`.

    Of two declarations by the user the second is tried only after a search for shapes of the first has failed, too; `with_inputs` would try
    both before it searches. If both fail, the refusal is the first's.
    """
    if not subjects[0].asked.declared or subjects[0].samples:
        return with_inputs(subjects)
    tried = [with_inputs(subjects[:1])]
    if isinstance(tried[0][1], Refused) and len(subjects) > 1:
        tried.append(with_inputs(subjects[1:]))
    return tried[0] if isinstance(tried[-1][1], Refused) else tried[-1]


def _subjects(request: dict[str, Any]) -> Iterator[Subject]:
    """Yield the Function once for each possible declaration of its inputs, a module of checks."""
    for name, text in request["modules"]:
        load(name, text)
    given = request["function"]
    source = os.path.realpath(given["place"][1])  # (module, file, root, name)
    known = {key: given[key] for key in Asked._fields if key != "source"}
    # In JSON all sequences are lists.
    lists = {key: tuple(x) for key, x in known.items() if isinstance(x, list)}
    asked = Asked(**known | lists, source=source)
    function = named(given["place"])
    reference = given["reference"] and as_reference(named(given["reference"]))
    defaults = unwrap(function.forward).__defaults__ or ()
    samples = given["samples"] and samples_of(
        named(given["samples"]), asked.names, defaults
    )
    load("verified_op", request["op"])  # each module of checks imports it
    for text in given["candidates"]:
        checks = load("verified_checks", text)
        yield Subject(checks, function, asked, reference, samples)


def named(place: Sequence[str]) -> Any:
    """Import the object at a place, (module, file, root, name), and return it; raise NotLoadedError if there is none.

    An op that is not written yet was loaded from its text before.
    """
    module, file, root, name = place
    loaded = getattr(sys.modules.get(module), "__loader__", None)
    try:
        if isinstance(loaded, TextLoader):
            return attrgetter(name)(sys.modules[module])
        return attrgetter(name)(import_file(module, file, root))
    except AttributeError as error:
        words = f"AttributeError: {first_line(error)}"
        raise NotLoadedError(f"cannot be imported: {words}") from None


def _results(subject: Subject, lines: dict[str, int]) -> Iterator[Result]:
    """Yield the result of each check; skip repetitions of a reported fault, with the reason.

    If backward refuses every call, or no output has a gradient, the only result says so. `lines`: by part ("forward", "grad_x"), the line
    to report a fault at. `why`: by the name of a check to skip, the reason.
    """
    # `look` found no output with a gradient: the forward may be right, but there is nothing to check.
    if not subject.positions:
        yield Result("gradient", "skipped", "no output has a gradient")
        return
    why = dict.fromkeys(OF_NO_CHANCE, "it is random") if subject.random else {}
    refusal = _refuses(subject)
    if refusal:
        yield Result("gradient", "skipped", f"backward refuses: {refusal}")
        return
    for name in CHECKS:
        if name in why:
            yield Result(name, "skipped", why[name])
            continue
        result = ask(subject, name, lines)
        yield result
        if subject.symmetric:
            why |= dict.fromkeys(DERIVED, "its input is symmetric")
        if result.status == "failed":
            why |= dict.fromkeys(*_made_redundant(subject, name))


def _ask_more(subject: Subject, results: list[Result], lines: dict[str, int]) -> None:
    """Ask the checks in OF_SHAPES that passed of other shapes, too; put those that fail into `results`, with the call in their words.

    Not if the gradient failed, is random or a surrogate.
    """
    passed = {x.name: at for at, x in enumerate(results) if x.status == "passed"}
    if "gradient" not in passed or subject.surrogate or subject.random:
        return
    for _ in subject.with_other_shapes():
        for name in filter(passed.__contains__, OF_SHAPES):
            found = ask(subject, name, lines)
            if found.status == "failed":
                call = describe(subject.names, subject.inputs())
                words = f"{found.words}, called with {call}"
                results[passed.pop(name)] = found._replace(words=words)


def _refuses(subject: Subject) -> str:
    """Return the message of an intended error in backward, or of PyTorch's if there is no backward; "" if there is none."""
    try:
        gradients(subject, subject.inputs())
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        # So PyTorch itself raises if there is no backward, and the author for one not written yet.
        missing = isinstance(error, NotImplementedError)
        return first_line(error) if missing or _is_on_purpose(error, subject) else ""
    return ""


def _is_on_purpose(error: Exception, subject: Subject) -> bool:
    """Return whether a `raise` of the user's file raised the error."""
    frame = frame_of(error, subject.asked.source)
    return frame is not None and (frame.line or "").startswith("raise")


def _made_redundant(subject: Subject, failed: str) -> tuple[Sequence[str], str]:
    """Return the checks made redundant by a failed one, and the reason to report for each; ((), "") if there are none.

    If the call changes its inputs, the subject copies them from now on, so that the other checks still say something.
    """
    if failed == "inputs stay as they are":
        subject.copy_inputs()
        return ("input changed after the forward",), "inputs are changed"
    if failed == "grad_output stays as it is":
        return OF_LAYOUT, "grad_output is changed"
    if failed == "backward twice, with retain_graph":
        return ("gradient with create_graph",), "the second of two backwards is wrong"
    if failed != "gradient":
        return (), ""
    if subject.takes(subject.inputs(), backward=True):
        # Of a random Function, whose numbers depend on the layout, those of layout would say the same.
        return (*DERIVED, *OF_LAYOUT * subject.random), "the gradient is wrong"
    return tuple(CHECKS), "the gradient raises"
