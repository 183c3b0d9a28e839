"""The derivation of an op, pass by pass.

In: an `OpSpec`. Out: a `Derivation`: forward and backward as they will stand, what is saved, where each line goes.
Invariant: pure; a gradient that nobody gave is `missing`, never guessed.

There are three ways to a gradient: a formula states it; it is derived from the forward by the rules of its primitives; autograd
differentiates the whole forward where that cannot be. All three give statements that assign `grad_<input>`, and share all passes
after that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from scaffold.derive.analysis.activity import is_random
from scaffold.derive.analysis.aliasing import Trace
from scaffold.derive.analysis.live_variables import without_dead
from scaffold.derive.autocast import amp_of, is_changed
from scaffold.derive.backward_kernels import with_registered_backward
from scaffold.derive.backward_program import Line, free_reads, lines_of
from scaffold.derive.capabilities import (
    capabilities,
    once_differentiable,
    outside_of_pytorch,
)
from scaffold.derive.derivation import (
    Derivation,
    Forward,
    GradientStatements,
    Maths,
    RealInputs,
)
from scaffold.derive.forward.body import grad_name, write_forward
from scaffold.derive.forward.detached_outputs import detached_outputs, without_gradient
from scaffold.derive.forward.input_names import with_input_names
from scaffold.derive.forward.live_forward import forward_that_saves
from scaffold.derive.forward.ssa_names import with_versions
from scaffold.derive.library import refuse_unregistrable
from scaffold.derive.plan.recomputation import Reuse, plan_reuse
from scaffold.derive.saving import (
    ContextNames,
    Origins,
    context_of,
    transfer,
    without_views,
)
from scaffold.derive.shape_guards import shape_checks
from scaffold.derive.stated_gradients import (
    element_lines,
    origins_of,
    outer_names,
    stated_backward,
)
from scaffold.derive.write.common_subexpressions import with_repeats_named
from scaffold.derive.write.composition import composed
from scaffold.derive.write.placement import (
    blocks_of,
    guarded_as_a_whole,
    joint_gradients,
)
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    Lines,
    assigned,
    expressions,
    renaming,
    rewritten,
    sharing,
    written,
)
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec

if TYPE_CHECKING:
    from scaffold.derive.gradients import Differentiated


class Source(NamedTuple):
    """The op's maths as far as it is the same in every style."""

    graph: Graph
    place: Location
    forward: Forward | None
    versions: tuple[tuple[str, str], ...]  # a name of the forward -> the user's
    stated: Lines  # what the formulas of gradients state
    gradients: "Differentiated | None"  # the gradients that follow from the forward
    refused: str | None  # why none of them does


def derive(spec: OpSpec) -> Derivation:
    """What forward and backward of the op are."""
    # First: for every pass after this one, an output that the forward detaches has no gradient.
    detached = detached_outputs(spec)
    spec = _with_surrogate(without_gradient(spec, detached))
    if spec.kept is not None:  # of which only inputs and outputs can be saved
        spec = replace(spec, save_policy="recompute")
    # Once for all styles, since the gradients as a graph are the same in each of them.
    source = _before_style(spec)
    spec, maths, found = _in_its_style(spec, source)
    relies = partial(_if_declared_as, source, maths, found)
    amp = amp_of(spec)
    region = amp == "region" and (spec.amp is not None or _is_under_autocast(found))
    found = replace(found, detached=detached, amp=amp, region=region)
    # After all that simplifies gradients: each of these passes may leave out a conjugate.
    found = replace(found, real=_real_inputs(spec, source))
    # Only the finished backward tells which of the declared shapes it relies on.
    checks = shape_checks(spec, source.forward, found, relies)
    if spec.forward_ad:
        from scaffold.derive.forward_mode import with_jvp  # the engine, as below

        found = with_jvp(spec, maths, found)
    # After the checks, which ask each line of the backward what it relies on.
    found = with_registered_backward(spec, source.graph, replace(found, checks=checks))
    refuse_unregistrable(spec, found)
    return found


