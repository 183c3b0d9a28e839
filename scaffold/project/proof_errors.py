"""Errors of failed proofs: the place in the user's formulas, the problem, and a hint how to mend it.

The process of a proof (`verify`) tells a failure by its subject, "forward" or "grad_x"; it knows nothing of options and files. Here
the failure becomes the error that `new-op`, `sync` and `adopt` print.
In: an op and its verdict. Out: an error, with the stated gradient beside the derived one, and with suggestions
for a name missing from PyTorch.
Invariant: a hint names options for ops given by options, and keys for ops in a table.

Words: a gradient is *stated* if the user gave its formula, else *derived* by us; a *surrogate* is a gradient meant to differ from the
derivative; the *case* of a failure says with which inputs it came, "alpha=-1.0"; *leading* dims, `...` or `*batch`, are any number of dims.
"""

import ast
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from scaffold.derive import Derivation, derive
from scaffold.errors import Location, ScaffoldError, VerificationError
from scaffold.formula import Formula, emit_lines, meant
from scaffold.project.inferred_inputs import with_dims
from scaffold.spec import ANY_DIMS, OpSpec, leading
from scaffold.spec.imports import runs_code_of
from scaffold.spec.problems import Locate
from scaffold.verify import Failure, Verdict

VALUELESS = (
    "the tests have only an object() for '{}': declare its type, '{}: float', or use "
    "--samples"
)
HINT = "fix the call; if it runs only on another machine, use --no-verify"
MEANT = "if the gradient is meant to differ from the derivative, use {}"
BOUNDED = (
    "right for {0}={1}, wrong for {0}={2}: if {0} is never {3}, "
    "`assert {0} > 0` in the forward; "
)
UNLIKE = "a gradient, even of a surrogate, has the shape and dtype of its input"
NO_GRADIENT = "if the input has no gradient, declare it in --inputs: '{}[; const]'"
LEADING = (
    "the '...' of two inputs may differ and broadcast: sum the gradient, or name "
    "dims that are always equal: '{}'"
)
OTHERS = (
    "'{}' may broadcast against other leading dims: sum the gradient, or give leading "
    "dims that are equal one name"
)
OURS = "a derived gradient is wrong: please report it; {} states one of your own"
LIBRARY = (
    "style = library needs PyTorch 2.5 (torch.library's register_vmap): this is {}"
)
SAID = ("outputs", "samples")  # keys beside the formulas
_OPTION = re.compile(r"--(inputs|outputs|samples)\b")
_GIVEN = re.compile(r"--(inputs|outputs|samples) (?=')")
_REQUIRED = re.compile(r"--require ('[^']*')")


class Subject(NamedTuple):
    """The op of a verdict, as the user gave it."""

    spec: OpSpec
    derived: frozenset[str]  # inputs with derived gradients
    locate: Locate  # of the user's keys
    inputs: str  # as stated, or as inferred from the forward


def error_of(
    subject: Subject, verdict: Verdict, notes: tuple[str, ...] = ()
) -> ScaffoldError:
    """Return a failed proof as an error at its place, with `notes` and the derived gradient in its details.

    It is a VerificationError (exit code 1); but a plain ScaffoldError, of bad input (2), if shapes for undeclared inputs were tried
    in vain: then nothing is known to be wrong but the missing declaration.
    """
    spec, failure = subject.spec, verdict.failure
    assert failure is not None
    other = misnamed(spec, failure.words)  # `torch.sigmod`: better than what follows
    place = (other and other.place) or _place(subject, failure)
    words = f"{failure.words}; nothing was written"
    if place is None or place.source != f"--{failure.subject}":  # not said twice
        words = f"{failure.subject}: {words}"
    whose = filter(None, [runs_code_of(spec)])
    lines = (*notes, *failure.lines, *beside(spec, failure.subject), *whose)
    hint = (other and other.hint) or _hint(subject, verdict)
    if hint and _in_file(subject):  # --require 'N > 1' becomes require = ['N > 1']
        hint = _REQUIRED.sub(r"require = [\1]", _GIVEN.sub(r"\1 = ", hint))
        hint = _OPTION.sub(r"'\1'", hint)
    # `tried`: shapes were searched for in vain, see the docstring.
    error = (ScaffoldError if failure.tried else VerificationError)(words, place, hint)
    error.details = lines
    return error


def _in_file(subject: Subject) -> bool:
    """Return whether the op's keys are in a TOML file; hints then name keys, `grad`, instead of options, `--grad`."""
    return subject.locate(("inputs",)).source.endswith(".toml")


