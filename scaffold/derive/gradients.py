"""The gradients of an op, derived from its forward: lowered, walked back, simplified, planned, written.

In: an `OpSpec`, its forward as it will stand, and the inputs that want a gradient. Out: `GradientStatements`:
statements that assign `grad_<input>`, over the forward's own names. Invariant: each gradient is the derivative; what
cannot be derived is said, not guessed.

The pipeline asks twice: `differentiated` gives the graph, once for all styles, and its `statements` the lines, in one
style.

Words: an op is one application of a primitive in the graph; the forward is lowered to such. `held` maps the forward's
values with a name (locals and outputs) to the name; an opaque value is only read by its name. The cotangent of a
value is the gradient of the loss with respect to it; `of` maps a cotangent to that value. A root is the op of an
input's whole gradient. Values `returned` are returned by forward to have them saved, and autograd hands in (`handed`)
a gradient for each. The joined input stands for a variadic one (any number of tensors), of which the forward makes
one tensor. `spec.forgoes_second`: a second derivative is given up, so forward may save any value. A note is a line
for the user on stderr.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from scaffold.derive.analysis.activity import (
    active_locals,
    carries_gradient,
    is_random,
    is_undifferentiated,
)
from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.derive.autocast import amp_of
from scaffold.derive.autograd_fallback import autograd_of_forward, of_results
from scaffold.derive.backward_program import needed_for
from scaffold.derive.capabilities import NOT_DERIVED
from scaffold.derive.derivation import (
    BY_AUTOGRAD,
    Forward,
    GradientStatements,
    indent_of,
)
from scaffold.derive.forward.body import grad_name
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Named, Op, Program, down_to
from scaffold.derive.graph.precision import Precision
from scaffold.derive.graph.static_values import UnsupportedError, dotted
from scaffold.derive.input_domains import domains
from scaffold.derive.lower.expressions import declared
from scaffold.derive.lower.statements import Lowered, lower
from scaffold.derive.plan.save_plan import (
    BackwardGraph,
    held_for_backward,
    worth_returning,
)
from scaffold.derive.reverse import (
    NOTHING,
    HandedAloneError,
    Reverse,
    Reversed,
    may_gain_a_dim,
)
from scaffold.derive.rules.team_tables import table_of
from scaffold.derive.simplify.advice import advice
from scaffold.derive.simplify.algebra import (
    ALGEBRA,
    divided_first,
    scalars_first,
    shared_multiples,
)
from scaffold.derive.simplify.autocast_casts import with_casts
from scaffold.derive.simplify.compositions import with_one_softmax, with_probabilities
from scaffold.derive.simplify.constructors import Maker, in_order
from scaffold.derive.simplify.forward_products import FORWARD_PRODUCTS, forward_products
from scaffold.derive.simplify.hoisting import HOISTED
from scaffold.derive.simplify.joined_terms import JOINED
from scaffold.derive.simplify.rewrites import REWRITES, scattered
from scaffold.derive.simplify.settled_choices import present
from scaffold.derive.undefined_gradients import undefined_gradients, where_defined
from scaffold.derive.variadic_inputs import JoinedInput, joined_input, with_joined
from scaffold.derive.write.statements import gradient_statements, names_of_returned
from scaffold.formula import (
    Graph,
    Statement,
    free_reads,
    functions_of_numbers,
    read_names,
)
from scaffold.formula.names import take
from scaffold.spec import OpSpec

SUMMED = frozenset({"summed_to", "fitted_to"})
TOO_DEEP = "it is nested too deeply"
ATTEMPTS = 8  # to find values whose being saved changes nothing of what is read

# In the order in which they are asked, after the identities of the table: these bring signs and constants to the front, so that one
# spelling of a product is met here. The first that finds a simpler op makes it, and what it makes is simplified in turn.
SIMPLIFICATIONS = in_order(
    (
        # Sums of products with a common factor, before these products change.
        ALGEBRA,
        REWRITES,
        # Only what is left as a product is looked up among those of the forward.
        FORWARD_PRODUCTS,
        JOINED,
        # Last what makes an op larger: a product inside a mask or below a sum is not met any more.
        HOISTED,
    )
)


class Question(NamedTuple):
    """What is to be differentiated."""

    graph: Graph
    forward: Forward
    wanted: tuple[str, ...]  # the inputs that want a gradient
    taken: frozenset[str]  # names that the backward finds outside


class Walked(NamedTuple):
    """The forward as a graph, and the gradients as the walk back over it leaves them."""

    spec: OpSpec
    applier: Applier
    lowered: Lowered
    held: dict[Op, str]
    cotangents: dict[Op, Op]  # the cotangent of each result -> that result
    undefined: frozenset[Op]  # of these, those that may be None in the backward
    make: Maker
    back: Reversed


@dataclass(frozen=True)
class Differentiated:
    """The gradients as a graph, or why there is none. It is the same in every style."""

    question: Question
    results: tuple[Op, ...] = ()  # of the forward; none where it is not understood
    walked: Walked | None = None
    why: str = ""
    joined: JoinedInput | None = None  # which was differentiated in place of another

    @property
    def outline(self) -> Mapping[str, Mapping[str, int]] | None:
        """Count the primitives in each gradient, to see early if two declarations differ; None if there are no gradients."""
        return self.walked and _outline(self.walked.back)

    @cached_property
    def _plain(self) -> BackwardGraph:
        """Simplify the gradients, once for both styles; here forward returns nothing more than its outputs."""
        assert self.walked is not None
        return _simplified(self.walked, _over_joined(self.question, self.joined))

    @cached_property
    def _backward(self) -> BackwardGraph:
        """Return the gradients over the values forward returns in order to save them."""
        return self._over_saved(())

    def _over_saved(self, recomputed: Iterable[Op]) -> BackwardGraph:
        """Derive the gradients from values returned by forward to be saved; those in `recomputed` are computed again instead.

        The plain gradients for an op that returns none.
        """
        assert self.walked is not None
        if not returns_saved(self.walked.spec):
            return self._plain
        question = _over_joined(self.question, self.joined)
        return _with_returned(self.walked, question, self._plain, recomputed)

    def _written(self, spec: OpSpec) -> GradientStatements:
        """Write the statements, from values returned by forward to be saved, without values no line reads.

        Those are recomputed, and the statements written again; inputs and outputs alone are saved if there is no
        other way to write.
        """
        assert self.walked is not None
        backward, recomputed = self._backward, set[Op]()
        while backward.returned:
            try:
                found = _statements(spec, self.walked, backward)
            except UnsupportedError:
                break
            unread = _unread(backward, found, spec.style == "combined")
            if not unread:
                return found
            recomputed |= unread
            backward = self._over_saved(recomputed)
        return _statements(spec, self.walked, self._plain)

    def statements(self, spec: OpSpec) -> GradientStatements:
        """Write the statements for all gradients, in the style of the spec.

        Where they cannot be derived, autograd differentiates the whole forward, or the user has to state them: a note
        says why, with advice on the forward. In a style that rules autograd out, the note names the style that does
        not.
        """
        reason = self.why
        if self.walked is not None:
            try:
                found = self._written(spec)
                graph, joined = self.question.graph, self.joined
                return joined.derived(graph, found) if joined else found
            except (UnsupportedError, RecursionError) as error:
                reason = reason_of(error)
        forward = self.question.forward
        fallback = autograd_of_forward(spec, *self.question)
        draws = any(map(is_random, forward.expressions()))
        if fallback is None and spec.kept and draws:
            reason += ", and it draws random numbers, which would be others again"
        note = f"{NOT_DERIVED if fallback is None else BY_AUTOGRAD}: {reason}"
        other_style = replace(spec, style="setup-context")
        if fallback is None and autograd_of_forward(other_style, *self.question):
            note += f'; with style = "setup-context" {BY_AUTOGRAD}'
        try:
            hints = advice(self.results)
        except RecursionError:  # of a forward that nests too deeply to be derived
            hints = ()
        constants = _undifferentiated_calls(spec, forward)
        return GradientStatements(fallback or (), (note, *constants, *hints))

    def of_results(self, spec: OpSpec, statement: Statement) -> Statement:
        """Return a statement in which autograd of the whole forward differentiates the op's results alone, not saved values."""
        return of_results(spec, self.question.graph, statement)