def _is_under_autocast(found: Derivation) -> bool:
    """Whether the autocast of the forward makes a difference in the backward."""
    lines = [line for block in found.blocks for line in block.statements]
    lines += [line for element in found.elements for line in element.statements]
    values = any(
        is_changed((Assign(item.value, item.value),)) for item in found.elements
    )
    return values or bool(found.missing) or is_changed(lines)


def _real_inputs(spec: OpSpec, source: Source) -> RealInputs | None:
    """What the gradients take for real, where any are derived."""
    if source.gradients is None:
        return None
    from scaffold.derive.real_inputs import real_inputs  # the engine, as below

    return real_inputs(spec, source.gradients)


def _with_surrogate(spec: OpSpec) -> OpSpec:
    """The op with formulas for the gradients that nobody states: those of the function whose derivative they are to be."""
    shown = spec.surrogate.forward if spec.surrogate else None
    wanted = [item.name for item in spec.differentiable]
    several = any(item.variadic for item in spec.tensors)
    several |= any(item.variadic for item in spec.outputs)
    if shown is None or spec.forward is None or spec.backward or not spec.derive:
        return spec
    if shown.kept or spec.dirty or several or {*wanted} <= {*dict(spec.gradients)}:
        return spec
    program = _of_surrogate(spec, shown)
    if program and not spec.gradients:
        lines = _without_dead(shown.graph, program, wanted)
        return replace(spec, backward=replace(shown, statements=lines, result=None))
    gradients = dict(spec.gradients)
    for name in wanted if program else ():
        lines = _without_dead(shown.graph, program, [name])
        result = shown.graph.name(f"grad_{name}")
        derived = replace(shown, statements=lines, result=result)
        gradients.setdefault(name, derived)
    return replace(spec, gradients=tuple(gradients.items()))


def _of_surrogate(spec: OpSpec, shown: Formula) -> Lines:
    """The statements of the gradients of a surrogate; none where it draws, changes a tensor in place, or is not understood."""
    assert spec.forward is not None
    taken = {item.name for item in spec.inputs}
    taken |= assigned(shown) | assigned(spec.forward)
    names = [fresh(f"surrogate_{item.name}", taken) for item in spec.outputs]
    pairs = [*zip(spec.outputs, names, strict=True)]
    alone = replace(
        spec,
        forward=shown,
        outputs=tuple(item._replace(name=name) for item, name in pairs),
        surrogate=None,
        gradients=(),
        save_policy="recompute",
        style="setup-context",
        style_is_free=False,
    )
    try:
        source = _before_style(alone)
        maths = _with_derived(alone, source)
    except ScaffoldError:  # the proof says it of the surrogate
        return ()
    graph, forward, found = source.graph, maths.forward, source.gradients
    if forward is None or found is None or found.walked is None:
        return ()
    # Its own value is computed again where a gradient reads it: what the op returns is another.
    values = zip(names, forward.results, strict=True)
    results = (Assign(graph.name(name), value) for name, value in values)
    statements = forward.statements if maths.again is None else maths.again
    program = (*statements, *results, *maths.program)
    nodes = (node for item in program for node in expressions(item))
    if Trace(program, sharing).changes or any(map(is_random, nodes)):
        return ()
    coming = {grad_name(alone, new): grad_name(spec, old.name) for old, new in pairs}
    return rewritten(graph, program, renaming(graph, coming))


def _before_style(spec: OpSpec) -> Source:
    """The passes that read what the user wrote."""
    formulas = (*dict(spec.gradients).values(), spec.backward, spec.forward)
    first = next(filter(None, formulas), None)
    graph = first.graph if first else Graph()
    place = first.location if first else Location(spec.name)
    # First, since formulas of gradients read locals of the forward, some of which get other names here.
    forward = write_forward(spec, spec.forward) if spec.forward else None
    # Before locals are told apart by versions: a formula means by a name what it holds in the end.
    stated = stated_backward(spec, graph, forward)
    # Before gradients are derived: of a local that is assigned twice, they may read the first value.
    forward, versions = _with_versions(spec, graph, forward)
    # After the formulas, since only what these do not state is derived.
    gradients, refused = _differentiated(spec, graph, forward, stated)
    return Source(graph, place, forward, versions, stated, gradients, refused)


