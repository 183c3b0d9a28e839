"""The check of an op: outputs against its forward, gradients against autograd.

This is the proof of a generated op (`judging.judged` calls `check`), and the comparison of an adopted op with the Function it replaces
(`compare`). In: the module of checks (`checks`), which imports the op. Out: a `Verdict` as a dict for JSON: the first failure in words,
or none.
Invariant: a failure is a case that the forward accepts, and for which the op or its backward is wrong.

The module of checks has OPERATOR, the op; FORWARD, the same in plain PyTorch; REFERENCE, plain PyTorch with the gradients to expect, or
None if autograd has none (finite differences replace it); OWN_FORWARD and OWN_GRADIENT, the user's text as written; TESTS, the class of
the generated tests; OUTPUTS, (name, dims, kind) of each declared output; CONTIGUOUS, true if the forward may refuse other layouts. Its
text is `templates/verification.py.jinja`.

Words: a *case* is a call to try (`cases.py`); `case.further`: it is none of the generated test, so a failure to run it may be no fault;
a *refusal* is a case that the forward itself does not accept; `needs` are the names of inputs requiring grad; `Fault` is what a check finds
wrong; a *surrogate* is a gradient that is meant to differ from the derivative.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from inspect import signature
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.overrides import get_overridable_functions

from scaffold.verify.child.cases import (
    Case,
    Needs,
    describe,
    layouts,
    list_cases,
    make_inputs,
    needs_gradient,
    subsets,
    value_names,
)
from scaffold.verify.child.declared_shapes import undeclared_input, undeclared_output
from scaffold.verify.child.derivatives import (
    as_tuple,
    compared_tangents,
    expected_gradients,
    gradients_of,
    own_gradients,
    own_values,
    returned_gradients,
)
from scaffold.verify.child.diagnosis import Scene, diagnose, notes_on, show
from scaffold.verify.child.further_questions import IN_ORDER, asked_further, is_outside
from scaffold.verify.child.modules import one_way
from scaffold.verify.child.refusals import (
    BROKEN,
    INFINITE,
    SINGULAR,
    Layout,
    Refusal,
    is_bound,
    may_be_of_shapes,
    mend,
    raised,
    raised_at,
    refusal,
)
from scaffold.verify.child.shape_search import Shapes, shapes_taken
from scaffold.verify.child.size_relations import (
    EqualParts,
    size_conditions,
    size_relation,
)
from scaffold.verify.child.unsuited_tests import TESTS, unfit


def no_operator(names: Sequence[str]) -> dict[str, Any] | None:
    """Return a failure for the first of these dotted names that is no operator of the installed PyTorch; None if all are.

    `names` are calls in the formula that our list of PyTorch functions lacks, "torch.new_op": they may be newer than the list, or a
    helper such as "torch.typename". A missing name is passed over: the forward raises an error of its own.
    """
    for name in names:
        space, _, last = name.rpartition(".")
        try:
            # Of `torch.special.new_op`: from torch, the first word, on to `special`; then its last word.
            module = reduce(getattr, space.split(".")[1:], torch)
            value = getattr(module, last)
        except AttributeError:
            continue
        if not _is_operator(value, last):
            words = f"'{name}' is not an operator of PyTorch {torch.__version__}"
            return {"subject": "forward", "words": words}
    return None


def _is_operator(value: Any, name: str) -> bool:
    """Return whether PyTorch lists the object as an operator, or as overridable by `__torch_function__`."""
    if hasattr(torch._C._VariableFunctions, name):
        return True
    known = get_overridable_functions().values()
    # By identity: the objects there may compare as anything.
    return any(value is one for several in known for one in several)


SAMPLES, OUTPUTS = "samples", "outputs"  # subjects of a failure other than the op
NUMERIC = {"atol": 1e-4, "rtol": 1e-3}  # as gradcheck compares


class Fault(NamedTuple):
    """A failure, without the description of its case."""

    subject: str
    words: str
    expected: str = ""
    actual: str = ""
    raised: bool = False  # the op raised: there is no gradient to judge
    expression: str = ""  # the raising part of the formula
    statement: str = ""  # ... and its line
    hint: str = ""


Judge = Callable[[Sequence[Any]], Fault | None]


@dataclass
class Run:
    """The progress of a check."""

    cases: int = 0
    proven: bool = False  # a case ran and had gradient elements to compare
    failure: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    refusals: list[tuple[str, Refusal]] = field(default_factory=list)
    shapes: Shapes | None = None  # accepted by the forward instead of the tests'


def check(checks: Any) -> dict[str, Any]:
    """Run every case up to the first failure, then ask the further questions; return the fields of a verdict.

    A generated test that cannot pass, with inputs on which even a right op fails, is a failure, too (`unfit`): a user could not tell it from
    a wrong op. But if it fails as PyTorch's own backward raises, that is a note.
    """
    run = Run(failure=no_operator(checks.NEWER))
    for case in list_cases(checks):
        for words, layout in layouts(checks):
            if run.failure is None:
                check_case(checks, case, layout, words, run)
    _conclude(checks, run)
    if run.failure is None and not run.refusals:
        ask_further(checks, run)
    if run.failure is None and not run.refusals:
        failure = unfit(checks)
        # A bug of PyTorch's own is no failure of the op.
        if failure is not None and failure["words"].startswith(OWN):
            run.notes.append(f"{failure['words']}; {failure['hint']}")
        else:
            run.failure = failure
    if run.failure is None:  # else the run stopped before it came to every branch
        run.notes += islice(_unreached(checks), 1)
        if checks.SURROGATE:
            run.notes += notes_on(checks)
    shapes = run.shapes._asdict() if run.shapes else {}
    return {
        "cases": run.cases,
        "failure": run.failure,
        "notes": run.notes,
        "skipped": run.skipped,
        "by_differences": checks.REFERENCE is None and not checks.SURROGATE,
        **shapes,
    }


WATCHED = ("reference", "surrogate")  # names of the forward in the checks
GIVE = "give inputs that reach it: --samples '@file.py:function'"


def _unreached(checks: Any) -> Iterator[str]:
    """Yield a note for each condition of the forward with one value in all calls: its other branch never ran."""
    for test, outcome in one_way(checks).items():
        always = "always" if outcome else "never"
        yield f"'{test}' was {always} true in the calls tried: the other branch is not proven; {GIVE}"


def compare(checks: Any) -> dict[str, Any]:
    """Compare gradients of the op with those of the Function it was adopted from, up to the first failure; return the fields of a verdict.

    That Function is REFERENCE here; a case it does not accept is skipped. The first note is a call whose gradients were compared, or the
    reason why there was none; then `cases` is 0, and there is no failure.
    """
    run = Run()
    noted: list[str] = []
    for case in list_cases(checks):
        for words, layout in layouts(checks):
            if run.failure is None:
                check_case(checks, case, layout, words, run, compare_gradients)
            if run.proven and not noted:
                inputs = make_inputs(checks, case, layout)
                noted.append(describe(value_names(checks, len(inputs)), inputs))
    if not run.proven and run.failure is None:
        refused = [item.words for _, item in run.refusals]
        # The first reason known why nothing was compared; `cases` is 0, as the caller is told.
        noted, run.cases = [*run.notes, *refused, UNSEEN][:1], 0
    report = {"cases": run.cases, "failure": run.failure}
    return report | {"notes": noted, "skipped": run.skipped}


def check_case(
    checks: Any,
    case: Case,
    layout: Layout,
    words: str,
    run: Run,
    judge_gradients: "GradientJudge | None" = None,
) -> None:
    """Check a case's outputs, then its gradients for each set of inputs requiring grad; add to `run`. `words` name the layout; `judge_gradients`: by default as in a proof."""
    title = f"{case.name}, {words}" if words else case.name
    refused = refusal(checks, case, layout)
    if refused.words:
        run.skipped.append(title)
        # A further case may be refused, and by `x.view(-1)` another layout: then `words` name one.
        if not (case.further or (words and checks.CONTIGUOUS)):
            run.refusals.append((case.name, refused))
        return
    inputs = make_inputs(checks, case, layout)
    run.cases += 1
    for subject, check in OF_FORWARD.items():
        judge: Judge = partial(check, checks)
        fault = _attempt(partial(judge, inputs), subject)
        if fault and fault.subject == OUTPUTS and _has_another_number(case):
            return  # `dim=0`, while the shape is declared for the default, -1
        if fault is not None:
            fault = _due_to_layout(checks, case, layout, (), fault, judge)
            run.failure = _failure(checks, fault, title, inputs, ())
            return
    several = subsets(checks)
    run.proven = run.proven or not several  # without gradients the outputs are all
    judge = partial(judge_gradients or _check_backward, checks, case)
    for needs in several:
        inputs = make_inputs(checks, case, layout, needs)
        if not any(map(needs_gradient, inputs)):
            continue  # the needed input is absent
        fault = _attempt(partial(judge, inputs), "backward")
        run.cases += 1
        if fault is None:
            run.proven = run.proven or _have_elements(inputs)
            continue
        noted = _only_noted(checks, case, inputs, fault)
        if noted is None:
            fault = _due_to_layout(checks, case, layout, needs, fault, judge)
            run.failure = _failure(checks, fault, title, inputs, needs)
        # One note is enough, and none if PyTorch's own backward refuses another `dim`.
        elif not (noted.subject == OWN and _has_another_number(case)):
            run.notes = run.notes or [_note(checks, case, noted, inputs)]
        return