def differentiated(
    spec: OpSpec, question: Question, other: Differentiated | None
) -> Differentiated:
    """Differentiate the forward with respect to the wanted inputs; the result says why, if it has no gradients.

    `other` is the result for the same op with other declared shapes: the result has no gradients, and no reason, if
    the forward alone shows that they differ.
    """
    joined = joined_input(spec, question.forward, question.graph, question.wanted)
    found = Differentiated(question, joined=joined)
    if joined is not None:
        spec, question = joined.spec(spec), _over_joined(question, joined)
    table = table_of(spec)
    program = Program(question.graph, table.facts, declared(spec))
    applier = Applier(program, table)
    wanted = frozenset(question.wanted)
    try:
        if any(item.variadic and item.name in wanted for item in spec.tensors):
            raise UnsupportedError("it takes any number of tensors")
        if any(item.variadic and item.differentiable for item in spec.outputs):
            raise UnsupportedError("it returns any number of tensors")
        # If forward saves values, some calls are lowered in parts, to save one of these.
        saves = spec.forgoes_second or returns_saved(spec)
        lowered = lower(spec, question.forward, applier, wanted, saves)
        found = replace(found, results=lowered.results)
        if other and other.walked and _broadcasts_more(program, other.walked):
            return found
        held = held_by_name(spec, lowered)
        cotangents = _cotangents(spec, applier.program, lowered)
        make = maker_of(applier, lowered, held, cotangents)
        undefined = undefined_gradients(spec, cotangents)
        seeds = _seeds(make, cotangents, undefined)
        back = _walked_back(spec, make, lowered, seeds)
        walked = Walked(spec, applier, lowered, held, cotangents, undefined, make, back)
        return replace(found, walked=walked)
    except (UnsupportedError, RecursionError) as error:
        return replace(found, why=reason_of(error))


