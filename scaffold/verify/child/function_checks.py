"""Checks of one hand-written Function: each stands alone, and names the fault and its line.

`scaffold verify FILE` reports them; `judging.py` runs them in the order of CHECKS and skips those that a failure makes redundant.
In: a `Subject`: the Function with inputs that it accepts. Out: nothing for a right Function; else Wrong, or Unasked if a check does not
apply, is raised.
Words: a *question* is a check shared with the generated test files (`function_questions.py`, `op_testing.py`); `Asking` is the subject as
such a question sees it. *Differences* are finite differences, which stand in for a missing reference.
Invariant: a call that the forward refuses says nothing about the Function. A call with a special property (an expanded grad_output, a
strided input) is compared with one of the same numbers without it, so a gradient that is no derivative can be checked too.
"""

import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import unwrap
from math import isclose
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import Function

from scaffold.spec.names import LABELS
from scaffold.verify.child import function_questions as asked_of
from scaffold.verify.child.cases import Case, describe, make_inputs, needs_gradient
from scaffold.verify.child.derivatives import as_tuple, pushed, returned_gradients
from scaffold.verify.child.diagnosis import Scene, diagnose
from scaffold.verify.child.fast_torch import seeded_grad
from scaffold.verify.child.function_questions import (
    Asked,
    contiguous,
    is_lost,
    needing,
)
from scaffold.verify.child.further_questions import (
    STEP,
    is_symmetric,
    other_values,
    values_by_differences,
)
from scaffold.verify.child.hand_written import PERMUTED, SEEDS, Subject, Weights
from scaffold.verify.child.refusals import first_line, raised
from scaffold.verify.child.shared_questions import questions_of

BASE = Case("base", {})
Check = Callable[[Subject], None]


class Wrong(Exception):
    """The finding of a check, and its place: a line, a method of the Function, or an input's gradient."""

    def __init__(
        self, words: str, place: str | int = "backward", hint: str = ""
    ) -> None:
        """Take the fault in words, its place (17, "forward", "grad_x"), and how to mend it."""
        super().__init__(words)
        self.words, self.place, self.hint = words, place, hint


class Unasked(Exception):
    """The reason why a check does not apply to this Function."""


LONG = 180  # letters of an error message


def sentence(text: str) -> str:
    """Return the first sentence of a message, cut after LONG letters."""
    # Only after a letter or bracket: the dot of `1. ` ends no sentence.
    first = re.split(r"(?<=[a-z)])[.;] ", text)[0].removesuffix(".")
    return first if len(first) <= LONG else f"{first[:LONG]}..."


def raised_briefly(error: Exception) -> str:
    """Describe an error in one sentence."""
    return sentence(raised(error))


def frame_of(error: BaseException, source: str) -> traceback.FrameSummary | None:
    """Return the last line of a file that an error passed; None if it was raised elsewhere."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.realpath(frame.filename) == source]
    return own[-1] if own else None


def line_of(error: BaseException, source: str) -> int:
    """Return the number of the line of a file at which an error was raised; 0 if it was raised elsewhere."""
    frame = frame_of(error, source)
    return frame.lineno or 0 if frame else 0


def gradients(
    subject: Subject,
    inputs: Sequence[Any],
    weights: Weights = contiguous,
    ends: Sequence[Tensor] | None = None,
    **options: Any,
) -> tuple[Tensor, ...]:
    """Return the gradients of the inputs requiring grad; `weights` draws the grad_output of each output.

    `ends` are outputs of a call made before, those with a gradient; by default the Function is called. `options`, as `retain_graph`, go to
    `torch.autograd.grad`.
    """
    ends = subject.ends(subject.call(inputs)) if ends is None else ends
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    given = [weights(end.detach()) for end in ends]
    return tuple(seeded_grad(ends, needed, given, materialize_grads=True, **options))


def compare(
    subject: Subject,
    inputs: Sequence[Any],
    found: Sequence[Tensor],
    expected: Sequence[Tensor],
    words: str = "{}",
    hint: str = "",
    exact: bool = True,
) -> None:
    """Raise Wrong at the first gradient in `found` unlike the expected one; `{}` in `words` is the difference.

    `exact`: both come from the same computation; else the tolerance is that of finite differences.
    """
    names = subject.needed(inputs)
    for name, one, two in zip(names, found, expected, strict=True):
        off = diagnose(one, two, subject.scene(name, inputs, exact))
        if off is not None:
            raise Wrong(f"grad_{name}: {words.format(off)}", f"grad_{name}", hint)


# --- Checks of one call.


def check_outputs(subject: Subject) -> None:
    """Compare the outputs with the reference's in each case; raise Wrong at the first difference."""
    if subject.checks.REFERENCE is None:
        raise Unasked("no --reference")
    for case in subject.cases:
        inputs = make_inputs(subject.checks, case, None)
        found = subject.call(inputs)
        wanted = as_tuple(subject.checks.REFERENCE(*inputs))
        if len(found) != len(wanted):
            words = f"{len(found)} outputs, the reference has {len(wanted)}"
            raise Wrong(words, "forward")
        for at, (one, two) in enumerate(zip(found, wanted, strict=True)):
            scene = Scene("output", tolerance=subject.tolerance)
            difference = diagnose(one.detach(), two.detach(), scene)
            if difference is not None:
                which = f"output {at}: " * (len(found) > 1)
                raise Wrong(f"{which}{difference}{_in_case(case)}", "forward")