def _due_to_layout(
    checks: Any, case: Case, layout: Layout, needs: Needs, fault: Fault, judge: Judge
) -> Fault:
    """Return the failure; if a contiguous grad_output, or contiguous inputs, remove it, say so instead.

    `judge` is the failed check, and is repeated with these. An exception is returned as it is: its own words tell more.
    """
    usual = checks.gradients
    # Contiguous grad_outputs alone first, then contiguous inputs as well.
    layouts = (("grad_output", layout), ("an input", torch.clone))
    for what, laid in () if fault.raised else layouts:
        # `needs` is () if outputs are judged: then all inputs require grad, as in that check.
        inputs = make_inputs(checks, case, laid, needs or None)
        checks.gradients = partial(usual, laid=torch.clone)
        try:
            mended = _attempt(partial(judge, inputs), fault.subject) is None
        finally:
            checks.gradients = usual
        if mended:
            words = f"wrong where {what} is not contiguous"
            return fault._replace(words=words, hint=IN_ORDER)
    return fault


def ask_further(checks: Any, run: Run) -> None:
    """Ask the further questions about the tests' cases; add notes, and the first failure, to `run`.

    An answer is "legal", and only a note, if the gradient differs from autograd's and may be right, as at a kink.
    """
    for case, answer in asked_further(checks):
        subject = f"grad_{answer.name}"
        if answer.legal:
            run.notes.append(f"{subject} is {answer.words}")
            continue
        inputs = make_inputs(checks, case, None)
        fault = Fault(subject, answer.words, raised=answer.raised, hint=answer.hint)
        run.failure = _failure(checks, fault, case.name, inputs, (answer.name,))
        return