def _broadcasts_more(program: Program, other: Walked) -> bool:
    """Return whether a value with a gradient is broadcast here and not in the `other` forward, the same op with other shapes.

    Then the gradients must differ, in a sum over the broadcast dims: that is known before they are derived. False, so
    in doubt, if the other gradients have such sums anyway, or if the forwards are lowered differently.
    """
    if any(SUMMED & rules.keys() for rules in _outline(other.back).values()):
        return False
    # `via`: the pairs of an argument and an op through which a gradient has passed.
    contributing = {*other.back.via.values()}
    # `before` and `known`: the same op, and argument of it, in the other forward.
    # Not strict: other shapes may have lowered the forward to more ops, or fewer.
    for op, before in zip(program.ops, other.applier.program.ops, strict=False):
        if op.rule != before.rule:
            return False
        if op.facts.category == "elementwise":
            for arg, known in zip(op.args, before.args, strict=True):
                same_shape = known.shape == before.shape
                passed = same_shape and (known, before) in contributing
                if passed and arg.shape != op.shape:
                    return True
    return False


def _over_joined(question: Question, joined: JoinedInput | None) -> Question:
    """Return the question with the tensor made of a variadic input as one input in its place; unchanged without such a tensor."""
    if joined is None:
        return question
    graph, forward, wanted, taken = question
    names = (joined.name if name == joined.several.name else name for name in wanted)
    forward = with_joined(graph, forward, joined)
    return question._replace(
        forward=forward, wanted=tuple(names), taken=taken | {joined.name}
    )


def reason_of(error: Exception) -> str:
    """Return why an error stopped a derivation, for a note."""
    return TOO_DEEP if isinstance(error, RecursionError) else str(error)


def _unread(
    backward: BackwardGraph, found: GradientStatements, keeps_shapes: bool
) -> set[Op]:
    """Find the values forward returns though no line of backward reads them, to return them no more.

    Only the shape of such a value was wanted, and either another value has the same shape or a combined forward keeps
    the shape on ctx (`keeps_shapes`). `found` has the lines of backward, and those of the forward that it may repeat
    (`again`).
    """
    names = {
        read.name
        for read, _ in free_reads(found.statements)
        # `x[1:].shape` does not follow from the shape of `x` on ctx.
        if read.element or not (keeps_shapes and read.facets)
    }
    lines = found.forward[0] if found.forward else backward.forward.statements
    lines = lines if found.again is None else found.again
    available = {*backward.returned.values(), *backward.forward.returned}
    repeated = needed_for(lines, names, available)
    names |= {name for at in repeated for name in read_names(lines[at])}
    return {op for op, name in backward.returned.items() if name not in names}