def _hint(subject: Subject, verdict: Verdict) -> str | None:
    """Return the hint of a failed proof; None if there is nothing to advise.

    By the failure's subject: for a gradient by whether it is stated or derived; for other subjects the shapes or conditions on
    sizes the proof found to work, if any, to be declared.
    """
    failure = verdict.failure
    assert failure is not None
    if subject.spec.is_library and verdict.torch.startswith("2.4."):
        return LIBRARY.format(verdict.torch)
    in_file = _in_file(subject)
    if failure.subject.startswith(("grad_", "backward")):
        return failure.hint or _gradient_hint(subject, failure, in_file)
    if verdict.shapes:
        stated = "test-shapes = " if in_file else "--test-shapes "
        return f"shapes it accepts, for its tests: {stated}'{test_shapes(verdict)}'"
    if verdict.conditions:
        several = verdict.conditions
        return f"require = {[*several]}" if in_file else as_options(several)
    if failure.hint or failure.subject in SAID:
        return failure.hint or None
    names = untyped(subject.spec) if failure.subject == "forward" else ()
    return VALUELESS.format(names[0], names[0]) if names else HINT


def _gradient_hint(subject: Subject, failure: Failure, in_file: bool) -> str | None:
    """Return the hint for a wrong gradient, by whether it is stated or derived; None if there is nothing to advise."""
    spec, name = subject.spec, failure.subject.removeprefix("grad_")
    formulas = dict(spec.gradients)
    # A failure of the whole backward is the user's if each gradient is.
    all_stated = formulas.keys() >= {x.name for x in spec.differentiable}
    by_user = spec.backward or name in formulas or name == "backward" and all_stated
    if name in subject.derived or not by_user:
        return OURS.format("grad" if in_file else "--grad")
    if failure.actual == "None":  # it likely has none
        return NO_GRADIENT.format(name)
    if not failure.actual or spec.surrogate:  # it raised, or is meant to differ
        return None
    unlike = re.search(r"\b(shape|dtype) .* instead of ", failure.words)
    stated = MEANT.format("surrogate = true" if in_file else "--surrogate")
    hint = UNLIKE if unlike else stated
    return _named(spec, failure) or _bounded(spec, failure, hint)


def test_shapes(verdict: Verdict) -> str:
    """Return the shapes a proof found, with conditions on their sizes, as a value of `test-shapes`: 'x[N, D]; D % 2 == 0'."""
    entries = ", ".join(f"{name}[{dims}]" for name, dims in verdict.shapes.items())
    return "; ".join((entries, *verdict.conditions))


def declared_shapes(verdict: Verdict, inputs: str, required: Iterable[str] = ()) -> str:
    """Return options to declare the shapes a proof found: `--inputs 'x[N, D]' --require 'D % 2 == 0'`, for a note.

    `inputs` is the present value of `--inputs`, `required` the op's conditions so far, which stay. An op by `--schema` has no `--inputs`
    ("") and no shapes, as PyTorch's schemas have none: `--inputs` beside it adds them, so it need only name the inputs with shapes.
    """
    given = inputs or ", ".join(verdict.shapes)
    stated = f"--inputs '{with_dims(given, verdict.shapes)}'"
    conditions = dict.fromkeys((*required, *verdict.conditions))
    return " ".join(filter(None, (stated, as_options(conditions))))


def as_options(conditions: Iterable[str]) -> str:
    return " ".join(f"--require '{condition}'" for condition in conditions)


def untyped(spec: OpSpec) -> list[str]:
    """Return the attributes of unknown type without a default: the tests have no value for them, unless the user states samples."""
    if spec.samples is not None:
        return []
    return [
        item.name
        for item in spec.attributes
        if item.annotation == "object" and item.default is None
    ]


def _named(spec: OpSpec, failure: Failure) -> str | None:
    """Return a hint to name leading dims, for a gradient wrong if inputs broadcast along them; None for any other failure.

    For `x[..., D], y[..., D]` the dims of `...` may differ; as `x[*batch, D], y[*batch, D]` they are equal, and nothing broadcasts.
    """
    leading_dims = {
        f"grad_{item.name}": dim
        for item in spec.tensors
        if (dim := leading(spec.dims(item.name)))
    }
    broadcast = re.search(r"\b(leading|first) dim", failure.case)
    dim = leading_dims.get(failure.subject)
    if dim is None or not broadcast:
        return None
    if dim != ANY_DIMS:  # `*batch`; those of another input have another name
        return OTHERS.format(dim)
    named = (
        f"{item.name}[{', '.join(map(str, dims)).replace(ANY_DIMS, '*batch')}]"
        for item in spec.tensors
        if leading(dims := spec.dims(item.name) or ()) == ANY_DIMS
    )
    return LEADING.format(", ".join(named))


def _bounded(spec: OpSpec, failure: Failure, hint: str) -> str:
    """Return the hint with advice in front to assert an attribute's sign, if the gradient is right for its positive default alone.

    The case of the failure says so: it is "alpha=-1.0" or "alpha=0.0", and the default is 1.0. Otherwise the `hint` is returned as it is.
    """
    name, _, value = failure.case.partition("=")
    defaults = {item.name: item.default for item in spec.attributes}
    default = defaults.get(name) or ""
    try:
        bounded = float(value) <= 0 < float(default)
    except ValueError:  # the case is not of this form, or one value is no number
        return hint
    if not bounded:
        return hint
    what = "negative" if float(value) else "0"
    return BOUNDED.format(name, default, value, what) + hint