def _only_noted(
    checks: Any, case: Case, inputs: Sequence[Any], fault: Fault
) -> Fault | None:
    """Return the finding if it is noted and fails no op, since the call decides nothing; None if it is a failure of the op.

    An exception is noted if a shape in the call was a guess of ours, the reference's backward raises too, a matrix has no inverse, or a dim
    of fixed size was set to 1. A wrong gradient is noted if the call is outside the forward's domain, or finite differences confirm the op,
    not autograd, in a case beyond the generated tests.
    """
    if fault.raised:
        if case.guessed or fault.subject in (OWN, ORIGINAL_OWN):
            return fault
        singular = fault.words.startswith(SINGULAR)
        excused = case.further and (singular or is_bound(checks, case))
        return fault if excused else None
    if is_outside(checks, case, inputs):
        return fault
    if not case.further or not _is_pytorch_wrong(checks, inputs):
        return None
    subject, words = f"PyTorch's own {fault.subject}", "differs from finite differences"
    return fault._replace(subject=subject, words=words)


def _is_pytorch_wrong(checks: Any, inputs: Sequence[Any]) -> bool:
    """Return whether finite differences confirm the op and contradict PyTorch, as for `F.cosine_similarity` with a large eps.

    False if they cannot tell: for a surrogate, without a reference, or if a call raises.
    """
    if checks.REFERENCE is None or checks.SURROGATE:
        return False
    agrees = partial(
        gradcheck, inputs=inputs, raise_exception=False, check_undefined_grad=False
    )
    with suppress(Exception):  # whatever the user's code raises
        return agrees(checks.OPERATOR) and not agrees(checks.REFERENCE)
    return False