def returns_saved(spec: OpSpec) -> bool:
    """Return whether forward returns expensive values to save them: differentiable outputs, dropped by the wrapper.

    So their gradients come in when a backward is differentiated, and a second derivative is right. Not where a
    gradient is stated, since no graph tells what it needs; nor in forward mode, since the output would have no
    tangent.
    """
    stated = (spec.gradients, spec.backward, spec.surrogate)
    # A rule for DTensor is of the outputs alone.
    apart = (spec.kept, spec.dirty, spec.forward_ad, spec.sharding)
    variadic = any(item.variadic for item in spec.outputs)
    excluded = any((*stated, *apart, variadic, spec.once_differentiable))
    return spec.save_policy == "balanced" and not excluded


def _with_returned(
    walked: Walked, question: Question, plain: BackwardGraph, without: Iterable[Op]
) -> BackwardGraph:
    """Derive the gradients from values returned by forward to be saved; a gradient handed in for one is added to its cotangent.

    A returned value is never taken apart, so other values may be worth returning after that: it is tried until
    nothing changes. `plain` are the gradients without any; values in `without` are not returned. Return `plain` if
    nothing settles.
    """
    backward, excluded = plain, {*without}
    for _ in range(ATTEMPTS):
        wanted = [op for op in worth_returning(backward) if op not in excluded]
        if {*wanted} == {*backward.returned}:
            return backward
        # What is no longer read once it is opaque does not come back.
        excluded |= {*backward.returned} - {*wanted}
        try:
            backward = _over_returned(walked, question, plain, wanted)
        except HandedAloneError as error:
            excluded.add(error.op)
    return plain


def _over_returned(
    walked: Walked, question: Question, plain: BackwardGraph, wanted: Sequence[Op]
) -> BackwardGraph:
    """Derive the gradients with each value in `wanted` opaque: an output of forward with a gradient of its own, `extra_grad_h`.

    `plain` are the gradients without such outputs: names for these are found there.
    """
    names = names_of_returned(plain, wanted)
    taken = {*question.taken, *plain.held.values(), *names.values()}
    handed: dict[Op, Op] = {}
    for op in filter(_takes_cotangent, wanted):
        name = take(taken, f"extra_grad_{names[op]}")
        handed[op] = walked.applier.program.op(
            "cotangent", (), Named(name), kind=op.kind, shape=op.shape
        )
    # Named, so that the simplifier reads them and takes none apart.
    held = {**walked.held, **names}
    returned = {**walked.cotangents, **{g: op for op, g in handed.items()}}
    make = maker_of(walked.applier, walked.lowered, held, returned)
    seeds = _seeds(make, walked.cotangents, walked.undefined)
    back = _walked_back(walked.spec, make, walked.lowered, seeds, handed)
    over = walked._replace(held=held, make=make, back=back)
    found = _simplified(over, question)
    # Names of returned values stand in `returned` alone.
    return found._replace(
        held={op: name for op, name in found.held.items() if op in walked.held},
        returned=names,
        handed=handed,
        taken={*found.taken, *names.values(), *(g.name for g in handed.values())},
    )


def _takes_cotangent(op: Op) -> bool:
    """Return whether autograd may hand in a gradient for a returned value: it carries one, and is no integer or mask."""
    return op.active and op.kind in ("real", "complex")


