"""Checks of one hand-written Function: each stands alone, and names the fault and its line.

In: a `Subject`: the Function with inputs that it accepts. Out: `Result`s, one for each check, in the order of CHECKS.
Invariant: a call that the forward refuses says nothing about the Function. A call with a special property (an expanded grad_output, a
strided input) is compared with one of the same numbers without it, so a gradient that is no derivative can be checked too.
"""

import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.cases import (
    Case,
    describe,
    make_inputs,
    needs_gradient,
    shape_of,
)
from scaffold.verify.child.derivatives import as_tuple, returned_gradients
from scaffold.verify.child.diagnosis import Scene, diagnose
from scaffold.verify.child.fast_torch import seed_generator, seeded_grad
from scaffold.verify.child.further_questions import (
    FEW_DIGITS,
    LAYOUTS,
    as_type,
    other_values,
    slopes_alone,
    with_layout,
)
from scaffold.verify.child.hand_written import (
    ONCE,
    Subject,
)
from scaffold.verify.child.op_tests import permuted
from scaffold.verify.child.refusals import first_line, raised
from scaffold.verify.child.shape_search import OF_SHAPES
from scaffold.verify.child.shared_questions import questions_of

BASE = Case("base", {})
Weights = Callable[[Tensor], Tensor]
Check = Callable[[Subject], None]


class Wrong(Exception):
    """The finding of a check, and its place: a line, a method of the Function, or an input's gradient."""

    def __init__(
        self, words: str, place: str | int = "backward", hint: str = ""
    ) -> None:
        super().__init__(words)
        self.words, self.place, self.hint = words, place, hint


class Unasked(Exception):
    """The reason why a check does not apply to this Function."""


LONG = 180  # letters of an error message


def sentence(text: str) -> str:
    """Return the first sentence, cut if it is too long."""
    first = re.split(r"(?<=[a-z)])[.;] ", text)[0].removesuffix(".")
    return first if len(first) <= LONG else f"{first[:LONG]}..."


def raised_briefly(error: Exception) -> str:
    """Describe an error in one sentence."""
    return sentence(raised(error))


def line_of(error: BaseException, source: str) -> int:
    """Return the line of a file at which an error was raised; 0 if it was raised elsewhere."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [x.lineno or 0 for x in frames if os.path.realpath(x.filename) == source]
    return lines[-1] if lines else 0


def contiguous(end: Tensor) -> Tensor:
    """Draw a grad_output with contiguous memory."""
    seed_generator(1)
    return torch.randn(end.shape, dtype=torch.double).to(end.dtype)


def ones(end: Tensor) -> Tensor:
    return torch.ones(end.shape, dtype=end.dtype)


def expanded(end: Tensor) -> Tensor:
    """Return an expanded grad_output of ones, as `.sum()` makes it: one number in memory."""
    return torch.ones((), dtype=end.dtype).expand(end.shape)


def gradients(
    subject: Subject,
    inputs: Sequence[Any],
    weights: Weights = contiguous,
    outputs: Any = None,
    **options: Any,
) -> tuple[Tensor, ...]:
    """Return the gradients of the inputs that require grad."""
    ends = subject.ends(subject.call(inputs) if outputs is None else outputs)
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    given = [weights(end.detach()) for end in ends]
    found: tuple[Tensor, ...] = seeded_grad(
        ends, needed, given, materialize_grads=True, **options
    )
    return found


def compare(
    subject: Subject,
    inputs: Sequence[Any],
    found: Sequence[Tensor],
    expected: Sequence[Tensor],
    words: str = "{}",
    hint: str = "",
    exact: bool = True,
) -> None:
    """Raise Wrong at the first unexpected gradient; `{}` in `words` is the difference."""
    names = subject.needed(inputs)
    for name, one, two in zip(names, found, expected, strict=True):
        told = diagnose(one, two, subject.scene(name, inputs, exact))
        if told is not None:
            raise Wrong(f"grad_{name}: {words.format(told)}", f"grad_{name}", hint)


# --- Checks of one call.


def check_outputs(subject: Subject) -> None:
    if subject.checks.REFERENCE is None:
        raise Unasked("no --reference")
    for case in subject.cases:
        inputs = make_inputs(subject.checks, case, None)
        found = subject.call(inputs)
        wanted = as_tuple(subject.checks.REFERENCE(*inputs))
        if len(found) != len(wanted):
            counts = f"{len(found)} outputs, the reference has {len(wanted)}"
            raise Wrong(counts, "forward")
        for at, (one, two) in enumerate(zip(found, wanted, strict=True)):
            scene = Scene("output", tolerance=subject.tolerance)
            told = diagnose(one.detach(), two.detach(), scene)
            if told is not None:
                which = f"output {at}: " * (len(found) > 1)
                raise Wrong(f"{which}{told}{_in_case(case)}", "forward")


def _in_case(case: Case) -> str:
    return "" if case.name == "base" else f", in the case '{case.name}'"


def check_gradient(subject: Subject) -> None:
    for case in subject.cases:
        inputs = make_inputs(subject.checks, case, None)
        if subject.needed(inputs):
            _derivative(subject, inputs, _in_case(case))


def _derivative(subject: Subject, inputs: Sequence[Any], where: str = "") -> None:
    """Compare gradients with the reference's, or with differences."""
    found = gradients(subject, inputs)
    expected = subject.expected(inputs, contiguous)
    _compare_roughly(subject, inputs, found, expected, "{}" + where)