def _in_case(case: Case) -> str:
    return "" if case.name == "base" else f", in the case '{case.name}'"


def check_gradient(subject: Subject) -> None:
    """Check the gradients; if they fail, once more with labels of 0 and 1 alone, which a loss may assume.

    If they are right then, `subject.binary` keeps the names of the labels for the other checks, and a note says so.
    """
    try:
        _derivatives(subject)
    except Wrong:
        # LABELS matches names such as `target`: inputs that are given, not learned.
        others = {*subject.names} - {*subject.checks.DIFFERENTIABLE}
        subject.binary = tuple(filter(LABELS.fullmatch, sorted(others)))
        with suppress(Wrong):
            if subject.binary:
                _derivatives(subject)
                subject.note(f"the gradient assumes 0 or 1 in {subject.binary[0]}")
                return
        subject.binary = ()
        raise


def _derivatives(subject: Subject) -> None:
    """Compare the gradients of each case with the derivative; then check each tensor without a gradient: it may be forgotten (`check_none`)."""
    for case in subject.cases:
        inputs = make_inputs(subject.checks, case, None)
        if subject.needed(inputs):
            _derivative(subject, inputs, _in_case(case))
    for name in _without_gradient(subject):
        check_none(subject, name)


def _without_gradient(subject: Subject) -> list[str]:
    """Return the floating-point inputs for which backward returns None, but for inputs declared so by the user."""
    differentiable = subject.checks.DIFFERENTIABLE
    pairs = zip(subject.names, subject.inputs(), strict=True)
    return [
        name
        for name, x in pairs
        if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
        if name not in differentiable and name not in subject.constants
    ]


OTHER_NEED = "does it read needs_input_grad of the right input?"


def check_none(subject: Subject, name: str) -> None:
    """Check that None as the gradient of the input `name` is meant; raise Wrong, or add a note, if it may be forgotten.

    A fault if the reference's gradient is not 0, or if backward returns one once this input alone requires grad; a note if only finite
    differences are not 0.
    """
    inputs = make_inputs(subject.checks, BASE, None, (name,))
    returned, error = returned_gradients(subject.checks, inputs)
    at = subject.names.index(name)
    # Other checks report that.
    if error or not returned or len(returned) <= at:
        return
    if returned[at] is not None:
        words = f"grad_{name}: None, unless {name} alone requires grad"
        raise Wrong(words, f"grad_{name}", OTHER_NEED)
    try:
        (expected,) = subject.expected(inputs, contiguous)  # of the input `name` alone
    except Exception:  # noqa: BLE001 (it may refuse the numbers nearby)
        return
    least = subject.scene(name, inputs, exact=False).tolerance["atol"]  # below it: 0
    if not bool((expected.nan_to_num().abs() > least).any()):
        return
    if subject.checks.REFERENCE is not None:
        words = f"grad_{name}: None, where the reference's is not 0"
        raise Wrong(words, f"grad_{name}")
    subject.note(
        f"{name} gets no gradient (None), though the output changes with it: if that is not meant, return its gradient"
    )