def _simplified(walked: Walked, question: Question) -> BackwardGraph:
    """Simplify the graph of all gradients together; comments say why each pass has its place.

    `roots` are the inputs' gradients, `of` maps a cotangent to its forward value; `opaque` ops are not taken apart.
    Single numbers are factors without dims: multiplied first, they cost next to nothing.
    """
    # Once all of a gradient is there: what a test decides depends on everything that is computed under it.
    roots, of = _roots(walked)
    opaque = {*walked.held}
    divided = divided_first(walked.make, roots, walked.cotangents)
    if divided and divided.roots:
        # Before single numbers are multiplied first: to them it is one of these.
        roots, opaque = divided.roots, {*opaque, divided.quotient}
        of = {divided(op) or op: primal for op, primal in of.items()}
    # After choices are decided: single numbers from both sides of one may now stand in the same product.
    roots, of = _over(scalars_first(walked.make, roots, opaque), roots, of)
    roots, of = _over(shared_multiples(walked.make, roots, opaque), roots, of)
    # After all products: what is left of a one-hot meets no other factor.
    roots, of = _over(scattered(walked.make, roots), roots, of)
    amp = amp_of(walked.spec)
    # A compiler traces the backward of a registered op under the autocast around its call; what comes in has its dtype there.
    if amp == "region" or (walked.spec.is_library and amp != "off"):
        # After all that takes values apart, to which a cast is a value of its own.
        sure = () if amp == "region" else walked.cotangents.keys()
        known = with_casts(walked.make, roots, walked.held, sure)
        roots, of = _over(known, roots, of)
    found = BackwardGraph(
        spec=walked.spec,
        applier=walked.applier,
        forward=walked.lowered.forward,
        lowered=walked.lowered,
        held=walked.held,
        seeds=walked.cotangents,
        undefined=walked.undefined,
        roots=roots,
        of=of,
        via=walked.back.via,
        taken=question.taken,
        indent=indent_of(amp),
    )
    return found._replace(held=held_for_backward(found, returns_saved(found.spec)))


def _statements(
    spec: OpSpec, walked: Walked, backward: BackwardGraph
) -> GradientStatements:
    """Write the gradients as statements, with notes; raise `UnsupportedError` for a forward they cannot serve.

    A function of torch for tensors alone fails where its argument is a number in some calls.
    """
    results = walked.lowered.results
    _refuse_changed(spec, backward)
    found = gradient_statements(backward, spec.style)
    lines = backward.forward.statements
    kinds = kinds_of_inputs(spec).after(lines)
    for name in functions_of_numbers(kinds, lines, found.statements):
        raise UnsupportedError(f"{name} of a value that is a number in some calls")
    return found._replace(
        notes=(
            *_notes(walked.applier, walked.back),
            *_undifferentiated(results),
            *advice(results),
        ),
        domains=domains(walked.applier.table, results),
        like=_like(spec, walked.lowered),
    )


def _refuse_changed(spec: OpSpec, backward: BackwardGraph) -> None:
    """Refuse gradients reading the value of a dirty input before the forward changed it in place; its shape stays.

    Raise `UnsupportedError`. A dirty input is declared to be changed by the forward; `unchanged` are the ops of these
    as they come in, `computed` the ops that the backward computes, and not only reads by name.
    """
    unchanged = {backward.lowered.inputs[name]: name for name in spec.dirty}
    if not unchanged:
        return
    roots = backward.roots.values()
    computed = [op for op in down_to(roots, backward.held) if op not in backward.held]
    # A shape stays as it was.
    args = (arg for op in computed if op.rule != "shape" for arg in op.args)
    for value in (*args, *roots):
        if value in unchanged:
            raise UnsupportedError(
                f"the gradient needs what '{unchanged[value]}' held before it changed in place: "
                "keep a copy of it in the forward, and state the gradient"
            )


def _outline(found: Reversed) -> Mapping[str, Mapping[str, int]]:
    """Count the primitives in each gradient, by the input's name: unequal counts show that two gradients differ."""
    return {
        name: Counter(op.rule for op in root.walk() if op.kind != "static")
        for name, root in found.gradients.items()
    }