def _in_its_style(spec: OpSpec, source: Source) -> tuple[OpSpec, Maths, Derivation]:
    """The op in the style that is asked for, or in the one that suits it.

    A combined forward can save locals, and `torch.func` cannot transform it: it is for ops that give up the second derivative.
    """
    free = spec.style_is_free and bool(spec.once_differentiable)
    if free and spec.derive and spec.kept is None:
        combined = replace(spec, style="combined")
        maths = _with_derived(combined, source)
        found = _in_style(combined, source, maths)
        if found.once_differentiable and not found.missing:
            return combined, maths, found
    maths = _with_derived(spec, source)
    return spec, maths, _in_style(spec, source, maths)


def _in_style(spec: OpSpec, source: Source, maths: Maths) -> Derivation:
    """The passes that write forward and backward down, in the style of the spec. None of them reads a declared shape."""
    # Zeros for what forward returns to be saved would be made in every backward.
    if maths.incoming.may_be_none:
        spec = replace(spec, materialize_grads=False)
    reuse, once, lines = _lines_before_ctx(spec, source, maths)
    # Now that no line changes any more, it is known which tensors are read, and which only for their shape.
    names = ContextNames(spec)
    outputs, like = dict(maths.origins), dict(maths.like)
    lines, views = without_views(spec, source.graph, lines, reuse.described)
    known = (maths.traits, maths.incoming)
    origins = Origins(outputs, reuse.plan.saved, views, like, *known)
    handed = transfer(spec, source.graph, lines, origins, names, source.place)
    missing = _missing(spec, handed.lines)
    context = context_of(spec, handed, names, missing, origins)
    # After ctx: a local that is saved may have to be returned, or copied; and it is known which names fill it.
    forward = forward_that_saves(spec, maths, reuse, context.saved)
    forward = with_input_names(spec, maths, forward, context)
    lines = _of_results(spec, source, handed.lines) if forward.extra else handed.lines
    elements, lines = element_lines(spec, lines)
    return Derivation(
        **forward._asdict(),
        **context._asdict(),
        **capabilities(spec, maths)._asdict(),
        comments=maths.forward.comments if maths.forward else (),
        blocks=composed(spec, maths, blocks_of(maths, lines), elements),
        elements=elements,
        missing=missing,
        derived=maths.derived - missing,
        domains=maths.domains,
        joint=joint_gradients(lines),
        style=spec.style,
        once_differentiable=once,
        notes=maths.notes,
        incoming=maths.incoming,
    )


def _lines_before_ctx(
    spec: OpSpec, source: Source, maths: Maths
) -> tuple[Reuse, bool, tuple[Line, ...]]:
    """The lines of the backward over the forward's names, what of the forward comes again in them, and whether they are differentiable once."""
    wanted = tuple(item.name for item in spec.differentiable)
    # First, before any line goes: what the forward computes comes again in the backward, line by line.
    reuse = plan_reuse(spec, maths)
    program = (*reuse.plan.repeated, *maths.program)
    once = once_differentiable(
        spec, maths, reuse.cut_off - maths.incoming.returned, program
    )
    # Before lines get names and places: what only dead lines read gets neither.
    program = _without_dead(source.graph, program, wanted)
    # Before ctx: an expression on `x.shape` that stands twice is the same one, on `ctx.x_shape` it may not be.
    lines = lines_of(with_repeats_named(spec, maths, program), wanted)
    if maths.derived.issuperset(wanted):
        # Before ctx, where it is decided what is saved under which test.
        lines = guarded_as_a_whole(spec, lines)
    return reuse, once, lines


def _if_declared_as(
    source: Source, maths: Maths, found: Derivation, other: OpSpec
) -> Derivation | None:
    """The op as it is written for another declaration of its shapes; None where it is known early to be another.

    Most of the time of a derivation goes to this question, so it is answered at the first pass that can.
    """
    gradients, refused = _differentiated(
        other,
        source.graph,
        source.forward,
        source.stated,
        other=source.gradients,
    )
    # What the user wrote reads the same: no pass before the gradients asks for a declared shape.
    again = source._replace(gradients=gradients, refused=refused)
    one, two = (item.gradients and item.gradients.outline for item in (source, again))
    if one != two:
        return None
    theirs = _with_derived(other, again)
    return found if theirs == maths else _in_style(other, again, theirs)


