"""The texts of an op's verification: the op's file, and a module making inputs and expected results.

The child process imports both (`verify/child`): the second is the *module of checks*. In: an `OpSpec` and its `Derivation`. Out: two texts;
the module imports the op from `OP_MODULE`.
Invariant: inputs, cases and reference are those of the generated test, by the same template and the same view; the
module has further sizes and shapes, the forward as the user wrote it, and no test.

Words: a *proof* is a verification: it runs the op with the cases of its tests and further ones. A case is a name and arguments of `make`. A
stated gradient is one by the user's formula, a derived one comes from the rules; a case is *asked more* if a stated gradient or branches call
for further ones; *loose*: the user declared no shapes, so the tests' are guesses; leading dims are any number of dims, `...` or
`*batch`; the reference is the forward in plain PyTorch.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import NamedTuple

from scaffold.derive import Derivation, perhaps_detached
from scaffold.formula import Formula
from scaffold.render.environment import with_imports
from scaffold.render.fused import statistics
from scaffold.render.layout import Layout
from scaffold.render.op_testing import makers
from scaffold.render.opfile import op_file
from scaffold.render.reference import reference_lines
from scaffold.render.signature import starred
from scaffold.render.testcases import (
    absences,
    leading_arguments,
    leading_names,
    samples_name,
    size_arguments,
)
from scaffold.render.testdomains import with_domains
from scaffold.render.testfile import (
    FunctionView,
    ProofView,
    imports_of,
    reference_function,
    view,
)
from scaffold.render.testlimits import TOLERANCES, precision, takes_any_layout
from scaffold.render.testsizes import allows, choose_sizes, fixed_sizes
from scaffold.render.testvalues import (
    compared_counts,
    further_values,
    is_asked_more,
    literal,
    tried_values,
)
from scaffold.spec import ANY_DIMS, Dim, OpSpec, leading
from scaffold.spec.imports import newer_of
from scaffold.spec.op_spec import DType

OP_MODULE = "verified_op"
GUESSES = ("(3, 3)", "(3,)", "(3, 3, 3)")
# Ranks a formula must not rely on.
OF_A_STATED_GRADIENT = ("()", "(2, 1, 3, 2)", "(2, 1, 2, 1, 2)")
# Names in the module.
OWN_FORWARD, OWN_SURROGATE, OTHER = "own_forward", "own_surrogate", "other_operator"
MANY = 26  # choices of absent inputs, for a stated gradient: all of five
ELEMENTS = 2048  # of a tensor with all of the dims, about
MOST_BY_DIFFERENCES = 128  # ... if each element takes two calls
MOST_SIZES = 20  # choices of sizes for a stated gradient
OTHER_SIZES = 7  # the least of the second choice of sizes; the first one begins at 2


class Verification(NamedTuple):
    """The two texts run by a verification."""

    op: str
    checks: str


def verification(
    spec: OpSpec,
    derivation: Derivation,
    derived: frozenset[str],
    against: Formula | None = None,
) -> Verification:
    """Return the texts for an op with nothing left to write; `derived` are the inputs with derived gradients.

    A benchmark compares the op with the formula `against`, added to the module.

    Both are rendered by the built-in templates: no line of a team's template runs. If a team's template changes the Function,
    the proof is of another Function than the written one; the digest of the proven code, kept with the proof, shows it.
    """
    if any(item.name not in derived for item in spec.differentiable):
        derived = frozenset()  # a formula of the user's may count on equal shapes
    spec = with_domains(spec, derivation)
    place = Layout(OP_MODULE, f"{OP_MODULE}.py", f"test_{OP_MODULE}.py")
    reference = reference_lines(spec, derivation)
    draft = view(spec, derivation, place, reference)
    proof = _proof_view(spec, derivation, derived, reference)
    other = _own_text(spec, against, OTHER)
    own = (*proof.own, *filter(None, (other,)))
    # As source: the name of the function, or None.
    draft = draft._replace(proof=proof._replace(own=own, other=str(other and OTHER)))
    checks = with_imports(
        "verification.py.jinja", draft, lambda code: imports_of(spec, place, code)
    )
    return Verification(op_file(spec, derivation, place), checks)


def _proof_view(
    spec: OpSpec,
    derivation: Derivation,
    derived: frozenset[str],
    reference: tuple[str, ...] | None,
) -> ProofView:
    """Return the data of the proof's module beyond the test file's: further cases, values and forms of the forward."""
    more = derivation.extra or statistics(spec)  # forward returns more than declared
    plain = reference is not None and spec.surrogate is None
    forward = _own_text(spec, spec.forward, OWN_FORWARD)
    gradient = forward
    if reference is None:  # autograd gives no gradients to compare
        gradient = None
    elif spec.surrogate is not None:
        gradient = _own_text(spec, spec.surrogate.forward, OWN_SURROGATE)
    return ProofView(
        makers=makers(),
        samples=samples_name(spec),
        cases=", ".join(
            f"{literal(name)}: {{{text}}}"
            for name, text in (
                *_further_cases(spec, reference),
                *_guesses(spec, derived),
            )
        ),
        true_forward=_true_forward(spec, derivation),
        own=tuple(dict.fromkeys(filter(None, (forward, gradient)))),
        own_forward=str(forward and forward.name),
        own_gradient=str(gradient and gradient.name),
        names=str(tuple(starred(item) for item in spec.inputs)),
        outputs=str(_outputs(spec)),
        input_shapes=str({starred(item): item.dims for item in spec.tensors}),
        broadcast=str(_leading(spec, derived)),
        attributes=str(further_values(spec)),
        newer=str(newer_of(spec)),
        asked_more=is_asked_more(spec),
        scaled=str(_of_any_size(spec)),
        values=re.sub(r"\b(inf|nan)\b", r'float("\1")', str(tried_values(spec))),
        tolerance=f"{{{', '.join(_tolerances(spec))}}}",
        attached=plain and perhaps_detached(spec),
        declared=str(len(spec.outputs) if more else None),
        single=len(spec.outputs) == 1 and not spec.outputs[0].variadic,
        surrogate=spec.surrogate is not None,
        loose=_is_loose(spec),
        contiguous=not takes_any_layout(spec),
    )


def _of_any_size(spec: OpSpec) -> tuple[int, ...]:
    """Return the positions of inputs to try with larger values, for a stated gradient: it may be wrong only there."""
    if not is_asked_more(spec) or any(item.variadic for item in spec.tensors):
        return ()  # or positions differ between calls
    return tuple(
        spec.index(item.name)
        for item in spec.tensors
        if item.dtype == "float" and item.domain == "normal"
    )


def _true_forward(spec: OpSpec, derivation: Derivation) -> FunctionView | None:
    """Return the forward of an op with a surrogate as a function in plain PyTorch, if known; None for other ops.

    Its outputs are those to expect; gradients to expect are the surrogate's.
    """
    if spec.surrogate is None:
        return None
    # Without the surrogate the reference is the forward.
    plain = replace(spec, surrogate=None)
    lines = reference_lines(plain, derivation)
    return None if lines is None else reference_function(plain, lines)


def _own_text(spec: OpSpec, formula: Formula | None, name: str) -> FunctionView | None:
    """Return a formula as the function `name` with the user's own text, nothing of it rewritten; None if the text alone cannot run.

    Compared with it, the op shows whether the parser misread the text.
    """
    lines = formula.own_text([starred(item) for item in spec.inputs]) if formula else ()
    plain = replace(spec, surrogate=None)
    return reference_function(plain, lines)._replace(name=name) if lines else None


def _outputs(spec: OpSpec) -> tuple[tuple[str, tuple[Dim, ...] | None, DType], ...]:
    """Return the name, dims and dtype of each output as specified; () if there may be any number."""
    if spec.outputs[-1].variadic:
        return ()
    return tuple((item.name, item.dims, item.dtype) for item in spec.outputs)


def _tolerances(spec: OpSpec) -> Iterator[str]:
    """Yield the items of the dict of tolerances: those of the forward's precision, or the user's."""
    usual = TOLERANCES[precision(spec)]
    for name, value in (usual | dict(spec.tolerance)).items():
        # Other options of gradcheck, such as `fast_mode`, are for it alone.
        if name in ("atol", "rtol"):
            yield f"{name!r}: {value}"


def _further_cases(
    spec: OpSpec, reference: tuple[str, ...] | None
) -> Iterator[tuple[str, str]]:
    """Yield cases beyond the test's: of broadcasting leading dims, other sizes for all named dims, each dim alone with size 1; and more.

    More cases only if `is_asked_more`; smaller ones without a `reference`, as finite differences call the op twice for each element.
    """
    if spec.samples is not None:
        return
    yield from _broadcast_names(spec)
    if is_asked_more(spec):
        yield from _of_other_counts(spec)
    usual = choose_sizes(spec, first=2)
    if not usual:
        return
    fixed = fixed_sizes(spec)
    other = choose_sizes(spec, first=OTHER_SIZES)
    # If all are equal, conditions or attributes give every size.
    if any(size != usual[name] for name, size in other.items()):
        yield "larger-sizes", size_arguments(other)
    # Sizes that no index depends on, and no attribute gives.
    bounds = {item.bound for item in spec.tensors}
    free = [name for name in usual if name not in bounds and name not in fixed]
    for name in free:
        if allows(spec, usual | {name: 1}):
            yield f"{name}=1", size_arguments({name: 1})
    # Without a free size each of these would be the usual case.
    if free and is_asked_more(spec):
        most = ELEMENTS if reference is not None else MOST_BY_DIFFERENCES
        yield from _of_other_sizes(spec, usual, free, most)


def _of_other_counts(spec: OpSpec) -> Iterator[tuple[str, str]]:
    """Yield cases of more leading dims and other numbers of tensors than the tests have, and of several absent inputs."""
    if leading_names(spec):
        yield "three leading dims", leading_arguments(spec, (2, 1, 3))
        yield "four leading dims", leading_arguments(spec, (2, 1, 3, 2))
    if any(item.variadic for item in spec.tensors):
        yield from (("two tensors", '"count": 2'), ("five tensors", '"count": 5'))
    known = absences(spec)
    names = [item.name for item in spec.tensors if item.optional]
    # Two of them, all but one, then the rest: mistakes show with few of many absent, or with few present.
    counts = sorted(range(2, len(names)), key=lambda count: (count != 2, -count))
    choices = (absent for n in counts for absent in combinations(names, n))
    for absent in islice(choices, MANY):
        if absent not in known:  # as a case of the tests
            yield f"without {', '.join(absent)}", f'"absent": {[*absent]}'


def _of_other_sizes(
    spec: OpSpec, usual: dict[str, int], free: Sequence[str], most: int
) -> Iterator[tuple[str, str]]:
    """Yield cases of sizes all equal, all 1, and large; then of each alone at a number a formula compares with, and above."""
    several = [spec.tested_dims(item.name) or () for item in spec.tensors]
    # How often a dim stands in one tensor: `x[N, N]` has N * N elements.
    times = {name: max(dims.count(name) for dims in several) for name in free}
    large = int(most ** (1 / sum(times.values())))
    named = (size for count in compared_counts(spec) for size in (count, count + 1))
    chosen = [dict.fromkeys(free, size) for size in (3, 1, large)]
    chosen += [
        {name: size}
        for size in dict.fromkeys(named)
        for name in free
        if size ** times[name] <= most
    ]
    for sizes in chosen[:MOST_SIZES]:
        if allows(spec, usual | sizes):
            words = ", ".join(f"{name}={size}" for name, size in sizes.items())
            yield words, size_arguments(sizes)


def _broadcast_names(spec: OpSpec) -> Iterator[tuple[str, str]]:
    """Yield cases of one name's leading dims missing or of size 1, the same in all inputs having it."""
    names = leading_names(spec)
    # A single name's dims are alike in all inputs that have it: nothing would broadcast.
    for dim, parameter in names.items() if len(names) > 1 else ():
        if dim != ANY_DIMS:
            yield f"without leading dims {dim}", f'"{parameter}": ()'
            yield f"with leading dims {dim} of size 1", f'"{parameter}": (1,)'