def _has_another_number(case: Case) -> bool:
    """Return whether the case has another value of a numeric attribute, such as `dim` or `eps`.

    Then the declared shapes of outputs, and PyTorch's own backward, may not fit: they were stated for the usual value.
    """
    values = [value for _, value in case.attributes]
    return any(type(value) in (int, float) for value in values)


OWN = "PyTorch's own backward"
# "its": of the Function that an op was adopted from, REFERENCE in `compare`.
ORIGINAL_OWN = "its own backward"


def _failure(
    checks: Any, fault: Fault, title: str, inputs: Sequence[Any], needs: Needs
) -> dict[str, Any]:
    """Return a finding with its case and call, for JSON: the fields of `prover.Failure`. `needs` are the inputs requiring grad."""
    found = fault._asdict()
    del found["raised"]  # no field of a `Failure`
    return found | {
        "case": title,
        "inputs": describe(value_names(checks, len(inputs)), inputs),
        "needed": ", ".join(needs),
    }


def _note(checks: Any, case: Case, fault: Fault, inputs: Sequence[Any]) -> str:
    """Return a note on an unsupported or undecided call; if its shapes were guessed, with advice to declare them."""
    call = describe(value_names(checks, len(inputs)), inputs)
    # It is the op that fails, not PyTorch's own backward, or that of the adopted Function.
    ours = fault.subject not in (OWN, ORIGINAL_OWN)
    mend = "; declare the shapes" * (case.guessed and ours)
    return f"not for {call}: {fault.subject} {fault.words}{mend}"