def _compare_roughly(
    subject: Subject,
    inputs: Sequence[Any],
    found: Sequence[Tensor],
    expected: Sequence[Tensor],
    words: str,
    hint: str = "",
) -> None:
    """Compare with finite values of differences or the reference; pass if it is a surrogate."""
    pairs = zip(found, expected, strict=True)
    known = [two.where(two.isfinite(), one.to(two.dtype)) for one, two in pairs]
    try:
        compare(subject, inputs, found, known, words, hint, exact=False)
    except Wrong as wrong:
        if subject.is_surrogate(expected):
            return
        with suppress(Wrong):
            halves = [_symmetric(one) for one in known]
            compare(subject, inputs, found, halves, exact=False)
            subject.symmetric = True
            subject.note("the gradient is that of a symmetric input")
            return
        raise wrong from None


def _symmetric(gradient: Tensor) -> Tensor:
    """Return the gradient of a symmetric matrix: the mean of it and its transpose."""
    square = gradient.ndim > 1 and gradient.shape[-1] == gradient.shape[-2]
    return (gradient + gradient.mT) / 2 if square else gradient


def check_each_alone(subject: Subject) -> None:
    """Check each gradient while only one input requires grad."""
    if len(subject.checks.DIFFERENTIABLE) < 2:
        raise Unasked("one input has a gradient")
    whole = subject.inputs()
    every = dict(zip(subject.needed(whole), gradients(subject, whole), strict=True))
    for name in subject.needed(whole):
        inputs = make_inputs(subject.checks, BASE, None, (name,))
        returned, error = returned_gradients(subject.checks, inputs)
        if error is not None:
            raise error
        at = subject.names.index(name)
        if returned is not None and len(returned) > at and returned[at] is None:
            raise Wrong(
                f"grad_{name}: None, where {name} alone requires grad",
                f"grad_{name}",
                "is needs_input_grad asked of the right input?",
            )
        found = gradients(subject, inputs)
        words = f"{{}}, where {name} alone requires grad"
        compare(subject, inputs, found, [every[name]], words)


def check_contract(subject: Subject) -> None:
    """Check the shapes returned by backward itself: autograd silently sums too large ones."""
    inputs = subject.inputs()
    returned, error = returned_gradients(subject.checks, inputs)
    if returned is None:
        raise error or Wrong("backward is never called, though an input requires grad")
    if error is None:
        _contract(subject, inputs, returned)
    elif not isinstance(error, Wrong):
        raise error


