"""Unsuited tests: generated tests with inputs on which even a right op fails.

A user could not tell such a test from a wrong op: the proof asks for other inputs instead of writing it.
In: the module of checks (`checks`) of an op that has passed them. Out: a failure of the tests. Invariant: a test that passes is not reported.
Words: *needed* are the inputs requiring grad; `right` and `exact` are results in double precision, `low` is the dtype of few digits.
CHECKED, CHECKED_TWICE and MAPPED of `checks`: the tests call gradcheck, gradgradcheck too, vmap.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, cycle, product
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.cases import Case, make_inputs, subsets, value_names
from scaffold.verify.child.derivatives import as_tuple, expected_gradients
from scaffold.verify.child.fast_torch import seed_generator
from scaffold.verify.child.further_questions import second_derivatives_of
from scaffold.verify.child.refusals import raised, refusal

LARGE = 1e5  # of an output: finite differences then err by more than gradcheck allows
SEEDS = (1, 2)  # beside 0: the seeds of the generated tests of vmap and of autocast
TESTS = "tests"  # the subject of a failure if the op is right
MEND = "give the tests inputs of your own: --samples '@file.py:function'"


def unfit(checks: Any) -> dict[str, Any] | None:
    """Return the first generated test bound to fail for its inputs, as a failure with a hint; None if there is none."""
    if checks.REFERENCE is None or not subsets(checks):
        return None  # no reference, or no output has a gradient
    searches = (_cases, _empty, _mapped, _under_autocast)
    words = next(chain.from_iterable(search(checks) for search in searches), None)
    if words is None:
        return None
    return {"subject": TESTS, "words": words, "hint": MEND}


def _cases(checks: Any) -> Iterator[str]:
    """Yield, for each case of the tests that cannot pass, why: autograd of the forward alone fails there, whatever the op."""
    for name, arguments in checks.CASES.items():
        case = Case(name, dict(arguments))
        if refusal(checks, case, None).words:
            continue  # reported already
        inputs = make_inputs(checks, case, None)
        if not _needed(inputs):
            continue
        words = _of_case(checks, inputs)
        if words:
            yield words.format(f"the tests' case '{name}'")


def _empty(checks: Any) -> Iterator[str]:
    """Yield why test_gradcheck cannot pass in an empty case: the gradient is finite, and its derivative is not."""
    skipped = "double_backward" in checks.TESTS.unsupported_of_empty
    for name, arguments in checks.EMPTY_CASES.items():
        case = Case(name, dict(arguments), further=True)
        if skipped or not checks.CHECKED_TWICE or refusal(checks, case, None).words:
            continue  # the test asks for no second derivative, or leaves the case out
        inputs = make_inputs(checks, case, None)
        try:
            finite = bool(_needed(inputs)) and _has_a_gradient(checks, inputs)
        except RuntimeError:
            continue  # there is no gradient
        if finite and not _has_second_derivatives(checks, inputs):
            yield f"test_gradcheck cannot pass in the tests' case '{name}': {CURVED}"


CURVED = "a second derivative is not finite there"


def _of_case(checks: Any, inputs: Sequence[Any]) -> str:
    """Return why the forward itself fails a test in this case, by autograd alone; "" if it does not.

    In the words `{}` stands for the case: braces of an error's own are doubled. Outputs without elements, a gradient that is not finite, an
    error of PyTorch's own backward, or outputs too large for finite differences.
    """
    if not _leaves_elements(checks, inputs):
        return "test_jacrev cannot pass in {}: every result of the forward is empty, so nothing is compared"
    try:
        if not _has_a_gradient(checks, inputs):
            return "{} cannot pass: the gradient of the forward is not finite there"
    except RuntimeError as error:
        own = raised(error).replace("{", "{{").replace("}", "}}")
        return f"PyTorch's own backward {own} in {{}}: the tests cannot pass there"
    if checks.CHECKED and (size := _largest(checks, inputs)) > LARGE:
        far = f"outputs up to {size:.0e} leave no digits for finite differences"
        return f"test_gradcheck cannot pass in {{}}: {far}"
    if checks.CHECKED_TWICE and not _has_second_derivatives(checks, inputs):
        return f"test_gradcheck cannot pass in {{}}: {CURVED}"
    return ""


def _leaves_elements(checks: Any, inputs: Sequence[Any]) -> bool:
    """Return whether a call has elements to compare: False if inputs with elements give only empty outputs."""
    if not all(one.numel() for one in inputs if isinstance(one, Tensor)):
        return True
    function = checks.FORWARD or checks.OPERATOR
    with torch.no_grad():
        return any(one.numel() for one in as_tuple(function(*inputs)))


def _mapped(checks: Any) -> Iterator[str]:
    """Yield why the vmap test cannot pass: its inputs have other random numbers than the tests' cases."""
    for seed in SEEDS if checks.MAPPED else ():
        case = Case("base", {"seed": seed})
        words = refusal(checks, case, None).words
        inputs = () if words else make_inputs(checks, case, None)
        if _needed(inputs) and not _has_a_gradient(checks, inputs):
            words = "has a gradient that is not finite"
        if words:
            yield f"test_vmap_of_grad cannot pass: for other numbers the forward {words}"


def _needed(inputs: Sequence[Any]) -> list[Tensor]:
    """Return the inputs requiring grad."""
    return [one for one in inputs if isinstance(one, Tensor) and one.requires_grad]


def _has_a_gradient(checks: Any, inputs: Sequence[Any]) -> bool:
    """Return whether all gradients of the forward are finite."""
    names = value_names(checks, len(inputs))
    found = expected_gradients(checks, inputs, names)
    return all(bool(one.isfinite().all()) for one in found.values())