def _attempt(call: Callable[[], Fault | None], subject: str) -> Fault | None:
    """Return the finding of a call, None without one; an exception becomes a finding about `subject`."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        where = raised_at(error)
        return Fault(subject, raised(error), "", "", True, *where)


def _conclude(checks: Any, run: Run) -> None:
    """Set the failure, notes and shapes of a run after its last case.

    It fails if no gradient had elements to compare, or if the forward refuses "base", the first case of the tests: then accepted shapes are
    searched for. A refusal of another case of the tests is a note.
    """
    first = run.refusals and run.refusals[0]  # the name of the case, and the reason
    if first and first[0] == "base" and first[1].words != INFINITE and not run.proven:
        # Of a case with other sizes, which the forward accepts by accident: "base" says more. If that was
        # only not finite, the forward accepts its sizes too.
        run.failure = None
    if run.failure is not None:
        return
    if not run.refusals:
        if not run.proven:
            words = "; ".join([UNSEEN, *run.notes])
            run.failure = {"subject": "the op", "words": words}
        # All passed, but with sizes that fit by accident: the op is generated again with better ones.
        elif _accepts_unequal_chunks(checks):
            searched = shapes_taken(checks)
            run.shapes = searched if isinstance(searched, Shapes) else None
        return
    name, refused = run.refusals[0]
    if run.proven and name != "base":
        _note_refusal(checks, run, name, refused)
        return
    run.failure = _refused(checks, name, refused)
    if run.proven and refused.words == INFINITE:  # it is finite for other sizes
        words = f"the forward {refused.words} in the case 'base'"
        run.failure |= {"subject": TESTS, "words": words}
    # The formula has a name that does not exist: no other inputs would mend it.
    if refused.words.startswith(BROKEN):
        return
    # Advice begins with "; ", to follow other words; here it stands alone.
    run.failure["hint"] = mend(checks, refused.words).removeprefix("; ")
    if name == "base" and may_be_of_shapes(refused.words):
        _search_shapes(checks, run)


ACCEPTED = "declare the sizes it accepts: --require '{}'"
# Shapes whose last dim, in halves or thirds, makes chunks that do not broadcast.
UNLIKE_3 = ((2, 5), (2, 8))
LEADING = "; name the leading dims it takes: x[B, T, D] instead of x[..., D]"


def _accepts_unequal_chunks(checks: Any) -> bool:
    """Return whether the forward accepts the tests' shape (2, 3) by accident: chunks of 2 and 1 elements broadcast.

    `a, b = x.chunk(2, -1); return a * b` runs for (2, 3), but is meant for even sizes: the tests need another shape. It is such a forward if
    it makes unequal chunks (EqualParts refuses these), and refuses a larger last dim, whose unequal chunks cannot broadcast.
    """
    # Only for inputs of undeclared shapes `make` has a parameter `shape`: one shape for all of them.
    if "shape" not in signature(checks.make).parameters:
        return False
    with EqualParts():
        unequal = refusal(checks, Case("", {}), None).words
    cases = (Case("", {"shape": shape}) for shape in UNLIKE_3 if unequal)
    return any(may_be_of_shapes(refusal(checks, one, None).words) for one in cases)


def _note_refusal(checks: Any, run: Run, name: str, refused: Refusal) -> None:
    """Note that the forward refuses a case of the tests, `name`, with advice on the sizes it accepts.

    If these are multiples, `D % 2 == 0`, they become `run.shapes`: conditions that the caller adds to the op before it proves it again.
    """
    of_sizes = name == "other-sizes" and may_be_of_shapes(refused.words)
    conditions = size_conditions(checks) if of_sizes else []
    run.shapes = _of_factors(conditions)
    advice = f"; {ACCEPTED.format(' and '.join(conditions))}" if conditions else ""
    advice = LEADING if name in ("no-batch", "higher-rank") else advice
    words = f"the forward refuses the tests' case '{name}', so that test fails: it {refused.words}"
    run.notes.append(words.removesuffix(".") + advice)


def _of_factors(conditions: Sequence[str]) -> Shapes | None:
    """Return the conditions as `Shapes`, to add to the op, if each is on a factor, `D % 2 == 0`; else None: others are only advice."""
    factors = conditions and all(" % " in one for one in conditions)
    return Shapes({}, tuple(conditions)) if factors else None


def _search_shapes(checks: Any, run: Run) -> None:
    """Search for shapes accepted by the forward: put them in `run.shapes`, or in the hint of its failure.

    Shapes found for undeclared inputs replace those of the tests; if none are found, the failure says how far the forward came. If all are
    declared: one size computed from others, conditions on sizes, and last other shapes than the declared ones, as a hint.
    """
    assert run.failure is not None
    searched = shapes_taken(checks)
    if searched is None and (relation := size_relation(checks)):
        run.shapes = Shapes({}, relation)
    elif searched is None and (conditions := size_conditions(checks)):
        run.failure["hint"] = ACCEPTED.format(" and ".join(conditions))
        run.shapes = _of_factors(conditions)
    elif searched is None:
        instead = shapes_taken(checks, declared=False)
        if isinstance(instead, Shapes):
            wanted = " and ".join(instead.conditions)
            run.failure["hint"] = f"shapes it accepts, for example: {instead}" + (
                wanted and f", with --require '{wanted}'"  # "" without conditions
            )
    elif isinstance(searched, Shapes):
        run.shapes = searched
    else:
        run.failure |= {"words": searched.words, "tried": searched.tried}
        *several, last = searched.undeclared
        listed = f"{', '.join(several)} and {last}" if several else last
        declare = f"declare the shapes of {listed} in --inputs, as in '{last}[N, D]'"
        run.failure["hint"] = f"{declare}; {GIVE}"


UNSEEN = "every gradient was empty: nothing could be compared"


def _refused(checks: Any, name: str, refused: Refusal) -> dict[str, Any]:
    """Return the failure of a forward that refuses its declared inputs in the case `name`; with their shapes if they can be made."""
    failure = refused._asdict() | {"subject": "forward", "case": name}
    with suppress(Exception):  # the user's samples may raise, as reported already
        inputs = make_inputs(checks, Case(name, dict(checks.CASES[name])), None)
        failure["inputs"] = describe(value_names(checks, len(inputs)), inputs)
    return failure


def _have_elements(inputs: Sequence[Any]) -> bool:
    """Return whether any gradient of a call has elements: empty ones agree with anything, and prove nothing."""
    return any(needs_gradient(value) and value.numel() > 0 for value in inputs)


def _check_forward(checks: Any, inputs: Sequence[Any]) -> Fault | None:
    """Compare the op's outputs with its forward in plain PyTorch; None if they agree.

    Before that, inputs and outputs are compared with their declaration, and after it the outputs with those of the user's text as written.
    """
    names = value_names(checks, len(inputs))
    unlike = undeclared_input(checks, inputs, names)
    if unlike:
        return Fault(SAMPLES, unlike)
    # Without a FORWARD in plain PyTorch the op's outputs are only compared with their declaration.
    expected = as_tuple((checks.FORWARD or checks.OPERATOR)(*inputs))
    own = own_values(checks.OWN_FORWARD, inputs)
    # One tensor for several declared outputs: our forward unpacked it along its first dim.
    if len(own) == 1 < len(expected):
        message = f"returns one tensor, but {len(expected)} outputs are declared"
        return Fault("forward", message, hint=ONE_OUTPUT)
    contrary = undeclared_output(checks, names, inputs, expected)
    if contrary is not None:
        return Fault(OUTPUTS, contrary.words, hint=contrary.hint)
    actual = as_tuple(checks.OPERATOR(*inputs)) if checks.FORWARD else expected
    if len(actual) != len(expected):
        counts = f"{len(expected)} outputs", f"{len(actual)} outputs"
        return Fault("forward", "a different number of outputs", *counts)
    fault = _compare_outputs(checks, actual, expected)
    # Right by our reading of the text: if it is wrong by the text itself, our parser misread that.
    return fault or _compare_outputs(checks, actual, own, f"{AS_WRITTEN}: ", MISREAD)


def _check_jvp(checks: Any, inputs: Sequence[Any]) -> Fault | None:
    """Compare the op's tangents with its forward's in plain PyTorch; None if they agree, or if the op has no jvp.

    Only for ops generated with `--forward-ad`. All differentiable inputs get a tangent, then each alone, as PyTorch may hand over None
    for the others; each tensor of a variadic one (`tensors[0]`, `tensors[1]`) too.
    """
    if not getattr(checks.TESTS, "supports_forward_ad", False):
        return None
    names = [name.partition("[")[0] for name in value_names(checks, len(inputs))]
    wanted = dict.fromkeys(name.partition("[")[0] for name in checks.DIFFERENTIABLE)
    alone = [{name} for name in wanted] if len(wanted) > 1 else []
    for chosen in ({*wanted}, *alone):
        fault = _compare_tangents(checks, inputs, [name in chosen for name in names])
        if fault is not None:
            return fault
    return None


def _compare_tangents(
    checks: Any, inputs: Sequence[Any], chosen: Sequence[bool]
) -> Fault | None:
    """Compare the op's tangents with the expected ones if the `chosen` inputs have a tangent; None if they agree."""
    pairs = compared_tangents(checks, inputs, chosen)
    for position, (one, two) in enumerate(pairs):
        name = f"tangent {position}" if len(pairs) > 1 else "tangent"
        words = diagnose(one, two, Scene(name, tolerance=_tolerance(checks)))
        if words is not None:
            return Fault("jvp", f"{name}: {words}", show(two), show(one))
    return None