def _contract(subject: Subject, inputs: Sequence[Any], returned: Sequence[Any]) -> None:
    for name, value, gradient in zip(subject.names, inputs, returned, strict=False):
        if not (isinstance(value, Tensor) and value.requires_grad):
            continue
        if gradient is not None and gradient.shape != value.shape:
            sizes = f"{shape_of(gradient)}, the shape of {name} is {shape_of(value)}"
            words = f"grad_{name}: {sizes}; autograd sums it silently"
            if subject.asked.searched:  # broadcasting may not be intended
                subject.note(words)
                return
            raise Wrong(words, f"grad_{name}", f"sum_to_size({name}.shape)")


IN_ORDER = "reads memory in order; .contiguous() mends it"


def _check_weights(
    subject: Subject, usual: Weights, special: Weights, words: str
) -> None:
    inputs = subject.inputs()
    expected = gradients(subject, inputs, usual)
    compare(subject, inputs, gradients(subject, inputs, special), expected, words)


def check_strided(subject: Subject) -> None:
    def strided(end: Tensor) -> Tensor:
        return permuted(contiguous(end))

    _check_weights(subject, contiguous, strided, f"wrong: {IN_ORDER} ({{}})")


def check_expanded(subject: Subject) -> None:
    _check_weights(subject, ones, expanded, f"wrong: {IN_ORDER} ({{}})")


def check_scaled(subject: Subject) -> None:
    """Check that backward is linear in grad_output."""
    if subject.hands_on:
        raise Unasked("the forward hands its input on: a gradient may be clipped")
    inputs = subject.inputs()
    usual = gradients(subject, inputs)
    found = gradients(subject, inputs, lambda end: 2 * contiguous(end))
    hint = "multiply by grad_output"
    for name, one, two in zip(subject.needed(inputs), found, usual, strict=True):
        if two.any() and diagnose(one, two, subject.scene(name, inputs)) is None:
            words = f"grad_{name}: grad_output is ignored: the same for twice as much"
            raise Wrong(words, f"grad_{name}", hint)
    expected = [2 * one for one in usual]
    compare(subject, inputs, found, expected, "{} for twice the grad_output")


UNMARKED = "add it, or ctx.mark_non_differentiable(...) the output"


def check_one_output(subject: Subject) -> None:
    """Check gradients while a single output is used: the other grad_outputs are None, or zeros."""
    inputs = subject.inputs()
    count = len(subject.ends(subject.call(inputs)))
    if count < 2:
        raise Unasked("one output has a gradient")
    for at in range(count):
        outputs = subject.ends(subject.call(inputs))
        needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        found = seeded_grad(
            [outputs[at]], needed, [contiguous(outputs[at])], materialize_grads=True
        )
        expected = subject.expected(inputs, contiguous, alone=at)
        words = f"{{}}, of output {subject.positions[at]} alone"
        _compare_roughly(subject, inputs, found, expected, words, UNMARKED)


def check_two_calls(subject: Subject) -> None:
    """Check that another call between forward and backward changes nothing."""
    inputs, others = subject.inputs(), subject.inputs(seed=1)
    expected = gradients(subject, inputs)
    outputs = subject.call(inputs)
    subject.call(others)
    found = gradients(subject, inputs, outputs=outputs)
    words = "{} after a second call: what a call saves is shared"
    compare(subject, inputs, found, expected, words, "keep it on ctx")