def _has_second_derivatives(checks: Any, inputs: Sequence[Any]) -> bool:
    """Return whether the op's second derivatives are finite, or cannot be computed; another question compares their values."""
    try:
        found = [*second_derivatives_of(checks, checks.OPERATOR, inputs)]
    except RuntimeError:
        return True
    return all(bool(one.isfinite().all()) for several in found for one in several)


def _largest(checks: Any, inputs: Sequence[Any]) -> float:
    """Return the largest absolute element of the outputs with a gradient; 0.0 without any.

    Finite differences of large outputs lose the digits that gradcheck compares.
    """
    outputs = as_tuple(checks.REFERENCE(*inputs))
    sizes = [
        float(one.detach().abs().max())
        for one in outputs
        if one.requires_grad and one.numel()
    ]
    return max(sizes, default=0.0)


# --- The generated test of autocast, on the same numbers.


def _under_autocast(checks: Any) -> Iterator[str]:
    """Yield why the autocast test cannot pass: the op raises, or errs by more than is allowed.

    As in the test, an error counts only if other random numbers, of two more seeds, give it too. As there, too, only cases
    without sizes of their own are tried.
    """
    cases = [x for x in checks.CASES.values() if {*x} <= {"absent", "sample"}]
    for low in LOW if checks.TESTS.autocast else ():
        for case, types in product(cases, ((torch.float,), (low,), (low, torch.float))):
            found = _imprecise(checks, dict(case), types, low)
            for seed in SEEDS if found else ():  # as the test does
                repeated = _imprecise(checks, case | {"seed": seed}, types, low)
                found = {at: words for at, words in found.items() if at in repeated}
            for words in found.values():
                yield f"test_autocast[{low}] cannot pass: {words}"


LOW = (torch.bfloat16, torch.float16)
# The errors that the test allows (`less_exact` of op_testing.py.jinja): so many times plain PyTorch's own,
# and some roundings, of LEAST for a result that is 0 but for them.
TIMES = 3
RAISED = -1  # the key of an error instead of a result
LEAST = 16 * torch.finfo(torch.float).eps


def _imprecise(
    checks: Any, case: dict[str, Any], types: Sequence[torch.dtype], low: torch.dtype
) -> dict[int, str]:
    """Return the errors under autocast in words, by number of the output or gradient; {} if plain PyTorch raises.

    `types` are the dtypes of the inputs in turn, `low` is autocast's. The key RAISED stands for an error of the op itself.
    """
    inputs, doubles = (_rounded(checks, case, some) for some in (types, DOUBLE))
    try:
        right = _ends(checks, checks.REFERENCE(*doubles))
        with torch.autocast("cpu", dtype=low):
            plain = _ends(checks, checks.REFERENCE(*inputs))
        wanted, exact = _losses(plain, inputs), _losses(right, doubles)
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return {}
    try:
        with torch.autocast("cpu", dtype=low):
            actual = _ends(checks, checks.OPERATOR(*inputs))
        found = _losses(actual, inputs)
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        return {RAISED: f"the op {raised(error)} (--amp float32 casts its inputs)"}
    compared = [] if checks.SURROGATE else [*zip(actual, plain, right, strict=True)]
    compared += zip(found, wanted, exact, strict=True)
    words = {at: _off(*each, low) for at, each in enumerate(compared)}
    return {at: off for at, off in words.items() if off}


def _off(one: Tensor, other: Tensor, right: Tensor, low: torch.dtype) -> str:
    """Describe an error of the op's result `one` larger than the test allows; "" if it is not.

    `other` is plain PyTorch's result, whose own error counts TIMES; `right` is in double precision. A result too large for `low` is skipped.
    """
    # Of no elements, or where plain PyTorch has no number, nothing is compared.
    if not (right.numel() and other.isfinite().all()):
        return ""
    size = right.abs().max()
    if size >= torch.finfo(low).max:
        return ""
    # A result that is 0 but for roundings is a sum of terms that cancel, of about 1: theirs count.
    roundings = LEAST + 8 * torch.finfo(low).eps * (size if size > LEAST else 1)
    allowed = TIMES * (other.double() - right).abs().max() + roundings
    off = (one.double() - right).abs().max()
    if off <= allowed:
        return ""
    return f"a result is off by {off:.2g}; plain PyTorch's error allows {allowed:.2g}"


DOUBLE = (torch.double,)


def _rounded(
    checks: Any, case: dict[str, Any], types: Sequence[torch.dtype]
) -> tuple[Any, ...]:
    """Make the inputs of a case, cast to these dtypes in turn, but rounded to bfloat16 first: so they have the same values in any dtype."""
    pairs = zip(checks.make(**case), cycle(types), strict=False)
    return tuple(
        (
            x.detach().bfloat16().to(dtype).requires_grad_(x.requires_grad)
            if isinstance(x, Tensor) and x.is_floating_point()
            else x
        )
        for x, dtype in pairs
    )


def _ends(checks: Any, outputs: Any) -> tuple[Tensor, ...]:
    """Return the outputs with a gradient."""
    several, chosen = as_tuple(outputs), checks.TESTS.ends
    return tuple(several[at] for at in chosen) if chosen else several


def _losses(outputs: Sequence[Tensor], inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    """Return the gradients of a random weighted sum of the outputs, in double precision, by the inputs requiring grad."""
    seed_generator(1)
    weights = [torch.randn(x.shape).bfloat16() for x in outputs]
    pairs = zip(outputs, weights, strict=True)
    loss = torch.stack([(x.double() * weight).sum() for x, weight in pairs]).sum()
    return torch.autograd.grad(loss, _needed(inputs), materialize_grads=True)