def _check_sharding(checks: Any, inputs: Sequence[Any]) -> Fault | None:
    """Compare the result on two devices, split by the op's DTensor rule, with the undivided one; None if they agree, or without a rule.

    The devices are imitated: the op is called twice, each time with half of every split input, and the halves of the outputs are joined as
    the rule says.
    """
    if checks.TESTS.sharding is None:
        return None
    op, names = checks.TESTS.registered, value_names(checks, len(inputs))
    undivided = as_tuple(op(*inputs))
    # For each way to split: the placements of the outputs, and those of the inputs.
    for placements, placed in checks.TESTS.sharding(*inputs):
        pairs = [*zip(inputs, placed, strict=True)]
        # One call for each of the two devices, with its half of the split inputs.
        halves = [[_shard(*pair, rank) for pair in pairs] for rank in range(2)]
        if not all(x.numel() for half in halves for x in half if isinstance(x, Tensor)):
            continue  # DTensor splits no dim smaller than the mesh
        parts = zip(*(as_tuple(op(*half)) for half in halves), strict=True)
        for one, two, placement in zip(parts, undivided, placements, strict=True):
            words = diagnose(
                _unshard(one, placement).detach(),
                two.detach(),
                Scene("output", tolerance=_tolerance(checks)),
            )
            if words is not None:
                split = [
                    f"{name} split along dim {p.dim}"
                    for name, p in zip(names, placed, strict=True)
                    # None: this input is no tensor.
                    if p is not None and p.is_shard()
                ]
                message = f"with {' and '.join(split)}: {words}"
                return Fault("sharding", message, hint=UNSPLIT)
    return None