def _with_versions(
    spec: OpSpec, graph: Graph, forward: Forward | None
) -> tuple[Forward | None, tuple[tuple[str, str], ...]]:
    """The forward with a name for every value, and which names that takes."""
    if forward is None:
        return None, ()
    names = written(*forward.statements)
    inputs = frozenset(item.name for item in spec.inputs)
    taken = names | outer_names(spec, forward)
    statements, origin = with_versions(graph, forward.statements, names - inputs, taken)
    return forward._replace(statements=statements), tuple(origin.items())


def _differentiated(
    spec: OpSpec,
    graph: Graph,
    forward: Forward | None,
    stated: Lines,
    other: "Differentiated | None" = None,
) -> tuple["Differentiated | None", str | None]:
    """The gradients that no formula states, if there are any, and why they are not derived."""
    if not spec.derive or spec.surrogate or forward is None:
        return None, None
    there = written(*stated)
    names = (item.name for item in spec.differentiable)
    wanted = tuple(name for name in names if f"grad_{name}" not in there)
    refused = outside_of_pytorch(spec, forward) if wanted else None
    if not wanted or refused:
        return None, refused
    # The engine takes longer to import than an op to be written whose gradients are all stated, which does without.
    from scaffold.derive.gradients import Question, differentiated

    taken = outer_names(spec, forward) | there
    question = Question(graph, forward, wanted, taken)
    return differentiated(spec, question, other), None


def _with_derived(spec: OpSpec, source: Source) -> Maths:
    """The stated gradients and those that are derived, as one backward, and the forward with names for what that reads."""
    forward = source.forward
    derived = (
        source.gradients.statements(spec) if source.gradients else GradientStatements()
    )
    notes = derived.notes if source.refused is None else (source.refused,)
    formula = spec.kept or spec.forward
    kept = derived.kept
    if kept is not None and source.stated:  # of which no graph tells what they need
        read = frozenset(read.name for read, _ in free_reads(source.stated))
        kept = kept | read if spec.forgoes_second else None
    if forward is not None and derived.forward is not None:
        statements, results = derived.forward
        forward = forward._replace(statements=statements, results=results)
    names = written(*derived.statements)
    return Maths(
        graph=source.graph,
        place=source.place,
        forward=forward,
        versions=source.versions,
        program=(*source.stated, *derived.statements),
        origins=tuple(origins_of(spec, source.forward).items()),
        derived=frozenset(
            item.name for item in spec.differentiable if f"grad_{item.name}" in names
        ),
        notes=tuple(f"{formula.location}: {note}" for note in notes if formula),
        domains=derived.domains,
        kept=kept,
        planned=kept is not None and not source.stated,
        once=derived.once,
        again=derived.again,
        like=derived.like,
        traits=derived.traits,
        roles=derived.roles,
        incoming=derived.incoming,
    )


def _without_dead(graph: Graph, program: Lines, wanted: Sequence[str]) -> Lines:
    targets = frozenset(f"grad_{name}" for name in wanted)
    return without_dead(graph, program, targets, lambda node: False)


def _missing(spec: OpSpec, lines: Iterable[Line]) -> frozenset[str]:
    """The inputs to whose gradient no line assigns."""
    names = {name for line in lines for name in written(line.statement)}
    wanted = (item.name for item in spec.differentiable)
    return frozenset(name for name in wanted if f"grad_{name}" not in names)


def _of_results(
    spec: OpSpec, source: Source, lines: tuple[Line, ...]
) -> tuple[Line, ...]:
    """The lines; where one runs autograd over the whole forward, that returns the saved locals too, and only the results are differentiated."""
    if source.gradients is None:
        return lines
    run = source.gradients.of_results
    return tuple(line._replace(statement=run(spec, line.statement)) for line in lines)