def check_backward_twice(subject: Subject) -> None:
    inputs = subject.inputs()
    outputs = subject.call(inputs)
    first = gradients(subject, inputs, outputs=outputs, retain_graph=True)
    first = tuple(one.clone() for one in first)
    words = "{} in a second backward, with retain_graph=True"
    try:
        again = gradients(subject, inputs, outputs=outputs, retain_graph=True)
    except Exception as error:
        line = line_of(error, subject.asked.source)
        raise Wrong(words.format(raised_briefly(error)), line or "backward") from error
    compare(subject, inputs, again, first, words, "leave what is saved as it is")


def check_inputs_stay(subject: Subject) -> None:
    """Check that neither pass changes an input, in any precision."""
    for dtype in (subject.dtype, torch.float32):
        inputs = [as_type(x, dtype) for x in subject.inputs()]
        before = [x.detach().clone() if isinstance(x, Tensor) else x for x in inputs]
        if not subject.takes(inputs):
            continue
        outputs = subject.call(inputs)
        _unchanged(subject, inputs, before, "forward")
        with suppress(Exception):  # reported by the check of gradients
            gradients(subject, inputs, outputs=outputs)
        _unchanged(subject, inputs, before, "backward")


def _unchanged(
    subject: Subject, inputs: Sequence[Any], before: Sequence[Any], method: str
) -> None:
    for name, one, two in zip(subject.names, inputs, before, strict=True):
        if isinstance(one, Tensor) and not torch.equal(
            one.detach().nan_to_num(), two.nan_to_num()
        ):
            kind = f" of {str(one.dtype)[6:]}" if one.dtype != subject.dtype else ""
            words = f"{method} changes {name}{kind} in place"
            raise Wrong(
                words, f"{method} changes", f"clone it first, or mark_dirty({name})"
            )


def check_grad_output_stays(subject: Subject) -> None:
    inputs = subject.inputs()
    kept: list[tuple[Tensor, Tensor]] = []

    def noted(end: Tensor) -> Tensor:
        weight = contiguous(end)
        kept.append((weight, weight.clone()))
        return weight

    with suppress(Exception):  # reported by the check of gradients
        gradients(subject, inputs, noted)
    if not all(torch.equal(one, two) for one, two in kept):
        raise Wrong(
            "backward changes grad_output in place",
            "backward changes",
            "clone it first",
        )


def check_changed_input(subject: Subject) -> None:
    """Check that backward refuses an input changed since the forward, or gives the old gradient."""
    asked = _questions(subject)
    for at, name in enumerate(subject.names):
        if name in subject.dirty:
            continue
        words = f"silently wrong where {name} is changed after the forward: it is kept on ctx as it is"
        hint = f"ctx.save_for_backward({name}) notices"

        def pick(inputs: Sequence[Any], _: Any, at: int = at) -> Any:
            return inputs[at]

        _answer(partial(asked.check_changed, pick), Wrong(words, "saves", hint))


TWICE = "mark it once_differentiable, or save inputs and outputs alone"


SLOPES = 1e-3  # the relative error of differences, for a second derivative


def _refuses_twice(error: Exception) -> bool:
    """Return whether an error says that there is no second derivative."""
    return any(words in str(error) for words in ONCE)


def check_second(subject: Subject) -> None:
    """Check that the derivative of each gradient is right, or refused."""
    inputs = subject.inputs()

    def firsts(*called: Any) -> tuple[Tensor, ...]:
        given, weights = called[: len(inputs)], called[len(inputs) :]
        ends = subject.ends(subject.call(given))
        with torch.enable_grad():
            needed = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
            total = sum((e * w).sum() for e, w in zip(ends, weights, strict=True))
            return torch.autograd.grad(
                total, needed, create_graph=True, materialize_grads=True
            )

    if subject.single:
        raise Unasked("it computes in float32")
    ends = subject.ends(subject.call(inputs))
    leaves = [*inputs, *(contiguous(end.detach()).requires_grad_() for end in ends)]
    needed = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
    names = [*subject.needed(inputs), *["grad_output"] * len(ends)]
    try:
        found = [*_seconds(firsts(*leaves), needed)]
    except RuntimeError as error:
        if _refuses_twice(error):
            return
        raise
    for name, gradient, at in zip(names, found, range(len(found)), strict=True):
        slope = _slope(firsts, leaves, needed[at])
        largest = float(slope.abs().max()) if slope.numel() else 0.0
        off = float((gradient - slope).abs().max()) if slope.numel() else 0.0
        if off > SLOPES * (1 + largest):
            part = 100 * off / max(largest, float(gradient.abs().max()))
            words = f"silently wrong by {part:.0f} %, by {name}"
            raise Wrong(words, "saves", TWICE)