UNSPLIT = "write _ for an index along which the op cannot be split"


def _shard(value: Any, placement: Any, rank: int) -> Any:
    """Return the part of an input on the device `rank`, 0 or 1; the whole input if its placement does not split it."""
    if placement is None or not placement.is_shard():
        return value
    return value.tensor_split(2, placement.dim)[rank]


def _unshard(parts: Sequence[Tensor], placement: Any) -> Tensor:
    """Return the whole output of its parts on two devices: concatenated, summed, or the first if each has all of it."""
    if placement.is_shard():
        return torch.cat([*parts], placement.dim)
    return sum(parts[1:], parts[0]) if placement.is_partial() else parts[0]


OF_FORWARD = {  # jvp and sharding: only if an op has them
    "forward": _check_forward,
    "jvp": _check_jvp,
    "sharding": _check_sharding,
}

AS_WRITTEN = "differs from the forward as you wrote it"
ONE_OUTPUT = "end it with return a, b, or leave --outputs out"
MISREAD = "scaffold misreads the forward: please report it, and write it differently until then"


def _compare_outputs(
    checks: Any,
    actual: Sequence[Tensor],
    expected: Sequence[Tensor],
    said: str = "",
    hint: str = "",
) -> Fault | None:
    """Compare the op's outputs with those `expected`; None if they agree. `said` goes before the words of a difference."""
    # Not strict: `expected`, if of the user's text as written, is empty where that refused the call.
    for position, (one, two) in enumerate(zip(actual, expected)):
        name = f"output {position}" if len(actual) > 1 else "output"
        scene = Scene(name, tolerance=_tolerance(checks))
        words = diagnose(one.detach(), two.detach(), scene)
        if words is not None:
            message = f"{name}: {said}{words}"
            return Fault("forward", message, show(two), show(one), hint=hint)
    return None


def _check_own_gradients(
    checks: Any, inputs: Sequence[Any], names: Sequence[str], returned: Sequence[Any]
) -> Fault | None:
    """Compare the gradients `returned` by backward with autograd's of the user's text as written; None if they agree.

    The reference is our reading of the text, and would share its mistakes. None too if a differentiable input does not require grad: one
    call, with all of them, is enough here.
    """
    wanted = {name.partition("[")[0] for name in checks.DIFFERENTIABLE}
    for name, value in zip(names, inputs, strict=True):
        # The name before "[": `tensors[0]` is of the variadic input `tensors`.
        asked = name.partition("[")[0] in wanted and isinstance(value, Tensor)
        if asked and not value.requires_grad:
            return None
    expected = own_gradients(checks, inputs, names)
    for name, gradient in zip(names, returned, strict=True):
        if name in expected:
            fault = _judge(checks, inputs, names, name, gradient, expected)
            # The user's text and our reading of it disagree: other words, and a hint to report that.
            if fault is not None:
                message = f"{AS_WRITTEN}: {fault.words}"
                return fault._replace(words=message, hint=MISREAD)
    return None


def _check_backward(checks: Any, case: Case, inputs: Sequence[Any]) -> Fault | None:
    """Check the gradients from backward: their number, shapes, dtypes and values; None if all are right.

    An error of the op's backward is raised only after PyTorch's own has passed: if both raise, it is no fault of the op.
    """
    returned, error = returned_gradients(checks, inputs)
    if returned is None and error is None:
        return Fault("backward", "is never called, though an input requires grad")
    names = value_names(checks, len(inputs))
    try:
        expected = expected_gradients(checks, inputs, names)
    # Noted, but no fault of the op: PyTorch cannot differentiate this call either.
    except RuntimeError as own:
        return Fault(OWN, raised(own), raised=True)
    if returned is None:
        assert error is not None
        raise error
    if len(returned) != len(inputs):
        counts = f"{len(inputs)} gradients", f"{len(returned)} gradients"
        return Fault("backward", "a different number of gradients", *counts)
    if case.further and not all(
        bool(one.isfinite().all()) for one in expected.values()
    ):
        expected = {}  # PyTorch itself gives no finite gradient: compare no values
    for name, value, gradient in zip(names, inputs, returned, strict=True):
        if needs_gradient(value):
            fault = _judge(checks, inputs, names, name, gradient, expected)
            if fault is not None:
                return fault
        elif gradient is not None:
            words = "a gradient although none is needed"
            return Fault(f"grad_{name}", words, "None", show(gradient))
    # Backward returned, and autograd raised after it; its values, judged first, may tell why.
    if error is not None:
        raise error
    return _check_own_gradients(checks, inputs, names, returned)