def maker_of(
    applier: Applier,
    lowered: Lowered,
    held: Collection[Op],
    results: Mapping[Op, Op],
) -> Maker:
    """Return the maker of backward ops, with all simplifications; `results` maps cotangents to their values.

    A forward value with a name (in `held`), or a product of the forward, is read and never taken apart; a result is
    no such product.
    """

    def opaque(op: Op) -> bool:
        """Return whether an op is only read, by its name in the forward."""
        # An input has nothing inside, and Python values may still be computed.
        return op in held and op.rule not in ("input", "static", "python")

    not_products = {*lowered.results, *lowered.held_in_branches}
    # Ops made after the first cotangent belong to a backward, derived now or before, not to the forward.
    ops = applier.program.ops
    end = min((cotangent.serial for cotangent in results), default=len(ops))
    return Maker(
        applier,
        SIMPLIFICATIONS,
        opaque,
        forward_products(ops[:end], not_products, opaque),
        Precision(results),
    )


def _cotangents(spec: OpSpec, program: Program, lowered: Lowered) -> dict[Op, Op]:
    """Return the incoming gradient of each differentiable result, as an op named `grad_<output>` -> the result.

    The gradients of the inputs are computed from these.
    """
    found: dict[Op, Op] = {}
    for output, result in zip(spec.outputs, lowered.results, strict=True):
        if output.differentiable and result.is_tensor:
            name = grad_name(spec, output.name)
            cotangent = program.op(
                "cotangent", (), Named(name), kind=result.kind, shape=result.shape
            )
            found[cotangent] = result
    return found


def _seeds(
    make: Maker, cotangents: Mapping[Op, Op], undefined: Collection[Op]
) -> dict[Op, list[Op]]:
    """Map each result to the first cotangents of the walk: several if one tensor is two outputs, 0 in place of None.

    An `undefined` cotangent may be None: where it is, none of its terms is computed.
    """
    seeds: dict[Op, list[Op]] = {}
    for cotangent, result in cotangents.items():
        seed = where_defined(make, cotangent) if cotangent in undefined else cotangent
        seeds.setdefault(result, []).append(seed)
    return seeds


def _walked_back(
    spec: OpSpec,
    make: Maker,
    lowered: Lowered,
    seeds: Mapping[Op, list[Op]],
    handed: Mapping[Op, Op] = NOTHING,
) -> Reversed:
    """Walk back from the results, and return the gradients of the inputs; `handed` are gradients handed in for saved values.

    Where a second derivative is given up, or computed apart, a gradient may be one fused call of PyTorch (`fuse`).
    """
    fuse = spec.forgoes_second or returns_saved(spec)
    return Reverse(make, fuse, handed, once=spec.forgoes_second).run(
        seeds, lowered.inputs
    )


def _over(
    known: Mapping[Op, Op], roots: Mapping[str, Op], of: Mapping[Op, Op]
) -> tuple[dict[str, Op], dict[Op, Op]]:
    """Replace each op by its simplified one in `roots` (the inputs' gradients) and in `of` (cotangent -> forward value).

    `known` maps an op to its simplified one; a cotangent without one stays.
    """
    return (
        {name: known[root] for name, root in roots.items()},
        {known.get(op, op): primal for op, primal in of.items()},
    )


def _roots(walked: Walked) -> tuple[dict[str, Op], dict[Op, Op]]:
    """Simplify the gradient of each input under its conditions; return also the forward value of each cotangent.

    The gradient of an optional input is computed only where that input is given, so within it the input is not None.
    """
    spec, make, held, found = walked.spec, walked.make, walked.held, walked.back
    roots, of = dict(found.gradients), dict(found.of)

    def renew(name: str, known: Mapping[Op, Op]) -> None:
        """Replace a gradient by its simplified form in `known`, and note the forward values of its new cotangents."""
        roots[name] = known.get(roots[name], roots[name])
        for old, new in known.items():
            if old in of:
                of.setdefault(new, of[old])

    for item in spec.differentiable:
        if item.optional and item.name in roots:
            others = [op for name, op in found.gradients.items() if name != item.name]
            # What other gradients read as well stays as it is.
            kept = {*held, *(op for root in others for op in root.walk())}
            renew(item.name, present(make, roots[item.name], item.name, kept))
    # Only if forward saves no locals: then the logarithms would be computed again for their exponentials alone.
    if not (spec.forgoes_second or spec.once_differentiable or returns_saved(spec)):
        there = {*walked.lowered.results, *(op for op in held if op.rule == "input")}
        known = with_probabilities(make, roots, held, there)
        for name in roots:
            renew(name, known)
    known = with_one_softmax(make, roots, held)
    for name in roots:
        renew(name, known)
    return roots, of