def _derivative(subject: Subject, inputs: Sequence[Any], where: str = "") -> None:
    """Compare gradients with the reference's, or with differences; raise Wrong if they differ. `where` ends its words: " with dim=0"."""
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
    """Raise Wrong if gradients differ from the expected ones, where these are finite.

    Two notes instead: the gradient may be a surrogate; or it is one for a symmetric input, of which differences move each element alone:
    both gradients are averaged with their transposes, and compared again.
    """
    pairs = zip(found, expected, strict=True)
    # Where differences have no number, our own gradient stands in, which agrees with itself.
    known = [two.where(two.isfinite(), one.to(two.dtype)) for one, two in pairs]
    try:
        compare(subject, inputs, found, known, words, hint, exact=False)
    except Wrong as wrong:
        if subject.is_surrogate(expected):
            return
        with suppress(Wrong):
            averaged = [_symmetric(one) for one in known]
            # Differences fill one triangle if the forward reads it alone; ours may fill both for that.
            mine = [
                _symmetric(x) if _fills_both(x) and not _fills_both(y) else x
                for x, y in zip(found, known, strict=True)
            ]
            compare(subject, inputs, mine, averaged, exact=False)
            subject.symmetric = True
            subject.note("the gradient assumes a symmetric input")
            return
        raise wrong from None


def _fills_both(gradient: Tensor) -> bool:
    """Return whether a gradient has numbers in both triangles, above the diagonal and below it."""
    return gradient.ndim > 1 and bool(gradient.triu(1).any() & gradient.tril(-1).any())


def _symmetric(gradient: Tensor) -> Tensor:
    """Return the gradient of a symmetric matrix: the mean of it and its transpose."""
    square = gradient.ndim > 1 and gradient.shape[-1] == gradient.shape[-2]
    return (gradient + gradient.mT) / 2 if square else gradient


def check_each_alone(subject: Subject) -> None:
    """Compare the gradient of each input, while it alone requires grad, with its gradient while all do.

    They differ if backward reads the wrong place of needs_input_grad. Raise Wrong at the first difference.
    """
    if len(subject.checks.DIFFERENTIABLE) < 2:
        raise Unasked("only one input has a gradient")
    usual = subject.inputs()  # all that can require grad do
    every = dict(zip(subject.needed(usual), gradients(subject, usual), strict=True))
    for name in subject.needed(usual):
        inputs = make_inputs(subject.checks, BASE, None, (name,))
        returned, error = returned_gradients(subject.checks, inputs)
        if error is not None:
            raise error
        at = subject.names.index(name)
        if returned is not None and len(returned) > at and returned[at] is None:
            words = f"grad_{name}: None, where {name} alone requires grad"
            raise Wrong(words, f"grad_{name}", OTHER_NEED)
        found = gradients(subject, inputs)
        words = f"{{}}, where {name} alone requires grad"  # {{}}: the difference
        compare(subject, inputs, found, [every[name]], words)


def check_returned_shapes(subject: Subject) -> None:
    """Check that backward returns each gradient in its input's shape: autograd would sum a larger one silently.

    Raise Wrong if one has not, or the error of backward; note another dtype, for inputs in float32 too, if the Function takes them.
    """
    returned, error = returned_gradients(subject.checks, subject.inputs())
    if returned is None or error is not None:
        raise error or Wrong("backward is never called, though an input requires grad")
    _ask_shapes(subject, asked_of.shapes_that_backward_returns)


def _ask_shapes(subject: Subject, question: Callable[[Asked], None]) -> None:
    """Ask a question about gradients' shapes; raise Wrong if one has another shape than its input: `grad_bias[3, 4]` for `bias[4]`.

    If the inputs' shapes were found by trying, it is only a note: they may broadcast where the author never meant them to.
    """
    try:
        question(Asking(subject))
    except Wrong as wrong:
        if not subject.asked.searched:
            raise
        subject.note(wrong.words)


UNMARKED = "add it, or mark the output: ctx.mark_non_differentiable(...)"


def check_one_output(subject: Subject) -> None:
    """Check gradients while each output is used alone, so that backward gets None or zeros for the others; raise Wrong if one is not right."""
    inputs = subject.inputs()
    count = len(subject.ends(subject.call(inputs)))
    if count < 2:
        raise Unasked("only one output has a gradient")
    for at in range(count):
        outputs = subject.ends(subject.call(inputs))
        found = gradients(subject, inputs, contiguous, [outputs[at]])
        expected = subject.expected(inputs, contiguous, alone=at)
        # {{}} is left for the difference found.
        words = f"{{}}, if only output {subject.positions[at]} is used"
        _compare_roughly(subject, inputs, found, expected, words, UNMARKED)