def _guesses(spec: OpSpec, derived: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield other shapes for undeclared ones, as a name and an argument of `make`; a guess, since the forward may refuse them."""
    # An op without a gradient, or with one of nothing to compare with, is not asked.
    if not (derived or is_asked_more(spec)) or not _is_loose(spec):
        return
    stated = OF_A_STATED_GRADIENT if is_asked_more(spec) and not derived else ()
    shared = any(spec.tested_dims(item.name) is None for item in spec.tensors)
    for shape in (*GUESSES, *stated) if shared else ():
        yield f"shape {shape}", f'"shape": {shape}'
    if leading_names(spec):  # as `shape` is by default
        yield "equal shapes", leading_arguments(spec, (2, 3))


def _is_loose(spec: OpSpec) -> bool:
    """Return whether the forward may refuse any case: the shapes of the tests are not the user's."""
    return spec.samples is None and any(
        spec.dims(item.name) is None for item in spec.tensors
    )


def _leading(spec: OpSpec, derived: frozenset[str]) -> dict[int, int]:
    """Return the inputs able to have fewer leading dims, or dims of 1: position -> number of other dims.

    At least two inputs must have leading dims. An undeclared shape counts as such only if all gradients were derived.
    """
    if spec.samples is not None or any(item.variadic for item in spec.tensors):
        return {}  # the calls are the user's, or positions differ between calls
    found, named = {}, 0  # `named`: inputs with leading dims like `*batch`
    for item in spec.tensors:
        dims = spec.dims(item.name)
        if dims is None and derived:
            found[spec.index(item.name)] = 0
        elif (dims or ())[:1] == (ANY_DIMS,):
            found[spec.index(item.name)] = len(dims or ()) - 1
        elif leading(dims):
            named += 1
    return found if len(found) + named > 1 else {}