def held_by_name(spec: OpSpec, lowered: Lowered) -> dict[Op, str]:
    """Return the names of forward values: locals, and outputs without a local. The backward reads these by name."""
    held = dict(lowered.held)
    for output, result in zip(spec.outputs, lowered.results, strict=True):
        if result.is_tensor:
            held.setdefault(result, output.name)
    return held


def _like(spec: OpSpec, lowered: Lowered) -> tuple[tuple[str, str], ...]:
    """Map each input to an output of surely the same shape, if there is one: its gradient then has that shape too.

    So `x.shape` can be read from `grad_output`, and need not be kept on ctx.
    """
    outputs = tuple(zip(spec.outputs, lowered.results, strict=True))
    same_shape = {
        item.name: output.name
        # Reversed, so that of several the first output stays.
        for output, result in reversed(outputs)
        for item in spec.tensors
        if output.differentiable and not (item.optional or item.variadic)
        if result.is_tensor and result.shape == lowered.inputs[item.name].shape
        if not may_gain_a_dim(lowered.inputs[item.name], (result,))
    }
    return tuple(same_shape.items())


def _notes(applier: Applier, found: Reversed) -> tuple[str, ...]:
    """Return a note for each call differentiated by autograd, with the reason: no rule, or one whose condition is unknown."""
    # The ops of a team's own primitive `exp` are called `exp_` (`Table.op_of`); the user knows it as `exp`.
    names = sorted(
        {
            _called(op) if op.rule == "call" else op.rule.rstrip("_")
            for op in found.calls
        }
    )
    return tuple(
        f"{_why(applier, name)}: autograd differentiates that call" for name in names
    )


def _why(applier: Applier, name: str) -> str:
    """Return why no rule is for a call: there is none of its name, or it is unknown if the rule's condition (`when`) holds.

    A method is looked up by its last name, `bar` of `x.foo.bar`.
    """
    last = name.rpartition(".")[2]  # of a method
    undecided = applier.undecided(name) or applier.undecided(last)
    return f"{name} has no rule" if undecided is None else undecided.said_of(name)


def _undifferentiated(results: tuple[Op, ...]) -> tuple[str, ...]:
    """Return notes on calls treated as constants by autograd though a gradient would pass.

    A call is left out if only constants read it. `results` are those of the forward.
    """
    found, seen, waiting = list[str](), set[Op](), [*results]
    while waiting:
        op = waiting.pop()
        # What only a constant reads has no gradient anyhow.
        if op in seen or op.facts.category == "constant":
            continue
        seen.add(op)
        waiting += op.args
        passes = op.rule == "call" and any(arg.active for arg in op.args)
        if passes and is_undifferentiated(op.template.node):
            found.append(_called(op))
    return _notes_on_constants(found)


def _undifferentiated_calls(spec: OpSpec, forward: Forward) -> tuple[str, ...]:
    """Return notes on calls treated as constants by autograd, in a forward left to it whole.

    Autograd knows none of the user's rules, so these calls are constants even with a rule.
    """
    active = frozenset(item.name for item in spec.differentiable)
    active |= active_locals(forward.statements, active)
    return _notes_on_constants(
        dotted(item.args[0]) or item.args[0].label
        for node in forward.expressions()
        for item in node.walk()
        if is_undifferentiated(item) and carries_gradient(item, active)
    )


def _notes_on_constants(names: Iterable[str]) -> tuple[str, ...]:
    """Return a note for each of these functions without a gradient in PyTorch; the user may not expect that."""
    return tuple(
        f"autograd has no gradient of {name}, and takes its result for a constant; so does this backward"
        for name in sorted(set(names))
    )


def _called(op: Op) -> str:
    """Return the name of the function or method of a call without a rule, for a note: `torch.foo`, `bar` for `(x + 1).bar()`."""
    call = op.template.node
    if call.kind != "call":
        return call.label
    return dotted(call.args[0]) or call.args[0].label