def _seconds(first: Sequence[Tensor], needed: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the derivatives of the gradients.

    They come from `backward`, which runs into once_differentiable; `torch.autograd.grad` passes it by.
    """
    end = _mixed(first)
    if end.requires_grad:
        end.backward()  # type: ignore[no-untyped-call]
    for leaf in needed:
        yield torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _mixed(first: Sequence[Tensor]) -> Tensor:
    """Return a number that depends on every element of the gradients."""
    seed_generator(3)
    total = torch.zeros((), dtype=torch.double)
    for one in first:
        total = total + (one * torch.randn(one.shape, dtype=torch.double)).sum()
    return total


def _slope(firsts: Callable[..., Any], leaves: Sequence[Any], value: Tensor) -> Tensor:
    """Differentiate the mixed gradients by differences along each element."""
    slope = torch.zeros(value.numel(), dtype=torch.double)
    step = 1e-5
    for index in range(value.numel()):
        sides = []
        for sign in (1, -1):
            moved = value.detach().clone(memory_format=torch.contiguous_format)
            moved.view(-1)[index] += sign * step
            moved.requires_grad_()
            called = [moved if x is value else x for x in leaves]
            sides.append(float(_mixed(firsts(*called)).detach()))
        slope[index] = (sides[0] - sides[1]) / (2 * step)
    return slope.reshape(value.shape)


# --- Checks of other inputs.


def check_strided_inputs(subject: Subject) -> None:
    """Check that no memory order or expanded rows of an input change a gradient."""
    for words, layout in (("not contiguous", permuted), *LAYOUTS[:1]):
        for alone in ("", *subject.needed(subject.inputs())):
            usual = subject.inputs()
            pairs = zip(subject.names, usual, strict=True)
            some = [with_layout(x, layout) if alone in ("", n) else x for n, x in pairs]
            same = [with_layout(x, torch.Tensor.contiguous) for x in some]
            expected = gradients(subject, same)
            if not subject.takes(some):
                continue
            outputs = subject.call(some)
            told = f"wrong where {alone or 'an input'} is {words}: {IN_ORDER} ({{}})"
            found = gradients(subject, some, outputs=outputs)
            compare(subject, some, found, expected, told)
            _same_outputs(subject, outputs, subject.call(same), f"of inputs {words}")


def _same_outputs(
    subject: Subject, found: Sequence[Tensor], expected: Sequence[Tensor], words: str
) -> None:
    for at, (one, two) in enumerate(zip(found, expected, strict=True)):
        scene = Scene("output", tolerance=subject.tolerance)
        told = diagnose(one.detach(), two.detach(), scene)
        if told is not None:
            raise Wrong(f"output {at}: {told}, {words}", "forward")


def check_empty(subject: Subject) -> None:
    tried = False
    for name, arguments in subject.checks.EMPTY_CASES.items():
        case = Case(name, dict(arguments))
        inputs = make_inputs(subject.checks, case, None)
        try:
            outputs = subject.call(inputs)
            found = gradients(subject, inputs, outputs=outputs)
        except Exception as error:  # noqa: BLE001 (it may refuse them)
            if subject.stage == "backward":
                subject.note(f"raises of empty inputs: {sentence(first_line(error))}")
            continue
        tried = True
        for one, at in zip(found, subject.needed(inputs), strict=True):
            if one.numel() and not one.isfinite().all():
                subject.note(f"grad_{at} is not finite of empty inputs")
    if not tried:
        raise Unasked("it takes no empty inputs")


def check_sizes(subject: Subject) -> None:
    """Check gradients for other sizes of each dim, among them 1."""
    tried = False
    for name, arguments in subject.checks.FURTHER_CASES.items():
        inputs = make_inputs(subject.checks, Case(name, dict(arguments)), None)
        if not subject.takes(inputs):
            continue
        tried = True
        call = describe(subject.names, inputs)
        try:
            _derivative(subject, inputs, f" of {call}")
        except Wrong as wrong:
            whole = all(needs_gradient(x) for x in inputs if isinstance(x, Tensor))
            if whole or not subject.asked.searched:
                raise
            subject.note(wrong.words)  # there may be fewer indices than rows
    if not tried:
        raise Unasked("it takes no other sizes")


def check_arguments(subject: Subject) -> None:
    """Check gradients for other values of branch-choosing arguments."""
    tried = False
    for name, values in subject.asked.arguments.items():
        for value in values if name in subject.names else ():
            at = subject.names.index(name)
            case = Case(name, {}, attributes=((at, value),))
            inputs = make_inputs(subject.checks, case, None)
            if isinstance(inputs[at], Tensor) or not subject.takes(inputs):
                continue
            tried = True
            _derivative(subject, inputs, f" of {name}={value!r}")
    if not tried:
        raise Unasked("no argument chooses a branch")


def check_ranks(subject: Subject) -> None:
    """Check data with more dims, of equal sizes: a gradient may be refused, not be silently wrong.

    Does not apply to indices and weights, whose meaning at another rank is unknown.
    """
    usual = subject.inputs()
    tensors = [x for x in usual if isinstance(x, Tensor)]
    alike = len({x.shape for x in tensors}) == 1
    if not alike or len(subject.needed(usual)) < len(tensors):
        raise Unasked("its tensors are not alike")
    if subject.asked.declared:
        raise Unasked("the shapes are declared")
    rank = max(x.ndim for x in tensors)
    tried = False
    for further in (1, 2):
        size = (3,) * (rank + further)
        inputs = [
            (
                _drawn(x, size if x.ndim == rank else size[: x.ndim])
                if isinstance(x, Tensor)
                else x
            )
            for x in usual
        ]
        with warnings.catch_warnings():
            warnings.filterwarnings("error", OF_SHAPES)
            if not subject.takes(inputs, backward=True):
                continue
        tried = True
        _derivative(subject, inputs, f" of {describe(subject.names, inputs)}")
    if not tried:
        raise Unasked("it takes no other ranks")


def _drawn(usual: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return values of a shape: the usual ones, repeated, each a little different."""
    flat = usual.detach().flatten()
    count = torch.Size(shape).numel()
    values = flat.repeat(count // max(flat.numel(), 1) + 1)[:count]
    if usual.is_floating_point():
        seed_generator(8)
        values = values * (1 + 0.2 * torch.rand(count)).to(values.dtype)
    return values.reshape(shape).to(usual.dtype).requires_grad_(usual.requires_grad)


def check_broadcast(subject: Subject) -> None:
    """Check broadcast inputs, with a first dim of 1 or one dim less, if no shapes are declared."""
    usual = subject.inputs()
    if not subject.checks.LOOSE or len(subject.checks.DIFFERENTIABLE) < 2:
        raise Unasked("the shapes are declared, or there is one input")
    for name in subject.needed(usual):
        at = subject.names.index(name)
        whole = usual[at].detach()
        for smaller in (whole[:1], whole[0]) if whole.ndim else ():
            value = smaller.clone().requires_grad_()
            inputs = [*usual[:at], value, *usual[at + 1 :]]
            if not subject.takes(inputs, backward=True):
                continue
            call = describe(subject.names, inputs)
            try:
                _derivative(subject, inputs)
                _contract(
                    subject, inputs, returned_gradients(subject.checks, inputs)[0] or ()
                )
            except Wrong as wrong:
                subject.note(f"not for {call}, which broadcasts: {wrong.words}")
                return


def check_values(subject: Subject) -> None:
    """Check large values, and values near the numbers in the Function's text."""
    if subject.surrogate or subject.single:
        raise Unasked("differences do not tell its gradient")
    checks = subject.checks
    question = slopes_alone if checks.REFERENCE is None else other_values
    try:
        found = question(checks, subject.inputs())
    except Exception:  # noqa: BLE001 (it may refuse them)
        raise Unasked("it refuses other values") from None
    if found is not None and not (found.legal or found.raised):
        raise Wrong(f"grad_{found.name}: {found.words}", f"grad_{found.name}")


def _check_dtype(subject: Subject, dtype: torch.dtype) -> None:
    if dtype == subject.dtype:
        raise Unasked("the other checks use it")
    inputs = [as_type(x, dtype) for x in subject.inputs()]
    exact = [as_type(x, subject.dtype) for x in inputs]
    outputs = subject.call(inputs)
    if subject.surrogate and dtype != torch.float32:
        raise Unasked("the gradient is not the derivative")
    _roughly(subject, inputs, outputs, exact, str(dtype)[6:])


def _roughly(
    subject: Subject,
    inputs: Sequence[Any],
    outputs: Any,
    exact: Sequence[Any],
    words: str,
) -> None:
    found = gradients(subject, inputs, outputs=outputs)
    expected = gradients(subject, exact)
    part = FEW_DIGITS / 10 if words == "float32" else 4 * FEW_DIGITS
    for name, one, two in zip(subject.needed(inputs), found, expected, strict=True):
        off = (one.to(two.dtype) - two).norm()
        if two.isfinite().all() and not off <= part * (two.norm() + 1):
            raise Wrong(
                f"grad_{name}: wrong in {words}: off by {off:.2g} of {two.norm():.2g}",
                f"grad_{name}",
            )


def check_float32(subject: Subject) -> None:
    _check_dtype(subject, torch.float32)


def check_bfloat16(subject: Subject) -> None:
    try:
        _check_dtype(subject, torch.bfloat16)
    except RuntimeError as error:
        raise Unasked(f"not in bfloat16: {sentence(first_line(error))}") from None


def check_autocast(subject: Subject) -> None:
    inputs = [as_type(x, torch.float32) for x in subject.inputs()]
    if subject.surrogate or not subject.takes(inputs, backward=True):
        raise Unasked("it takes no float32")
    exact = [as_type(x, subject.dtype) for x in inputs]
    try:
        with torch.autocast("cpu", torch.bfloat16):
            outputs = subject.call(inputs)
        gradients(subject, inputs, outputs=outputs)
    except Exception as error:  # noqa: BLE001 (it may refuse that)
        subject.note(
            f"not under autocast: {sentence(first_line(error))}; custom_fwd casts"
        )
        raise Unasked("it raises under autocast") from None
    with torch.autocast("cpu", torch.bfloat16):
        outputs = subject.call(inputs)
    _roughly(subject, inputs, outputs, exact, "autocast")


# --- Questions shared with the generated tests.

CYCLE = "an output stays in memory: it is kept on ctx, in a reference cycle"


def _questions(subject: Subject) -> Any:
    try:
        return questions_of(subject, subject.asked.questions)
    except ImportError as error:
        raise Unasked(f"not asked: {sentence(first_line(error))}") from None


def _asking(
    question: str, words: str, place: str = "backward", hint: str = ""
) -> Check:
    """Return a check by a question of `op_testing.py`, and its words for the answer no."""

    def check(subject: Subject) -> None:
        _answer(getattr(_questions(subject), question), Wrong(words, place, hint))

    return check


def _answer(question: Callable[[], None], wrong: Wrong) -> None:
    try:
        question()
    except AssertionError as error:
        raise wrong from error
    except BaseException as error:
        if type(error).__name__ != "Skipped":  # by pytest
            raise
        raise Unasked(str(error)) from None


def _needs_transforms(subject: Subject, mapped: bool) -> None:
    if not subject.transforms:
        raise Unasked("not supported: forward takes ctx")
    if mapped and not subject.maps:
        raise Unasked("not supported: no vmap, nor generate_vmap_rule")
    if subject.dirty:
        raise Unasked("not supported: it changes an input in place")


def _mapping(question: str, words: str) -> Check:
    """Return a check by a question about torch.func.vmap, for a Function that supports it."""

    def check(subject: Subject) -> None:
        _needs_transforms(subject, mapped=True)
        _asking(question, words)(subject)

    return check


def check_func_grad(subject: Subject) -> None:
    """Check torch.func.grad, which calls setup_context, against autograd."""
    _needs_transforms(subject, mapped=False)
    asked = _questions(subject)
    inputs = subject.inputs()
    expected = torch.autograd.grad(
        asked.loss(*inputs), [x for x in inputs if needs_gradient(x)]
    )
    given = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    argnums = asked.argnums(given)
    found = torch.func.grad(asked.loss, argnums)(*given)
    compare(subject, inputs, found, expected, "{} in torch.func.grad")


def check_checkpoint(subject: Subject) -> None:
    """Check gradients under checkpoint; only note an error, as `ctx.saved_tensors` may be read once."""
    try:
        _asking("test_checkpoint", "another gradient under checkpoint")(subject)
    except Wrong as wrong:
        error = wrong.__cause__ and wrong.__cause__.__context__
        if not isinstance(error, RuntimeError):
            raise
        subject.note(f"not under checkpoint: {sentence(first_line(error))}")
        raise Unasked("it raises under checkpoint") from None


def check_compile(subject: Subject) -> None:
    if not subject.asked.compiled:
        raise Unasked("say --compile")
    _asking("test_compile", "torch.compile gives another result")(subject)


CHECKS: dict[str, Check] = {
    # These two come first: if inputs are changed, the other checks run on copies of them.
    "inputs stay as they are": check_inputs_stay,
    "grad_output stays as it is": check_grad_output_stays,
    "outputs": check_outputs,
    "gradient": check_gradient,
    "gradient of a scaled grad_output": check_scaled,
    "gradient of a strided grad_output": check_strided,
    "gradient of an expanded grad_output": check_expanded,
    "gradient of one output alone": check_one_output,
    "gradient of each input alone": check_each_alone,
    "shapes that backward returns": check_contract,
    "two calls before one backward": check_two_calls,
    "backward twice, with retain_graph": check_backward_twice,
    "gradient with create_graph": _asking(
        "test_recorded_gradients", "another one with create_graph=True"
    ),
    "outputs are freed": _asking(
        "test_output_is_freed_without_gc", CYCLE, "saves", "ctx.save_for_backward(...)"
    ),
    "input changed after the forward": check_changed_input,
    "second derivative": check_second,
    "strided inputs": check_strided_inputs,
    "empty inputs": check_empty,
    "other sizes": check_sizes,
    "other ranks": check_ranks,
    "other arguments": check_arguments,
    "inputs that broadcast": check_broadcast,
    "other values": check_values,
    "float32": check_float32,
    "bfloat16": check_bfloat16,
    "autocast": check_autocast,
    "checkpoint": check_checkpoint,
    "torch.func.grad": check_func_grad,
    "torch.func.jacrev": _mapping("test_jacrev", "another gradient than autograd's"),
    "vmap of torch.func.grad": _mapping(
        "test_vmap_of_grad", "another gradient than of each sample"
    ),
    "torch.compile": check_compile,
}
