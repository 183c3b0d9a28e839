"""Further questions: second derivatives, other dtypes, values, layouts and output gradients.

`checking.ask_further` asks them last in a proof: mistakes that the tests' own inputs do not show.
In: the module of checks (`checks`) of an op whose gradients are right in double precision. Out: an `Answer` that names an error, or None.
Invariant: if plain PyTorch has no answer, or no finite one, nothing is wrong.

Words: *ends* are the outputs with a gradient; their sum, with a weight for each element, is differentiated, so *weights* are grad_outputs.
At a *kink*, as 0 of relu, the derivative jumps, and every value between both sides is right. The module of checks has OPERATOR, the
op; REFERENCE, plain PyTorch with the gradients to expect, or None; ASKED_MORE, true if the gradient is a user's formula or has branches;
CHECKED_TWICE, true if the tests compare second derivatives; TOLERANCE, the limits of an op that computes in less than its dtype.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from scaffold.verify.child.cases import (
    Case,
    dtype_name,
    list_cases,
    make_inputs,
    needs_gradient,
    value_names,
)
from scaffold.verify.child.derivatives import as_tuple, is_inexact, returned_gradients
from scaffold.verify.child.fast_torch import seed_generator
from scaffold.verify.child.function_questions import (
    FEW_DIGITS,
    as_type,
    first_expanded,
    is_lost,
    needing,
    with_layout,
)
from scaffold.verify.child.refusals import SINGULAR, raised, refusal

CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-5}  # as gradgradcheck compares
ERRORS = 4  # times the errors of autograd, as the generated test allows
OF_AUTOCAST = "choose with --amp: region, float32 or off"
TWICE = "compute it from inputs and grad_output, or use --once-differentiable"
NO_NUMBER = "not finite"
THERE = "where plain PyTorch has it"
AS_EXACT: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8}
# Factors of the output gradients; None is an expanded 1.
SCALES = (1e6, 1e-6, 0, None)
EXPANDED = "an expanded 1, as .sum() makes it"  # a grad_output
IN_ORDER = "a kernel that assumes contiguous memory needs .contiguous()"
SLOPE = 1e-3  # the relative error of differences, for a slope
LARGE = 8  # times the values of the tests, which are seldom beyond 2
BEYOND = 50  # ... if the test enlarges values too
NEAR = 0.01  # the relative distance of values that are "about" a number
STEP = 1e-5  # to either side of a kink
SMALL = 1e-3  # below this, steps are no smaller
LOST = 1e-9  # the relative rounding error that a float64 gradient never exceeds, cancellation aside
# Times the change of autograd's gradient with the last digit of the inputs.
CANCELS = 1e4
ROUNDED = 100  # ... for each element's error
TIED = 0.47  # the value of equal elements: no number of a formula
CLAMPS = ("clamp", "clamp_min", "hardtanh")  # as PyTorch dispatches them
BESIDE = 6  # number of nearby points tried: a gradient may differ there


class Answer(NamedTuple):
    """The input with a wrong gradient, and the error."""

    name: str  # of the input
    words: str  # "wrong where values are 8 times those of the tests"
    hint: str = ""
    raised: bool = False  # the op raised
    legal: bool = False  # it differs from autograd's, and may be right: only a note


def second_derivatives(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Compare the derivatives of the gradients with the reference's; None if they agree, or if the reference has none.

    If they differ, finite differences tell which side is wrong: it may be PyTorch.
    """
    if not checks.CHECKED_TWICE:
        return None
    try:
        expected = [*second_derivatives_of(checks, checks.REFERENCE, inputs)]
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return None
    of_op = second_derivatives_of(checks, checks.OPERATOR, inputs)
    agrees = partial(_agrees_with_differences, checks, inputs)
    for name, theirs in zip(_wanted(checks, inputs), expected, strict=True):
        try:
            ours = next(of_op)  # one after the other: each may raise
        except Exception as error:  # noqa: BLE001 (whatever the op raises)
            return Answer(name, f"its derivative {raised(error)}", TWICE, True)
        for one, two in zip(ours, theirs, strict=True):
            limits = CLOSE
            # In single precision only rough agreement can be expected.
            if two.dtype in (torch.float32, torch.complex64) and two.numel():
                least = FEW_DIGITS * two.abs().max().clamp(min=1)  # of cancelling terms
                limits = {"rtol": FEW_DIGITS, "atol": float(least)}
            if not two.isfinite().all() or torch.allclose(one, two, **limits):
                continue
            # Unless the op alone agrees with differences: then PyTorch's own second derivative is wrong.
            if agrees(checks.REFERENCE) or not agrees(checks.OPERATOR):
                return Answer(name, "right, but its own derivative is not", TWICE)
    return None