GradientJudge = Callable[[Any, Case, Sequence[Any]], Fault | None]


def compare_gradients(checks: Any, case: Case, inputs: Sequence[Any]) -> Fault | None:
    """Compare the gradients autograd gives the inputs, of the op and of the reference; None if they agree, or are not finite.

    These are not what backward returns: autograd sums a gradient that is larger than its input by broadcasting.
    """
    names = value_names(checks, len(inputs))
    try:
        expected = expected_gradients(checks, inputs, names)
    except Exception as error:  # noqa: BLE001 (the reference does not accept the case)
        return Fault(ORIGINAL_OWN, raised(error), raised=True)
    if not all(bool(one.isfinite().all()) for one in expected.values()):
        return None
    actual = gradients_of(checks, checks.OPERATOR(*inputs), inputs)
    for (name, wanted), gradient in zip(expected.items(), actual, strict=True):
        # Equal gradients, the usual case, need no diagnosis: that calls the op once more.
        if gradient.shape != wanted.shape or not gradient.equal(wanted):
            fault = _judge(checks, inputs, names, name, gradient, expected)
            if fault is not None:
                return fault
    return None


INFINITE_OWN = "autograd's own gradient is not finite"
CHANGE = (
    "the forward divides by 0, or overflows: change it, or give inputs for which its "
    "gradient is finite: --samples '@file.py:function'"
)


def _judge(
    checks: Any,
    inputs: Sequence[Any],
    names: Sequence[str],
    name: str,
    gradient: Any,
    expected: dict[str, Tensor],
) -> Fault | None:
    """Judge the gradient of the input `name`; None if it is right.

    `expected` has the right gradients by input; without one for this input, only shape and dtype are judged. If it is wrong only where
    autograd's own is not finite, the forward is to blame.
    """
    value, wanted = inputs[names.index(name)], expected.get(name)
    scene = Scene(
        f"grad_{name}",
        value=value.detach(),
        factors=_factors(checks, inputs, names),
        others={f"grad_{n}": g for n, g in expected.items() if n != name},
        tolerance=_tolerance(checks),
    )
    words = diagnose(gradient, wanted, scene)
    if words is None:
        return None
    stated = f"{tuple(value.shape)} {value.dtype}" if wanted is None else show(wanted)
    if _is_right_where_finite(gradient, wanted, scene):
        return Fault(scene.name, INFINITE_OWN, stated, show(gradient), hint=CHANGE)
    return Fault(scene.name, words, stated, show(gradient))


def _is_right_where_finite(gradient: Any, wanted: Tensor | None, scene: Scene) -> bool:
    """Return whether a wrong gradient is wrong only in elements where autograd's own, `wanted`, is not finite."""
    if wanted is None or not isinstance(gradient, Tensor) or wanted.isfinite().all():
        return False
    # Below, `where` would make the one of the other, and hide that fault.
    if (gradient.shape, gradient.dtype) != (wanted.shape, wanted.dtype):
        return False
    return diagnose(gradient.where(wanted.isfinite(), wanted), wanted, scene) is None


def _factors(
    checks: Any, inputs: Sequence[Any], names: Sequence[str]
) -> dict[str, Tensor]:
    """Return tensors by name a wrong gradient may lack as a factor: the inputs, and the outputs."""
    outputs = as_tuple(checks.OPERATOR(*inputs))
    named = [*zip(names, inputs, strict=True)]
    # An entry of OUTPUTS begins with the name.
    # Not strict: OUTPUTS is empty if the op may have any number of them.
    named += [(name, output) for (name, *_), output in zip(checks.OUTPUTS, outputs)]
    return {
        name: value.detach()
        for name, value in named
        if isinstance(value, Tensor) and value.dtype != torch.bool
    }


def _tolerance(checks: Any) -> dict[str, float]:
    """Return the op's limits `atol` and `rtol`; without a reference, those of finite differences are the default."""
    numeric = NUMERIC if checks.REFERENCE is None else {}
    return {**numeric, **checks.TOLERANCE}
