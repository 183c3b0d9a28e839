"""The original of an adopted op: compare the op with that Function.

`scaffold adopt` replaces a hand-written Function by a generated op, and asks here whether both agree. In: the place of the Function, and
modules of checks. Out: the fields of a `Verdict`, whose first note is a call that was compared; a failure of
ORIGINAL if it cannot run here.
Invariant: a case counts only if the Function accepted it; both draw the same random numbers.
"""

from collections.abc import Callable, Iterator
from itertools import compress
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.cases import list_cases, make_inputs
from scaffold.verify.child.checking import compare, compare_gradients
from scaffold.verify.child.derivatives import as_tuple
from scaffold.verify.child.file_import import NotLoadedError, import_file
from scaffold.verify.child.modules import load
from scaffold.verify.child.refusals import first_line, raised, refusal

ORIGINAL = "the original"


def against_original(request: dict[str, Any]) -> dict[str, Any]:
    """Compare the op with the Function it was adopted from; return the fields of a verdict.

    There are several modules of checks, which make inputs of other shapes; the first with a case that the Function accepts decides. If there
    is none, the verdict is that by the first module. It is a failure, too, if either cannot be imported.
    """
    original = request["original"]
    try:
        module = import_file(original["module"], original["file"], original["root"])
        applied = _function(module, original["name"]).apply
    except NotLoadedError as error:
        return _failed(ORIGINAL, str(error))
    except AttributeError as error:
        return _failed(ORIGINAL, f"cannot be imported: {_words(error)}")
    try:
        for name, text in request["modules"]:
            load(name, text)
        load("verified_op", request["op"])
    except Exception as error:  # noqa: BLE001 (whatever the user's modules raise)
        return _failed("the op", f"cannot be imported: {_words(error)}")
    verdict: dict[str, Any] = {}
    for text in (request["checks"], *original["more"]):
        checks = load("verified_checks", text)
        _stand_in(checks, applied)
        found = compare(checks)
        # Only of an op that is right without a transform, and was compared at all.
        if found["cases"] and not found["failure"]:
            found["notes"] += _transformed(checks)
        if found["cases"] or found["failure"]:
            return found
        # Nothing could be compared: the next module has other shapes; the first verdict is kept.
        verdict = verdict or found
    return verdict


def _function(module: Any, name: str) -> Any:
    """Return the Function of this name; if the module rebinds it, `scale = scale.apply`, find the class among the known Functions."""
    found = attrgetter(name)(module)
    pending = [] if isinstance(found, type) else [torch.autograd.Function]
    for known in pending:  # it grows: all subclasses, however deep
        pending += known.__subclasses__()
        if (known.__module__, known.__qualname__) == (module.__name__, name):
            return known
    return found


def _stand_in(checks: Any, applied: Callable[..., Any]) -> None:
    """Make the Function, by its `apply`, the reference of the checks, and seed both: a random op draws the same numbers."""
    checks.REFERENCE = checks.FORWARD = seeded(checks.on_copy(checks.TESTS, applied))
    checks.OPERATOR = seeded(checks.OPERATOR)
    checks.OWN_FORWARD = checks.OWN_GRADIENT = None
    checks.SURROGATE = False


def seeded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function such that it draws the same random numbers in every call."""

    def call(*inputs: Any) -> Any:
        torch.manual_seed(2)
        return function(*inputs)

    return call


def _transformed(checks: Any) -> Iterator[str]:
    """Yield the op's error under `torch.func.grad` or `vmap` in the first case where it is right without; only if it has a vmap rule."""
    if not getattr(checks.TESTS.function, "generate_vmap_rule", False):
        return

    def loss(*inputs: Any) -> Any:
        outputs = as_tuple(checks.OPERATOR(*inputs))
        return sum(one.sum() for one in outputs if one.is_floating_point())

    for case in list_cases(checks):
        if refusal(checks, case, torch.clone).words:
            continue
        given = make_inputs(checks, case, torch.clone)
        # Its gradient is wrong, or the Function refuses the case: nothing is to be learned of transforms.
        if compare_gradients(checks, case, given) is not None:
            continue
        inputs = [x.detach() if isinstance(x, Tensor) else x for x in given]
        needed = [isinstance(x, Tensor) and x.requires_grad for x in given]
        # A batch of two equal samples has to give the gradient of the one, twice.
        gradient = torch.func.grad(loss, tuple(compress(range(len(given)), needed)))
        several = [torch.stack([x, x]) if isinstance(x, Tensor) else x for x in inputs]
        dims = tuple(0 if isinstance(x, Tensor) else None for x in inputs)
        try:
            mapped = torch.func.vmap(gradient, dims, randomness="same")(*several)
            for one, both in zip(gradient(*inputs), mapped, strict=True):
                torch.testing.assert_close(
                    both, torch.stack([one, one]), equal_nan=True
                )
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
            yield raised(error)
        return


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _failed(subject: str, words: str) -> dict[str, Any]:
    failure = {"subject": subject, "words": words}
    return {"cases": 0, "failure": failure, "notes": [], "skipped": []}