def check_forward_mode(subject: Subject) -> None:
    """Check jvp against backward: for tangents v = jvp(u) and gradients g = backward(w), the sums of w * v and of g * u are equal."""
    if subject.function.jvp is Function.jvp:
        raise Unasked("there is no jvp")
    inputs = [x.detach() if isinstance(x, Tensor) else x for x in subject.inputs()]
    named = dict(zip(subject.names, subject.inputs(), strict=True))
    known = subject.checks.DIFFERENTIABLE
    tangents = [contiguous(x) if n in known else None for n, x in named.items()]
    found = pushed(subject.checks.OPERATOR, inputs, tangents)
    # `contiguous` draws the same numbers each time: these weights are those that `_weighted` uses.
    usual = gradients(subject, subject.inputs())
    pairs = zip(needing(subject.names, subject.inputs()), usual, strict=True)
    of_inputs = _weighted(x for name, x in pairs if name in known)
    of_ends = _weighted(found[at] for at in subject.positions)
    if not isclose(of_ends, of_inputs, rel_tol=1e-4, abs_tol=1e-6):
        line = unwrap(subject.function.jvp).__code__.co_firstlineno
        raise Wrong("jvp differs from what backward says of the same tangents", line)


def _weighted(several: Iterable[Tensor | None]) -> float:
    """Return the sum of all elements, each times a random number of `contiguous`; of complex ones the real part, as in a gradient."""
    given = [x.detach() for x in several if x is not None]
    return sum(float((x.conj() * contiguous(x)).sum().real) for x in given)


# --- Checks of other inputs.


def check_arguments(subject: Subject) -> None:
    """Check gradients for other values of the arguments choosing a branch, in each case.

    `if reduction == "sum"` in the Function's text tells to try "sum": such arguments and their values are `asked.arguments`.
    """
    tried = False
    tensors = [at for at, x in enumerate(subject.inputs()) if isinstance(x, Tensor)]
    for name, values in subject.asked.arguments.items():
        for value in values if name in subject.names else ():
            at = subject.names.index(name)
            for given in subject.cases:
                case = given._replace(attributes=((at, value),))
                inputs = make_inputs(subject.checks, case, None)
                # A tensor is no choice of a branch; and the forward may refuse a value.
                if at in tensors or not subject.takes(inputs):
                    continue
                tried = True
                _derivative(subject, inputs, f" with {name}={value!r}")
    if not tried:
        raise Unasked("no argument chooses a branch")


def check_broadcast(subject: Subject) -> None:
    """Check gradients while one input broadcasts: in place of `x[3, 4]` it is `x[1, 4]`, then `x[4]`.

    A backward that forgets to sum over the broadcast dim gets a note, and is not Wrong: no shapes are declared, so its inputs may be meant to
    have equal ones.
    """
    usual = subject.inputs()
    if not subject.checks.LOOSE or len(subject.checks.DIFFERENTIABLE) < 2:
        raise Unasked("the shapes are declared, or there is one input")
    for name in subject.needed(usual):
        at = subject.names.index(name)
        full = usual[at].detach()
        # A dim of size 1, then one dim less; a tensor without dims has neither.
        for smaller in (full[:1], full[0]) if full.ndim else ():
            inputs = [*usual]
            inputs[at] = smaller.clone().requires_grad_()
            if not subject.takes(inputs, backward=True):
                continue
            call = describe(subject.names, inputs)
            try:
                _derivative(subject, inputs)
                returned = Asking(subject).returned(inputs)
                shapes = asked_of.check_shapes
                _ask_shapes(subject, partial(shapes, inputs=inputs, returned=returned))
            except Wrong as wrong:
                subject.note(f"not for {call}, which broadcasts: {wrong.words}")
                return