def _agrees_with_differences(
    checks: Any, inputs: Sequence[Any], function: Callable[..., Any]
) -> bool:
    """Return whether the second derivatives of `function`, the op or the reference, agree with finite differences in double precision.

    Some of PyTorch's own do not (`F.layer_norm` without a weight).
    """
    exactly = [as_type(as_type(x, torch.float64), torch.complex128) for x in inputs]

    def ends(*called: Any) -> tuple[Tensor, ...]:
        return tuple(_ends(checks, function, called)[0])

    return gradgradcheck(ends, exactly, raise_exception=False, fast_mode=True)


def their_types(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check, as test_low_precision does, that backward returns each gradient in the dtype of its input.

    Autograd would silently cast a gradient of another dtype. Like that test, it needs a reference, and an op without random numbers. A dtype
    is skipped if the call raises, or has outputs of another dtype.
    """
    if checks.TESTS.reference is None or checks.TESTS.random:
        return None
    names = value_names(checks, len(inputs))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rounded = [as_type(x, dtype) for x in inputs]
        ends: list[Tensor] = []
        returned = None
        with suppress(Exception):  # it may have no kernels of them
            ends, _ = _ends(checks, checks.OPERATOR, rounded)
            returned, _ = returned_gradients(checks, rounded)
        if returned is None or any(end.dtype != dtype for end in ends):
            continue
        # Not strict: too few gradients, or too many, were reported before.
        for name, value, gradient in zip(names, rounded, returned, strict=False):
            if needs_gradient(value) and gradient.dtype != value.dtype:
                kind, wanted = dtype_name(gradient.dtype), dtype_name(value.dtype)
                words = f"{kind}, but its input is {wanted}"
                return Answer(name, words, f"cast it: (...).to({name}.dtype)")
    return None


def single_precision(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check that single-precision gradients are as precise as autograd's, also for complex inputs."""
    digits = 2 * torch.finfo(torch.float32).eps
    return _imprecise_in(checks, inputs, (torch.float32, torch.complex64), digits)


def few_digits(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check gradients roughly in bfloat16 and float16; an error raised by the op, and not by plain PyTorch, is only noted."""
    answer = _imprecise_in(checks, inputs, (torch.bfloat16, torch.float16), FEW_DIGITS)
    if answer is None or not answer.raised:
        return answer
    # "in bfloat16: raised ..." -> "missing in bfloat16, where plain PyTorch has it: raised ..."
    words = answer.words.replace(":", f", {THERE}:", 1)
    return answer._replace(words=f"missing {words}", legal=True)


def _imprecise_in(
    checks: Any, inputs: Sequence[Any], types: Sequence[torch.dtype], digits: float
) -> Answer | None:
    """Return the first imprecise gradient, with the inputs cast to each dtype in turn; None if all are precise.

    `digits` is the relative rounding error allowed. A dtype that no input is cast to, as complex64 of real inputs, is skipped.
    """
    for dtype in types:
        rounded = [as_type(x, dtype) for x in inputs]
        # `as_type` returns the same object if there is nothing to cast.
        if any(x is not one for x, one in zip(inputs, rounded, strict=True)):
            answer = _imprecise(checks, rounded, digits)
            if answer is not None:
                words = f"in {dtype_name(dtype)}: {answer.words}"
                return answer._replace(words="wrong " * (not answer.raised) + words)
    return None


def under_autocast(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check gradients under autocast against the forward's, also for inputs of two dtypes; None if right.

    Applies to ops that specify their behaviour under autocast (`TESTS.autocast`).
    """
    if not checks.TESTS.autocast:
        return None
    # Each tuple: the dtypes of the inputs in turn.
    for types in ((torch.float32,), (torch.bfloat16, torch.float32)):
        given = [as_type(x, t) for x, t in zip(inputs, cycle(types), strict=False)]
        answer = _imprecise(checks, given, FEW_DIGITS, autocast=True)
        if answer is not None:
            where = "under autocast" + ", with inputs of two dtypes" * (len(types) > 1)
            words = f"{'wrong ' * (not answer.raised)}{where}: {answer.words}"
            return answer._replace(words=words, hint=OF_AUTOCAST)
    return None


def _imprecise(
    checks: Any, inputs: Sequence[Any], digits: float, *, autocast: bool = False
) -> Answer | None:
    """Return the first gradient with an error many times autograd's plus rounding; None if there is none.

    Errors are distances from the reference's gradient in float64. `digits` is the relative rounding error allowed; if the error exceeds that,
    a change of autograd's gradient with the last digits of the inputs is allowed too: terms may cancel.
    """
    around = torch.autocast("cpu", torch.bfloat16, enabled=autocast)
    exactly = [as_type(as_type(x, torch.float64), torch.complex128) for x in inputs]
    try:
        native = _gradients(checks, around(checks.REFERENCE), inputs)
        exact = _gradients(checks, checks.REFERENCE, exactly)
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return None
    if not all(bool(one.isfinite().all()) for one in native):
        return None
    names = _wanted(checks, inputs)
    try:
        ours = _gradients(checks, around(checks.OPERATOR), inputs)
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        return Answer(names[0], raised(error), raised=True)
    for name, one, two, true in zip(names, ours, native, exact, strict=True):
        if one.dtype == torch.float16 and not one.isfinite().all():
            continue  # factors in another order may overflow 65504, while autograd's do not
        eps = torch.finfo(torch.bfloat16 if autocast else one.dtype).eps
        # Autograd's own error may be 0 by chance: some rounding is always allowed.
        rounding = digits * true.norm() + 2 * eps
        allowed = ERRORS * ((two.to(true.dtype) - true).norm() + rounding)
        off = (one.to(true.dtype) - true).norm()
        if not off <= allowed:
            # Only now, as it takes several calls: how much the last digits of the inputs matter.
            lost = _rounding_changes(checks, exactly, name, eps, Tensor.norm)
            allowed = allowed + ERRORS * lost
        if not off <= allowed:
            words = f"off by {off:.2g}, more than the {allowed:.2g} that autograd's own error allows"
            return Answer(name, words)
    return None


def other_grad_outputs(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check that backward is linear in the output gradients, and accepts unusual ones.

    Unusual are an expanded 1, as .sum() makes it, and a single output of several.
    """
    for scale in SCALES:
        answer = _wrong_gradient(checks, inputs, scale)
        if answer is not None:
            times = EXPANDED if scale is None else f"{scale:g} times as large"
            words = f"{answer.words} where grad_output is {times}"
            return answer._replace(words=words, hint=IN_ORDER if scale is None else "")
    if checks.REFERENCE is None:  # what one output alone gives is not known
        return None
    with torch.no_grad():
        count = len(as_tuple(checks.OPERATOR(*inputs)))
    chosen = checks.TESTS.ends or range(count)  # empty: all outputs have a gradient
    for at in chosen if len(chosen) > 1 else ():
        answer = _wrong_gradient(checks, inputs, alone=at)
        if answer is not None:
            words = f"{answer.words} if only output {at} is used"
            return answer._replace(words=words)
    return None


def other_layouts(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check gradients of inputs in other memory layouts.

    Expanded rows are equal, so `amax` has ties: there any gradient is accepted if autograd's own changes nearby.
    """
    for words, layout in LAYOUTS:
        laid = [with_layout(x, layout) for x in inputs]
        answer = _wrong_gradient(checks, laid)
        if answer and (answer.raised or not _is_at_kink(checks, laid, answer.name)):
            return answer._replace(words=f"{answer.words} where the inputs are {words}")
    return None


def channels_last(value: Tensor) -> Tensor:
    return value.clone(memory_format=torch.channels_last) if value.ndim == 4 else value


def _offset(value: Tensor) -> Tensor:
    """Return a tensor of the same values at the end of a longer one."""
    return torch.cat([value[:1], value])[1:] if value.ndim else value


LAYOUTS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("expanded", first_expanded),
    ("parts of longer tensors", _offset),
    ("in channels_last", channels_last),
    ("lazily conjugated", lambda x: x.conj_physical().conj()),
)


def broadcast_inputs(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check gradients if the first dim of an input with an undeclared shape is 1, and broadcasts.

    An error is reported as a note, with the advice to declare the shapes: the user's formula may rely on equal dims.
    """
    names = value_names(checks, len(inputs))
    for at, value in enumerate(inputs):
        # None: its shape is undeclared; (): it is not in the table, as an attribute is not.
        loose = checks.INPUT_SHAPES.get(names[at], ()) is None
        if not loose or not isinstance(value, Tensor) or not value.ndim:
            continue
        single = value.detach()[:1].requires_grad_(value.requires_grad)
        answer = _wrong_gradient(checks, [*inputs[:at], single, *inputs[at + 1 :]])
        if answer is not None and not answer.raised:
            words = f"wrong where {names[at]} has a first dim of 1, which broadcasts: declare the shapes"
            return answer._replace(words=words, legal=True)
    return None


def all_digits(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check that gradients of float64 inputs are computed in float64 throughout: a `.float()` in a user's formula loses half the digits.

    Allowed is an error of CANCELS times the change of autograd's own gradient with the last digits of the inputs: terms may cancel.
    """
    # ASKED_MORE: it may be a user's formula. An op with a tolerance of its own computes in less than float64.
    if not checks.ASKED_MORE or checks.TOLERANCE or checks.TESTS.random:
        return None
    near = next(_last_digits_changed(inputs, torch.finfo(torch.float64).eps))
    ours = _gradients(checks, checks.OPERATOR, inputs)
    theirs = _gradients(checks, checks.REFERENCE, inputs)
    others = _gradients(checks, checks.REFERENCE, near)
    for name, one, two, other in zip(
        _wanted(checks, inputs), ours, theirs, others, strict=True
    ):
        allowed = LOST * (two.norm() + 1) + CANCELS * (two - other).norm()
        if two.isfinite().all() and not (one - two).norm() <= allowed:
            words = "less precise than its input: computed in float32"
            return Answer(name, words, f"compute it in {name}.dtype")
    return None


def other_values(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Check gradients for values not in the tests: large, small, of one sign, or in the formulas.

    At a kink several gradients are right. One unlike autograd's is reported as a note there, if nothing else is wrong.
    """
    note = None  # the first answer that is no fault
    for words, changed in _drawn(checks, inputs):
        answer = _wrong_gradient(checks, changed)
        # Raising for integers ("every i is -1") is no fault: `x[i]` accepts indices
        # below 0, `x.index_select(0, i)` does not.
        if answer is None or answer.raised and (note or words.startswith("every")):
            continue
        if answer.words == NO_NUMBER and words.startswith("one value of"):  # infinite
            words = f"not finite where {words}; autograd's is"
            note = note or answer._replace(words=words, legal=True)
            continue
        asked = checks, changed, answer.name
        if answer.raised or not (_is_at_kink(*asked) or _is_rounding(*asked)):
            return answer._replace(words=f"{answer.words} where {words}")
        words = f"different from autograd's where {words}: a kink, or rounding errors"
        note = note or answer._replace(words=words, legal=True)
    return note


def _drawn(checks: Any, inputs: Sequence[Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield changed inputs, after words for the change: enlarged values; one input near, or partly equal to, a number of a formula.

    VALUES has such numbers by position: a branch or a clamp begins there. An attention mask, without a gradient, also gets -inf. In the
    words of a float input `all values of x are about 2`, of an integer one `every x is 2`.
    """
    if large := _large(checks, inputs):
        yield f"values are {LARGE} times those of the tests", _replaced(inputs, large)
    for name in checks.TESTS.enlarged:
        at = checks.NAMES.index(name)
        words = f"values of {name} are {BEYOND} times those of the tests"
        yield words, _replaced(inputs, {at: BEYOND * inputs[at].detach()})
    seed_generator(4)
    for at, numbers in checks.VALUES.items():
        value, name = inputs[at], checks.NAMES[at]
        if not isinstance(value, Tensor) or not value.numel():
            continue
        value = value.detach()
        every_other = torch.arange(value.numel()).reshape(value.shape) % 2 == 0
        after_first = torch.arange(value.numel()).reshape(value.shape) > 0
        inexact = is_inexact(value)
        integer = not inexact and value.dtype != torch.bool
        for number in numbers:
            if math.isfinite(number):
                distance = NEAR if inexact else 0
                near = number * (1 - distance * torch.rand(value.shape))
                words = f"all values of {name} are {'about ' * inexact}{_said(number)}"
                words = f"every {name} is {number}" if integer else words
                yield words, _replaced(inputs, {at: near.to(value.dtype)})
            else:  # if several were infinite, none would be the largest
                alone = _replaced(inputs, {at: value.where(after_first, number)})
                yield f"one value of {name} is {_said(number)}", alone
            if isinstance(number, bool) and value.ndim:  # a mask, row by row
                row = value.clone()
                row[0] = number
                yield f"one row of {name} is {number}", _replaced(inputs, {at: row})
            if math.isfinite(number) or number < 0 and not inputs[at].requires_grad:
                mixed = value.where(every_other, number)
                words = f"some values of {name} are {_said(number)}"
                words = f"every other {name} is {number}" if integer else words
                yield words, _replaced(inputs, {at: mixed})


def _said(number: float) -> str:
    return str(number) if isinstance(number, bool) else f"{number:g}"


def _large(checks: Any, inputs: Sequence[Any]) -> dict[int, Tensor]:
    """Return, by position, enlarged copies (times LARGE) of the inputs whose values may have any size (SCALED)."""
    given = {at: inputs[at] for at in checks.SCALED}
    return {at: LARGE * x.detach() for at, x in given.items() if isinstance(x, Tensor)}


def _replaced(inputs: Sequence[Any], changed: dict[int, Tensor]) -> tuple[Any, ...]:
    """Return the inputs with some replaced, by position; a new one requires grad if the old one did.

    In place of a symmetric matrix stands one, as a formula may count on that: (new + new^T) / 2.
    """

    def kept(new: Tensor, old: Tensor) -> Tensor:
        new = (new + new.mT) / 2 if is_symmetric(old) else new
        return new.requires_grad_(old.requires_grad)

    return tuple(
        kept(changed[at], x) if at in changed else x for at, x in enumerate(inputs)
    )


def is_symmetric(value: Tensor) -> bool:
    """Return whether a tensor of real matrices with several rows equals its transpose."""
    square = value.ndim > 1 and value.shape[-1] == value.shape[-2] > 1
    dense = value.is_floating_point() and value.layout == torch.strided
    return square and dense and torch.equal(value, value.mT)


def _is_at_kink(checks: Any, inputs: Sequence[Any], name: str) -> bool:
    """Return whether the gradient of input `name` differs from autograd's only in elements at a kink.

    An element is at a kink if autograd's own gradient changes with a small step of the inputs.
    """
    position = _wanted(checks, inputs).index(name)
    seed_generator(6)
    moved = [[_moved(x, number) for x in inputs] for number in range(BESIDE)]
    ours = _gradients(checks, checks.OPERATOR, inputs)[position]
    theirs, *beside = (
        _gradients(checks, checks.REFERENCE, several)[position]
        for several in (inputs, *moved)
    )
    # Elements in which autograd's gradient is the same at the points nearby: no kink.
    steady = [torch.isclose(one, theirs, rtol=1e-2, atol=1e-3) for one in beside]
    # Elements where autograd has no number cannot be compared.
    right = torch.isclose(ours, theirs, **AS_EXACT) | ~theirs.isfinite()
    return bool((right | ~torch.stack(steady).all(0)).all())


def _is_rounding(checks: Any, inputs: Sequence[Any], name: str) -> bool:
    """Return whether the gradient of input `name` differs from autograd's by no more than rounding of the inputs explains."""
    position = _wanted(checks, inputs).index(name)
    ours, theirs = (
        _gradients(checks, function, inputs)[position]
        for function in (checks.OPERATOR, checks.REFERENCE)
    )
    # An op with a tolerance of its own computes in less than float64.
    kind = torch.float32 if checks.TOLERANCE else torch.float64
    lost = _rounding_changes(checks, inputs, name, torch.finfo(kind).eps, Tensor.abs)
    limits = {**AS_EXACT, **checks.TOLERANCE}
    allowed = ROUNDED * lost + limits["atol"] + limits["rtol"] * theirs.abs()
    return bool(((ours - theirs).abs() <= allowed)[theirs.isfinite()].all())


def _rounding_changes(
    checks: Any,
    inputs: Sequence[Any],
    name: str,
    eps: float,
    size: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the largest change of autograd's own gradient of input `name` if inputs change by a part of `eps`.

    Where terms cancel, rounding of the inputs alone makes gradients differ: so much is no fault of the op. `size` measures a change:
    `Tensor.abs` for each element, `Tensor.norm` for the whole.
    """
    position = _wanted(checks, inputs).index(name)
    theirs, *beside = (
        _gradients(checks, checks.REFERENCE, several)[position]
        for several in (inputs, *_last_digits_changed(inputs, eps))
    )
    return torch.stack([size(one - theirs) for one in beside]).nan_to_num(0, 0).amax(0)


def _last_digits_changed(inputs: Sequence[Any], eps: float) -> Iterator[list[Any]]:
    """Yield BESIDE copies of the inputs with changed last digits, about `eps` of each element, where a gradient is needed."""
    seed_generator(7)
    for _ in range(BESIDE):
        changed = {}
        for at, x in enumerate(inputs):
            if needs_gradient(x):
                part = eps * torch.randn(x.shape, dtype=torch.float64)
                changed[at] = (x.detach() * (1 + part)).to(x.dtype)
        yield [*_replaced(inputs, changed)]


def _moved(value: Any, number: int) -> Any:
    """Move a tensor's elements a little: up for number 0, down for 1, else each by a random step."""
    if not needs_gradient(value):
        return value
    steps = torch.randn_like(value) if number > 1 else 1 - 2 * number
    largest = torch.finfo(value.dtype).max  # infinite values stay infinite
    moved = value.detach() + STEP * steps * value.detach().abs().clamp(SMALL, largest)
    return moved.requires_grad_()


def _wrong_gradient(
    checks: Any,
    inputs: Sequence[Any],
    scale: float | None = 1,
    alone: int | None = None,
) -> Answer | None:
    """Return the first gradient with an element unlike autograd's, if autograd's is finite there; None if all agree.

    None too if plain PyTorch refuses the call, or an output is NaN. `scale` is a factor of the grad_outputs, None for an expanded 1; `alone`
    is the position of the only output used.
    """
    try:
        ends, expected = _expected_gradients(checks, inputs, scale, alone)
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return None
    if any(end.isnan().any() for end in ends):
        return None
    names = _wanted(checks, inputs)
    try:
        ours = _gradients(checks, checks.OPERATOR, inputs, scale, alone)
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        words = raised(error)
        singular = words.startswith(SINGULAR)
        return None if singular else Answer(names[0], words, raised=True)
    for name, one, two in zip(names, ours, expected, strict=True):
        finite = two.isfinite()
        if not finite.any():
            continue
        # The absolute limit grows with the gradients and the grad_outputs, as rounding errors do.
        largest = max(float(two[finite].abs().max()), 1 if scale is None else scale)
        limits = {**AS_EXACT, **checks.TOLERANCE}
        limits["atol"] *= largest
        if not torch.isclose(one, two, **limits)[finite].all():
            numbers = finite & one.isfinite()
            right = torch.isclose(one, two, **limits)[numbers].all()
            # Right in every element where it is a number: then only the infinite ones, or NaNs, are amiss.
            return Answer(name, NO_NUMBER if right else "wrong")
    return None


def _expected_gradients(
    checks: Any, inputs: Sequence[Any], scale: float | None, alone: int | None
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Return the reference's outputs, and the gradients to expect of the op for these grad_outputs.

    `scale`: a factor of the usual grad_outputs, None for those of a plain sum (ones); `alone`: the position of the only output used.
    Without a reference, these are the op's own gradients for the usual grad_outputs, times `scale`: backward has to be linear.
    """
    if checks.REFERENCE is not None:
        ends, weights = _ends(checks, checks.REFERENCE, inputs, scale, alone)
        return ends, _backpropagated(ends, weights, inputs)
    ends, weights = _ends(checks, checks.OPERATOR, inputs)
    if scale is None:
        return ends, _backpropagated(ends, [*map(torch.ones_like, ends)], inputs)
    return ends, [scale * x for x in _backpropagated(ends, weights, inputs)]


def single_precision_by_double(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Compare gradients in single and double precision roughly; None if they agree, or if the op refuses float32.

    For an op without a reference (a kernel of the user's, say): it is its own reference, in double precision. FEW_DIGITS is the relative
    difference allowed.
    """
    single = [as_type(x, torch.float32) for x in inputs]
    try:
        ours = _gradients(checks, checks.OPERATOR, single)
    except Exception:  # noqa: BLE001 (it may take double precision alone)
        return None
    usual = _gradients(checks, checks.OPERATOR, inputs)
    for name, one, two in zip(_wanted(checks, inputs), ours, usual, strict=True):
        if not (one - two).norm() <= FEW_DIGITS * (two.norm() + 1):
            return Answer(name, "wrong in float32: it differs from that in float64")
    return None


def values_by_differences(checks: Any, inputs: Sequence[Any]) -> Answer | None:
    """Compare gradients with differences along one direction, for values not in the tests.

    For an op without a reference. Values are also all equal: a formula may count on values that differ.
    """
    for words, changed in _drawn(checks, inputs):
        for name in _wanted(checks, changed):
            if not _has_its_slope(checks, changed, name):
                return Answer(name, f"wrong where {words}")
    with suppress(Exception):  # it may refuse equal values
        for at in (at for at in checks.VALUES if needs_gradient(inputs[at])):
            name = checks.NAMES[at]
            tied = _replaced(inputs, {at: torch.full_like(inputs[at].detach(), TIED)})
            ones = torch.ones_like(inputs[at])
            lost = is_lost(checks.TESTS.function, tied)  # autograd has no number either
            if not (lost or _has_its_slope(checks, tied, name, ones)):
                return Answer(name, f"wrong where all elements of {name} are equal")
    return None


def _has_its_slope(
    checks: Any, inputs: Sequence[Any], name: str, direction: Tensor | None = None
) -> bool:
    """Return whether the gradient of input `name` may be the slope of the weighted outputs along a direction, by default a random one.

    False if the differences on both sides agree with each other, but not with the gradient. A long step may cross a narrow peak, and a
    short one loses digits: both have to disagree.
    """
    at = value_names(checks, len(inputs)).index(name)
    value = inputs[at].detach()
    gradient = _gradients(checks, checks.OPERATOR, inputs)[
        _wanted(checks, inputs).index(name)
    ]
    seed_generator(5)
    along = torch.randn_like(value) if direction is None else direction
    direction = along * value.abs().clamp(min=1)  # steps grow with the values
    # PyTorch's gradient of a complex input is conjugated: the change along d is Re(conj(gradient) * d).
    slope = (gradient.conj() * direction).sum().real
    for step in (STEP, STEP / 1000):
        sums = []
        for moved in (0, step, -step):
            called = [*inputs]
            called[at] = value + moved * direction
            with torch.no_grad():
                ends, weights = _ends(checks, checks.OPERATOR, called)
                sums.append(_summed(ends, weights))
        middle, above, below = sums
        right, left = (above - middle) / step, (middle - below) / step
        rounded = ROUNDED * torch.finfo(middle.dtype).eps * middle.abs() / step
        allowed = SLOPE * (right.abs() + left.abs() + 1) + rounded
        if not (right - left).abs() <= allowed:
            return True  # a kink, or no digits
        if ((right + left) / 2 - slope).abs() <= allowed:
            return True
    return False


Question = Callable[[Any, Sequence[Any]], Answer | None]
OF_EACH_CASE = (second_derivatives, single_precision)
OF_ONE_CASE = (
    other_values,
    few_digits,
    under_autocast,
    other_grad_outputs,
    other_layouts,
    their_types,
    all_digits,
    broadcast_inputs,
)
OF_NO_REFERENCE = (
    other_grad_outputs,
    values_by_differences,
    single_precision_by_double,
)


def asked_further(checks: Any) -> Iterator[tuple[Case, Answer]]:
    """Ask the further questions about the tests' cases, and yield each answer with its case.

    Only about the first case that the forward accepts are the expensive ones asked (OF_ONE_CASE). If its gradient is a user's formula or
    has branches, its second derivatives are also compared in other calls.
    """
    if not checks.HAS_GRADIENT:
        return
    questions: tuple[Question, ...] = (*OF_EACH_CASE, *OF_ONE_CASE)
    if checks.REFERENCE is None:  # a surrogate has no known gradient: it may clip
        questions = () if checks.SURROGATE else OF_NO_REFERENCE
    for name, arguments in checks.CASES.items():
        case = Case(name, dict(arguments))
        if not refusal(checks, case, None).words:
            for question in questions:
                yield from _asked(
                    checks, case, make_inputs(checks, case, None), question
                )
            # The expensive questions have been asked: from the second case on only the others.
            questions = OF_EACH_CASE if checks.REFERENCE else ()
    more = checks.ASKED_MORE and checks.REFERENCE is not None
    for case, inputs in _other_calls(checks) if more else ():
        for _, answer in _asked(checks, case, inputs, second_derivatives):
            if not answer.raised:  # there may be none, as for a singular matrix
                yield case, answer


def _asked(
    checks: Any, case: Case, inputs: Sequence[Any], question: Question
) -> Iterator[tuple[Case, Answer]]:
    """Yield the case with the answer of a question, if it has one; ask nothing if no input requires grad."""
    answer = question(checks, inputs) if any(map(needs_gradient, inputs)) else None
    if answer is not None:
        yield case, answer


def is_outside(checks: Any, case: Case, inputs: Sequence[Any]) -> bool:
    """Return whether a negative attribute, positive in the tests, crosses the limits of a clamp: `x.clamp(-a, a)` with a = -1.

    Then the gradient is not defined, and the case says nothing.
    """
    usual = checks.make()
    # Of each changed attribute: its value in the case, and in the tests.
    pairs = [(value, usual[at]) for at, value in case.attributes]
    # By type, as True is an int for Python, but no number here.
    numbers = [pair for pair in pairs if {*map(type, pair)} <= {int, float}]
    if not any(value < 0 < other for value, other in numbers):
        return False
    limits = Limits()
    with limits, suppress(Exception):
        (checks.REFERENCE or checks.OPERATOR)(*inputs)
    return limits.crossed


class Limits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode to notice clamps in a call (`clamps`), and one whose lower limit is above its upper one (`crossed`)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.crossed = self.clamps = False
        self.least = list[tuple[Tensor, Any]]()  # results, and their lower limits

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator; set `clamps` if it limits values, and `crossed` if a lower limit is above the upper one.

        The upper limit may be applied to the clamped result later: `torch.minimum(x.clamp(min=low), high)`.
        """
        result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        least, most = (*args[1:3], None, None)[:2]  # None for an argument not given
        # `clamp_` in place counts as `clamp`.
        self.clamps |= name.strip("_") in (*CLAMPS, "clamp_max")
        # Not `clamp_max`: its only limit is the upper one.
        if name.strip("_") in CLAMPS and least is not None:
            self.least.append((result, least))
            if most is not None:
                self.crossed |= bool(torch.as_tensor(least > most).any())
        for limited, limit in self.least if name == "minimum" else ():
            for one, other in (args, args[::-1]):
                self.crossed |= one is limited and bool((other < limit).any())
        return result


class Reductions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode to notice a reduction of a tensor of this rank along this dim (`reduced`)."""

    def __init__(self, rank: int, dim: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rank, self.dim, self.reduced = rank, dim, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator; set `reduced` if its result has fewer elements than its first tensor, of the rank, and an argument `dim...` is the dim.

        Operators that pick elements, and reduce none, do not count.
        """
        result = func(*args, **(kwargs or {}))
        of_rank = args and isinstance(args[0], Tensor) and args[0].ndim == self.rank
        # Of several results the first; None for an operator without any.
        end = result if isinstance(result, Tensor) else (result or [None])[0]
        picks = func.overloadpacket.__name__ in ("select", "slice", "split")
        if of_rank and end is not None and not picks and end.numel() < args[0].numel():
            # Not strict: arguments left out at the end have their defaults.
            named = zip(func._schema.arguments, args)
            dims = [x for parameter, x in named if parameter.name.startswith("dim")]
            self.reduced |= any(x in (self.dim, [self.dim]) for x in dims)
        return result


def _other_calls(checks: Any) -> Iterator[tuple[Case, Sequence[Any]]]:
    """Yield calls for second derivatives: other cases, one gradient alone, another dtype, layout, or larger values.

    Other cases are those of other attributes, guessed shapes, or a size of 1.
    """
    for case in list_cases(checks):
        wanted = case.attributes or case.guessed or 1 in case.arguments.values()
        if wanted and not refusal(checks, case, None).words:
            inputs = make_inputs(checks, case, None)
            if not is_outside(checks, case, inputs):
                yield case, inputs
    base = Case(*next(iter(checks.CASES.items())))
    if refusal(checks, base, None).words:
        return
    # One gradient alone: backward takes another branch if the other inputs need none.
    for name in checks.DIFFERENTIABLE if len(checks.DIFFERENTIABLE) > 1 else ():
        yield base, make_inputs(checks, base, None, (name,))
    yield base, make_inputs(checks, base, checks.permuted)
    usual = make_inputs(checks, base, None)
    yield base, [as_type(x, torch.float32) for x in usual]
    yield base, _replaced(usual, _large(checks, usual))


def second_derivatives_of(
    checks: Any, function: Callable[..., Any], inputs: Sequence[Any]
) -> Iterator[tuple[Tensor, ...]]:
    """Yield for each first gradient the derivatives of its weighted sum, by the inputs requiring grad and by the grad_outputs."""
    needed = [x for x in inputs if needs_gradient(x)]
    ends, weights = _ends(checks, function, inputs)
    if not ends:
        return
    # None stands for an expanded 1, and is asked for with `scale=None` alone: not here.
    weights = [one.requires_grad_() for one in weights if one is not None]
    first = torch.autograd.grad(
        _summed(ends, weights), needed, create_graph=True, materialize_grads=True
    )
    seed_generator(3)
    for gradient in first:
        end = _summed([gradient], [torch.randn(gradient.shape, dtype=gradient.dtype)])
        leaves = [*needed, *weights]
        # It depends on nothing, as the zeros for an input that is not read: its derivative is 0.
        if not end.requires_grad:
            yield tuple(torch.zeros_like(leaf) for leaf in leaves)
            continue
        yield torch.autograd.grad(
            end, leaves, retain_graph=True, materialize_grads=True
        )


def _gradients(
    checks: Any,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    scale: float | None = 1,
    alone: int | None = None,
) -> tuple[Tensor, ...]:
    """Return the gradients of the inputs requiring grad, for random grad_outputs of all outputs, or of the one at `alone`.

    `scale` multiplies the grad_outputs; if it is None, they are an expanded 1, as `.sum()` makes it.
    """
    ends, weights = _ends(checks, function, inputs, scale, alone)
    return _backpropagated(ends, weights, inputs)


def _backpropagated(
    ends: Sequence[Tensor], weights: Sequence[Tensor | None], inputs: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Return the gradients of the weighted sum of `ends` by the inputs requiring grad; zeros if no end depends on them."""
    needed = [x for x in inputs if needs_gradient(x)]
    if not any(end.requires_grad for end in ends):
        return tuple(torch.zeros_like(x) for x in needed)
    return torch.autograd.grad(_summed(ends, weights), needed, materialize_grads=True)


def _ends(
    checks: Any,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    scale: float | None = 1,
    alone: int | None = None,
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Call a function; return its outputs with a gradient, or the one at `alone`, and the weight of each in the sum to differentiate.

    A constant output is among them: autograd gives it no gradient, a Function does. `scale` is a factor of the weights, None for a plain sum.
    """
    outputs = as_tuple(function(*inputs))
    chosen = checks.TESTS.ends if alone is None else (alone,)
    several = [outputs[at] for at in chosen] if chosen else outputs
    ends = [one for one in several if is_inexact(one)]
    seed_generator(1)
    return ends, [_weights(end, scale) for end in ends]


def _weights(end: Tensor, scale: float | None) -> Tensor | None:
    """Draw weights of an output: quarters, exact in each dtype, none 0, times `scale`; None for the scale None.

    They do not depend on its memory order: the same numbers in another order would be other weights.
    """
    if scale is None:
        return None
    quarters = torch.randint(-4, 4, end.shape)  # 0 to 3 become 1 to 4 below
    return (quarters + (quarters >= 0)).to(end.dtype) / 4 * scale


def _summed(ends: Sequence[Tensor], weights: Sequence[Tensor | None]) -> Tensor:
    """Return the weighted sum of all outputs; the weight None is an expanded 1.

    Its gradients are those for `grad_outputs=weights`, an argument for which autograd imports SymPy.
    """
    total = torch.zeros((), dtype=torch.float64)
    for end, weight in zip(ends, weights, strict=True):
        if end.is_complex():
            weight = None if weight is None else torch.view_as_real(weight)
            end = torch.view_as_real(end)
        total = total + (end if weight is None else end * weight).sum()
    return total


def _wanted(checks: Any, inputs: Sequence[Any]) -> list[str]:
    """Return the names of the inputs requiring grad."""
    return needing(value_names(checks, len(inputs)), inputs)