def _place(subject: Subject, failure: Failure) -> Location | None:
    """Return the place of a failure in the user's input: the raising part of a formula, else the formula, or a key as `samples`.

    None for a gradient that is derived, and for a failure of the process.
    """
    spec = subject.spec
    if failure.subject in SAID:
        return subject.locate((failure.subject,))
    formula = _formula(spec, failure.subject)
    if formula is None and failure.subject == "forward":
        formula = spec.forward
    if formula is None:
        return None
    # The smaller part first; either may be unknown, or not be in this formula.
    parts = (_normal(text) for text in (failure.expression, failure.statement))
    places = (formula.locate(partial(_reads, text)) for text in parts if text)
    return next(filter(None, places), formula.location)


def _formula(spec: OpSpec, subject: str) -> Formula | None:
    """Return the stated formula of a subject like "grad_x"; else the formula of the whole backward or surrogate; None if it was derived."""
    formula = {f"grad_{name}": one for name, one in spec.gradients}.get(subject)
    if formula is None and subject.startswith(("grad_", "backward")):
        return spec.backward or (spec.surrogate and spec.surrogate.forward)
    return formula


def _normal(code: str) -> str:
    """Return Python code as `ast` writes it, to compare code whatever its spacing and quotes; "" if it is invalid.

    A formula of one expression, `x * 2`, is run as `return x * 2`: without the `return` it is found in the formula.
    """
    try:
        return ast.unparse(ast.parse(code.removeprefix("return ")))
    except (SyntaxError, ValueError):
        return ""


def _reads(code: str, node: ast.AST) -> bool:
    """Return whether a node is this code, normalized by `_normal`."""
    return ast.unparse(node) == code


def beside(spec: OpSpec, subject: str) -> tuple[str, ...]:
    """Return lines to compare a wrong stated gradient with the derived one: "written: grad_x = grad_output", "derived: ...".

    `subject` is "grad_x" or the like. () if the gradient was not stated, or cannot be derived; of a stated whole backward the second alone.
    """
    name = subject.removeprefix("grad_")
    stated = {f"grad_{each}": formula for each, formula in spec.gradients}
    if subject not in stated and spec.backward is None:
        return ()
    derived = derived_lines(spec, name)
    if not derived:
        return ()
    by_user = stated.get(subject)
    text = " ".join(by_user.text.split()) if by_user else ""  # on one line
    written = (f"written: {subject} = {text}",) if by_user else ()
    return (*written, f"derived: {'; '.join(derived)}")


def derived_lines(spec: OpSpec, name: str) -> tuple[str, ...]:
    """Return the lines of the backward we would derive for the gradient of the input `name`; () if it cannot be derived.

    The stated gradients are left out for it. A surrogate's gradient is derived from the surrogate's own forward.
    """
    forward = spec.surrogate.forward if spec.surrogate else spec.forward
    # As if the user had stated the forward alone; without saved values, whose names and extra gradients the user never saw.
    without_stated = replace(
        spec,
        save_policy="recompute",
        forward=forward,
        surrogate=None,
        gradients=(),
        backward=None,
        derive=True,
    )
    with suppress(ScaffoldError):
        derivation = derive(without_stated)
        if forward is not None and name not in derivation.missing:
            return _lines(derivation, name)
    return ()


def _lines(derivation: Derivation, name: str) -> tuple[str, ...]:
    """Return the lines of a derivation's backward with a part in the gradient of `name`: each block says which gradients it serves."""
    return tuple(
        line.strip()
        for block in derivation.blocks
        if name in block.serves
        for line in emit_lines(block.statements)
    )


MISSING = re.compile(
    r"raised AttributeError: (?:module '([\w.]+)'|'Tensor' object) has no attribute '(\w+)'"
)


# The arguments are in quotes already: in double ones by PyTorch, in single ones by Python.
LACKING = re.compile(
    r"raised TypeError: (\w+)\(\) missing \d+ required positional arguments?: ([^;]+)"
)


class Misnamed(NamedTuple):
    """The place of a name that PyTorch lacks, if a formula has it, and a hint with the name perhaps meant."""

    place: Location | None
    hint: str | None


def misnamed(spec: OpSpec, words: str) -> Misnamed | None:
    """Return the place and a hint for a failure with these `words`, if they are of a missing attribute or argument; None for others.

    For "raised AttributeError: module 'torch' has no attribute 'sigmod'" the hint is "did you mean 'sigmoid'?".
    """
    if lacking := LACKING.search(words):  # its place is that of the failure
        return Misnamed(None, f"call {lacking[1]}() with {lacking[2]}")
    found = MISSING.match(words)
    if found is None:
        return None
    module, name = found.groups()
    stated = (spec.forward, spec.backward, *dict(spec.gradients).values())

    def says(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == name

    places = (formula.locate(says) for formula in stated if formula)
    return Misnamed(next(filter(None, places), None), meant(module, name))