def check_values(subject: Subject) -> None:
    """Check gradients for zeros, ties, large values, and values near the numbers in the Function's text; raise Wrong at a fault.

    Values at which a formula divides by 0, or a branch begins, are the ones its author forgets.
    """
    if subject.surrogate or subject.single:
        raise Unasked("finite differences cannot check its gradient")
    checks = subject.checks
    for words, inputs, exact in _degenerate(subject):
        if subject.takes(inputs):
            returned: Sequence[Tensor] = gradients(subject, inputs)
            if not exact and any(bool(x.isnan().any()) for x in returned):
                reason, returned = _undefined(subject, inputs, returned)
                if reason:
                    subject.note(words.format(f"no gradient, as {reason}"))
                    continue
            # Unless finite differences exist (`exact`), only a NaN is a fault.
            # `numbers` equals what was returned, but for NaNs: these alone differ.
            numbers = [torch.where(x.isnan(), 0, x) for x in returned]
            expected = subject.expected(inputs, contiguous) if exact else numbers
            compare(subject, inputs, returned, expected, words, exact=False)
    question = values_by_differences if checks.REFERENCE is None else other_values
    try:
        found = question(checks, subject.inputs())
    except Exception:  # noqa: BLE001 (it may refuse them)
        raise Unasked("it refuses other values") from None
    # A gradient that may be right, as at a kink (`legal`), and a refused value are no fault.
    if found is not None and not (found.legal or found.raised):
        words = f"grad_{found.name}: {found.words}"
        if not subject.clamps_backward:
            raise Wrong(words, f"grad_{found.name}")
        subject.note(f"{words}, as backward clamps values, and forward does not")


def _undefined(
    subject: Subject, inputs: Sequence[Any], returned: Sequence[Tensor]
) -> tuple[str, Sequence[Tensor]]:
    """Return the reason why gradients are no numbers, and the gradients, with 0 for a NaN of the reference.

    The reason is "" if they should be numbers, as the reference has some in their place.
    """
    if subject.checks.REFERENCE is not None:
        pairs = zip(returned, subject.expected(inputs, contiguous), strict=True)
        left = [torch.where(known.isnan(), 0, x) for x, known in pairs]
        lost = any(bool(x.isnan().any()) for x in left)
        return "" if lost else "the reference has none", left
    if is_lost(subject.function, inputs):
        return "autograd of the forward has none", returned
    for step in (STEP, -STEP):
        # Towards one side, and towards the other: the weights are random, but the same.
        moved = [
            x.detach() + step * contiguous(x) if needs_gradient(x) else x
            for x in inputs
        ]
        if not subject.takes(moved):
            return "the forward is not defined on both sides", returned
    return "", returned


def is_permutation(value: Tensor) -> bool:
    """Return whether a tensor has each whole number from 0 on once."""
    order = torch.arange(value.numel())
    return value.dtype == torch.long and torch.equal(value.flatten().sort()[0], order)


def _degenerate(subject: Subject) -> Iterator[tuple[str, list[Any], bool]]:
    """Yield inputs with a row of zeros, equal to another input's, or left out by an argument such as `ignore_index`.

    Each is (words of a failure, with {} for the difference; the inputs; whether finite differences exist there). They do not where the
    changed input has a gradient itself: zeros and ties may be kinks.
    """
    pairs = [*zip(subject.names, subject.inputs(), strict=True)]
    for at, (name, value) in enumerate(pairs):
        if not (isinstance(value, Tensor) and value.ndim and len(value) > 1):
            continue  # a single row is all there is
        # A sparse one has no rows to replace, and a symmetric one is none with another row.
        if value.layout != torch.strided or value.ndim == 2 and is_symmetric(value):
            continue
        # By words: values whose first row replaces that of the input. 0 twice is no permutation.
        is_order = PERMUTED.fullmatch(name) or subject.samples and is_permutation(value)
        rows = {} if is_order else {"0": torch.zeros_like(value)}
        for other, x in pairs:
            alike = needs_gradient(x) and x.shape == value.shape
            if alike and x.dtype == value.dtype and x is not value:
                rows[f"that of {other}"] = x.detach()
            # By type, as True is an int: a number such as `ignore_index=-100` is meant.
            elif type(x) is int and re.search("ignore|pad", other):
                rows[other] = torch.full_like(value, x)
        # A float input without a gradient, a target say, is left as it is.
        asked = value.requires_grad or not value.is_floating_point()
        for words, row in rows.items() if asked else ():
            # Indices are 0 in all places, not in a row alone.
            everywhere = words == "0" and value.dtype == torch.long
            rest = row[1:] if everywhere else value.detach()[1:]
            changed = torch.cat([row[:1].to(value.dtype), rest])
            inputs = [x for _, x in pairs]
            inputs[at] = changed.requires_grad_(value.requires_grad)
            message = f"{{}}, where {'a row of ' * (not everywhere)}{name} is {words}"
            yield message, inputs, not value.requires_grad


# --- Questions shared with the tests of ops, and of stubs.


class Asking:
    """A subject, as the shared questions see it (their protocol `Asked`): what they tell as a fault is raised as Wrong."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.names, self.dirty = subject.names, subject.dirty
        self.dtype = subject.dtype
        self.inputs, self.takes = subject.inputs, subject.takes

    @property
    def single(self) -> bool:
        return self.subject.single

    def __getattr__(self, name: str) -> Any:
        """Return an attribute this class lacks from the class of all generated tests: a method asking a question, or a helper of it.

        Raise Unasked without pytest, which that class imports.
        """
        try:
            return getattr(
                questions_of(self.subject, self.subject.asked.questions), name
            )
        except ImportError as error:
            raise Unasked(f"not asked: {sentence(first_line(error))}") from None

    def run(self, *inputs: Any) -> list[Tensor]:
        return self.subject.ends(self.subject.call(inputs))

    def gradients(
        self,
        inputs: Sequence[Any],
        weights: Weights,
        outputs: Any = None,
        **options: Any,
    ) -> tuple[Tensor, ...]:
        """Return the gradients of a call, or of its outputs if these are given."""
        return gradients(self.subject, inputs, weights, outputs, **options)

    def hold(
        self,
        inputs: Sequence[Any],
        found: Sequence[Tensor],
        expected: Sequence[Tensor],
        words: str,
        hint: str = "",
    ) -> None:
        """Raise Wrong if gradients differ; `{}` in the words is the difference."""
        compare(self.subject, inputs, found, expected, words, hint)

    def returned(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return returned_gradients(self.subject.checks, inputs)[0] or ()

    def derivative(self, inputs: Sequence[Any], words: str) -> None:
        """Compare gradients with the derivative; raise Wrong, or add a note if the inputs may be none that the Function is for.

        They may be if it reduces a dim by its number, which means another dim at another rank; or if shapes were searched for, and a
        tensor has no gradient: as indices it may not fit other sizes. `words` tell how the inputs were changed.
        """
        call = describe(self.names, inputs)
        try:
            _derivative(self.subject, inputs, f" for {call}")
        except Wrong as wrong:
            every = all(needs_gradient(x) for x in inputs if isinstance(x, Tensor))
            of_rank = words == "more dims" and self.subject.reduces_last(inputs)
            may_be_index = self.subject.asked.searched and not every
            if not (of_rank or may_be_index):
                raise
            self.note(wrong.words)

    def resized(self, empty: bool) -> Iterator[Sequence[Any]]:
        """Yield inputs of other sizes, or empty ones; other sizes only if rounding errors do not spoil the outputs (`is_stable`)."""
        checks = self.subject.checks
        cases = checks.EMPTY_CASES if empty else checks.FURTHER_CASES
        if checks.LOOSE and not empty:
            # Of undeclared shapes: the empty ones, with 1 in place of the first dim's 0.
            shapes = [x["shape"] for x in checks.EMPTY_CASES.values() if "shape" in x]
            cases = cases | {str(x): {"shape": (1, *x[1:])} for x in shapes}
        # Other values, too: the sorting order of some is its own inverse, which hides a wrong one.
        if larger := cases.get("larger-sizes"):
            cases = cases | {"other-values": larger | {"seed": SEEDS[0]}}
        for name, arguments in cases.items():
            inputs = make_inputs(checks, Case(name, dict(arguments)), None)
            if empty or self.subject.is_stable(inputs):
                yield inputs

    def wrong(self, words: str, place: str = "backward", hint: str = "") -> NoReturn:
        raise Wrong(words, place, hint)

    def raised(self, error: Exception, words: str) -> NoReturn:
        line = line_of(error, self.subject.asked.source)
        raise Wrong(words.format(raised_briefly(error)), line or "backward") from error

    def skip(
        self, reason: str, error: BaseException | None = None, hint: str = ""
    ) -> NoReturn:
        """Raise Unasked for a reason; note the error that led to it."""
        if error is not None:
            message = "; ".join(filter(None, (sentence(first_line(error)), hint)))
            self.subject.note(f"{reason.removeprefix('it ')}: {message}")
        raise Unasked(reason)

    def note(self, words: str, error: BaseException | None = None) -> None:
        cause = f": {sentence(first_line(error))}" if error is not None else ""
        self.subject.note(f"{words}{cause}")

    def answer(
        self,
        question: Callable[[], None],
        words: str,
        place: str = "backward",
        hint: str = "",
    ) -> None:
        """Ask a question the tests of every op ask, a test method; raise Wrong if its assertion fails, Unasked if it skips itself.

        `words`, `place` and `hint` are those of the Wrong.
        """
        try:
            question()
        except AssertionError as error:
            raise Wrong(words, place, hint) from error
        # pytest's `Skipped` is no Exception; it is known by its name, as pytest may not be installed.
        except BaseException as error:
            if type(error).__name__ != "Skipped":
                raise
            raise Unasked(str(error)) from None


def _asks(
    question: Callable[[Asked], None], unasked: Callable[[Subject], str] | None = None
) -> Check:
    """Return the check that asks a question; it raises Unasked if `unasked(subject)` gives a reason not to, "" being none."""

    def check(subject: Subject) -> None:
        if reason := unasked and unasked(subject):
            raise Unasked(reason)
        question(Asking(subject))

    return check


# Reasons not to ask a question, in words; "" if it is to be asked.


def _hands_on(subject: Subject) -> str:
    words = "it returns its input: the gradient may be clipped"
    return words if subject.hands_on else ""


def _is_surrogate(subject: Subject) -> str:
    return "the gradient is not the derivative" if subject.surrogate else ""


def _is_declared(subject: Subject) -> str:
    return "the shapes are declared" if subject.asked.declared else ""


def _is_untransformed(subject: Subject) -> str:
    if not subject.transforms:
        return "not supported: forward takes ctx"
    return "not supported: it changes an input in place" if subject.dirty else ""


def _is_unmapped(subject: Subject) -> str:
    words = "not supported: no vmap, nor generate_vmap_rule"
    return _is_untransformed(subject) or ("" if subject.maps else words)


def _is_eager(subject: Subject) -> str:
    return "" if subject.asked.compiled else "say --compile"


CHECKS: dict[str, Check] = {
    # These two come first: if inputs are changed, the other checks run on copies of them.
    "inputs stay as they are": _asks(asked_of.inputs_stay),
    "grad_output stays as it is": _asks(asked_of.grad_output_stays),
    "outputs": check_outputs,
    "gradient": check_gradient,
    "gradient of a scaled grad_output": _asks(asked_of.scaled_grad_output, _hands_on),
    "gradient of a strided grad_output": _asks(asked_of.strided_grad_output),
    "gradient of an expanded grad_output": _asks(asked_of.expanded_grad_output),
    "gradient of one output alone": check_one_output,
    "gradient of each input alone": check_each_alone,
    "shapes that backward returns": check_returned_shapes,
    "two calls before one backward": _asks(asked_of.two_calls_before_one_backward),
    "backward twice, with retain_graph": _asks(asked_of.backward_twice),
    "gradient with create_graph": _asks(asked_of.gradient_with_create_graph),
    "forward mode": check_forward_mode,
    "outputs are freed": _asks(asked_of.outputs_are_freed),
    "input changed after the forward": _asks(asked_of.input_changed_after_forward),
    "second derivative": _asks(asked_of.second_derivative),
    "strided inputs": _asks(asked_of.strided_inputs),
    "empty inputs": _asks(asked_of.empty_inputs),
    "other sizes": _asks(asked_of.other_sizes),
    "other ranks": _asks(asked_of.other_ranks, _is_declared),
    "other arguments": check_arguments,
    "inputs that broadcast": check_broadcast,
    "other values": check_values,
    "float32": _asks(asked_of.in_float32),
    "bfloat16": _asks(asked_of.in_bfloat16, _is_surrogate),
    "autocast": _asks(asked_of.under_autocast, _is_surrogate),
    "checkpoint": _asks(asked_of.checkpointed),
    "torch.func.grad": _asks(asked_of.func_grad, _is_untransformed),
    "torch.func.jacrev": _asks(asked_of.func_jacrev, _is_unmapped),
    "vmap of torch.func.grad": _asks(asked_of.vmap_of_grad, _is_unmapped),
    "torch.compile": _asks(asked_of.compiled, _is_eager),
}
